#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What supervision costs and how fast it is, with the stand-ins. Prints figures; judges nothing.
#
#   supervision.sh [SECTION…]      all without an argument:
#     server    kill -9 of a server, SERVER_KILLS (50) times: until its holder is told
#     control   kill -9 of a control daemon, CONTROL_KILLS (20) times: until it is ready again
#     trouble   8 instances, one stopped, one crash-looping, one flooding: leases on the other five
#               for TROUBLE_SECONDS (60), and the supervisor's share of a CPU
#     idle      8 instances without leases for IDLE_SECONDS (60): commands, wake-ups, memory
#
# Environment: MPS_BUILD, STANDIN_DIR. Needs jq.
set -euo pipefail

# shellcheck source=tests/bench/lib.bash
. "$(dirname "$0")/lib.bash"
: "${SERVER_KILLS:=50}" "${CONTROL_KILLS:=20}" "${TROUBLE_SECONDS:=60}" "${IDLE_SECONDS:=60}"
readonly FLOOD_BYTES_PER_S=833333 # 50 MB/min

server_pid() {
	status '.instances[0].servers[0].pid // empty'
}

ready_since() {
	[[ $(status ".instances[0] | .generation > $1 and .state == \"ready\"") == true ]]
}

# ---------------------------------------------------------------- figures

# statistics WHAT: of one number of microseconds a line.
statistics() {
	sort -n | awk -v what="$1" '{ v[NR] = $1 }
		END {
			if (NR == 0) { print what ": nothing measured"; exit }
			printf "%s: n %d, median %.2f ms, p99 %.2f ms, max %.2f ms\n", what, NR,
				v[int((NR + 1) / 2)] / 1000, v[int((NR * 99 + 99) / 100)] / 1000, v[NR] / 1000
		}'
}

# Ticks of CPU time so far, the supervisor's own and of the children that it has waited for.
cpu_ticks() {
	sed 's/^.*) //' "/proc/$SUPERVISOR/stat" | awk -v children="$1" \
		'{ print $12 + $13 + (children ? $14 + $15 : 0) }'
}

# cpu_percent TICKS MICROSECONDS
cpu_percent() {
	awk -v ticks="$1" -v us="$2" -v hz="$(getconf CLK_TCK)" 'BEGIN { printf "%.2f %%", ticks / hz / us * 1e8 }'
}

# status_field NAME: a number of /proc/PID/status
status_field() {
	awk -v name="$1:" '$1 == name { print $2 }' "/proc/$SUPERVISOR/status"
}

# ---------------------------------------------------------------- sections

# A holder on the first GPU that streams; its answers come on descriptor 9.
stream_holder() {
	local line
	rm -f "$WORK/answers"
	mkfifo "$WORK/answers"
	printf '%s\0' '{"method":"io.mps-supervisor.AcquireLease","parameters":{},"more":true}' >"$WORK/call"
	"$MPS_BUILD/rawsock" "$WORK/run/socket" 3600 <"$WORK/call" >"$WORK/answers" 2>/dev/null &
	STARTED+=($!)
	exec 9<"$WORK/answers"
	IFS= read -r -u 9 line
	[[ $line == *'"granted"'* ]]
}

# Until the holder has heard of a loss.
hear_interruption() {
	local line
	while IFS= read -r -t 20 -u 9 line; do
		[[ $line != *'"interrupted"'* ]] || return 0
	done
	return 1
}

section_server() {
	local i pid begin
	: >"$WORK/times"
	start 1
	stream_holder
	for ((i = 0; i < SERVER_KILLS; i++)); do
		with_lease cuda-client init
		pid=$(server_pid)
		begin=${EPOCHREALTIME/./}
		kill -KILL "$pid"
		hear_interruption
		echo $((${EPOCHREALTIME/./} - begin)) >>"$WORK/times"
	done
	exec 9<&-
	stop
	statistics "kill -9 of a server until its holder is told" <"$WORK/times"
}

with_lease() {
	mpsctl lease -q -- "$@" >/dev/null
}

# The stand-in's control daemon alone: from its start until it answers.
control_alone() {
	local begin pid
	rm -rf "$WORK/alone"
	mkdir "$WORK/alone"
	begin=${EPOCHREALTIME/./}
	CUDA_MPS_PIPE_DIRECTORY=$WORK/alone CUDA_MPS_LOG_DIRECTORY=$WORK/alone CUDA_VISIBLE_DEVICES=$(uuid_of 0) \
		"$BIN/nvidia-cuda-mps-control" -f >/dev/null 2>&1 &
	pid=$!
	until [[ $(CUDA_MPS_PIPE_DIRECTORY=$WORK/alone "$BIN/nvidia-cuda-mps-control" \
		<<<get_default_active_thread_percentage 2>/dev/null) == 100.0 ]]; do :; done
	echo $((${EPOCHREALTIME/./} - begin))
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null || true
}

section_control() {
	local i pid begin generation
	: >"$WORK/times"
	: >"$WORK/alone.times"
	# Who was up for the window is started again at once: every death here is a first one.
	start 1 'restart = { window = 1.0; };'
	for ((i = 0; i < CONTROL_KILLS; i++)); do
		control_alone >>"$WORK/alone.times"
		with_lease cuda-client init
		eventually 5 up_for 1100000
		generation=$(status '.instances[0].generation')
		pid=$(status '.instances[0].control_pid')
		begin=${EPOCHREALTIME/./}
		kill -KILL "$pid"
		eventually 10 ready_since "$generation"
		echo $(($(status '.instances[0].since_usec') - begin)) >>"$WORK/times"
	done
	stop
	statistics "kill -9 of a control daemon until ready" <"$WORK/times"
	statistics "  of this the daemon's own start (measured alone, to its first answer)" <"$WORK/alone.times"
	paste <(sort -n "$WORK/times") <(sort -n "$WORK/alone.times") | awk '{ a[NR] = $1; b[NR] = $2 }
		END { m = int((NR + 1) / 2); printf "  difference of the medians: %.2f ms\n", (a[m] - b[m]) / 1000 }'
}

# The first instance is ready for so many microseconds.
up_for() {
	((${EPOCHREALTIME/./} - $(status '.instances[0].since_usec') > $1))
}

# in_state INDEX STATE
in_state() {
	[[ $(status ".instances[$1].state") == "$2" ]]
}

section_trouble() {
	local i begin end ticks all from stopped generations alone
	: >"$WORK/times"
	knobs
	start 8 'health = { interval = 1.0; };' \
		'restart = { backoff_min = 0.1; backoff_max = 0.5; limit = 32; window = 1.0; };'
	# With a client it is not recycled.
	mpsctl lease -q --gpu 0 -- cuda-client hold >"$WORK/held" </dev/null &
	STARTED+=($!)
	eventually 10 test -s "$WORK/held"
	knobs "[$(uuid_of 1)]" exit_after_ms=300 "[$(uuid_of 2)]" "flood_bytes_per_s=$FLOOD_BYTES_PER_S"
	# It sees the knob at its next start.
	kill -KILL "$(status '.instances[1].control_pid')" "$(status '.instances[2].control_pid')"
	eventually 10 in_state 2 ready
	stopped=$(status '.instances[0].control_pid')
	kill -STOP "$stopped"
	eventually 30 in_state 0 unresponsive
	generations=$(status '[.instances[].generation] | tostring')
	ticks=$(cpu_ticks '') from=${EPOCHREALTIME/./}
	sleep 5
	alone=$(cpu_percent $(($(cpu_ticks '') - ticks)) $((${EPOCHREALTIME/./} - from)))
	ticks=$(cpu_ticks '') all=$(cpu_ticks 1) from=${EPOCHREALTIME/./}
	end=$((from + TROUBLE_SECONDS * 1000000))
	for ((i = 3; ${EPOCHREALTIME/./} < end; i = i == 7 ? 3 : i + 1)); do
		begin=${EPOCHREALTIME/./}
		mpsctl lease -q --gpu "$i" -- true
		echo $((${EPOCHREALTIME/./} - begin)) >>"$WORK/times"
	done
	end=${EPOCHREALTIME/./}
	echo "three of eight in trouble: CPU of the supervisor $(cpu_percent $(($(cpu_ticks '') - ticks)) $((end - from)))," \
		"before the leases $alone, with the daemons it reaped $(cpu_percent $(($(cpu_ticks 1) - all)) $((end - from)))," \
		"VmRSS $(status_field VmRSS) KiB"
	echo "  states $(status '[.instances[].state] | join(" ")')"
	echo "  generations $generations, then $(status '[.instances[].generation] | tostring');" \
		"MPS wrote $(status .counters.log_lines) lines, logged $(wc -l <"$WORK/log")"
	kill -CONT "$stopped"
	stop
	knobs
	statistics "  mpsctl lease --gpu X -- true on the other five" <"$WORK/times"
}

section_idle() {
	local commands switches from us ticks
	start 8
	# Past what the start itself needs.
	eventually 5 up_for 2000000
	commands=$(status .counters.control_commands) switches=$(status_field voluntary_ctxt_switches)
	ticks=$(cpu_ticks '') from=${EPOCHREALTIME/./}
	sleep "$IDLE_SECONDS"
	switches=$(($(status_field voluntary_ctxt_switches) - switches))
	us=$((${EPOCHREALTIME/./} - from))
	ticks=$(($(cpu_ticks '') - ticks))
	commands=$(($(status .counters.control_commands) - commands))
	echo "8 idle instances, $IDLE_SECONDS s:" \
		"$(awk -v n="$commands" 'BEGIN { printf "%.2f", n / 8 }') control commands for each instance," \
		"$switches voluntary context switches," \
		"CPU $(cpu_percent "$ticks" "$us"), VmRSS $(status_field VmRSS) KiB"
	stop
}

begin /tmp
run_sections 'server control trouble idle' "$@"
