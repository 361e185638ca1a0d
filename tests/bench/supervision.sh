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

: "${MPS_BUILD:=build}" "${STANDIN_DIR:=$MPS_BUILD/standin}"
: "${SERVER_KILLS:=50}" "${CONTROL_KILLS:=20}" "${TROUBLE_SECONDS:=60}" "${IDLE_SECONDS:=60}"
readonly FLOOD_BYTES_PER_S=833333 # 50 MB/min
work=$(mktemp -d /tmp/mps-bench.XXXXXX)
supervisor='' started=()

clean_up() {
	local pid
	for pid in "${started[@]}"; do
		kill -KILL "$pid" 2>/dev/null || true
	done
	stop
	rm -rf "$work"
}
trap clean_up EXIT
set -E
trap 'echo "supervision.sh: line $LINENO: $BASH_COMMAND" >&2' ERR

# ---------------------------------------------------------------- a supervisor

uuid_of() {
	printf 'GPU-be4c%04d-0000-4000-8000-000000000000' "$1"
}

# start N [LINE…]: over N GPUs, with these lines in its configuration; all are ready.
start() {
	local n=$1 i
	shift
	for ((i = 0; i < n; i++)); do
		printf '%d, %s, 00000000:%02d:00.0, Bench GPU, Default, Disabled, Enabled, 81920\n' \
			"$i" "$(uuid_of "$i")" $((i + 1))
	done >"$work/bin/standin.gpus"
	printf '%s\n' "runtime_directory = \"$work/run\";" "state_directory = \"$work/state\";" \
		"mps_control = \"$work/bin/nvidia-cuda-mps-control\";" \
		"nvidia_smi = \"$work/bin/nvidia-smi\";" "$@" >"$work/conf"
	"$MPS_BUILD/mps-supervisord" -c "$work/conf" 2>"$work/log" &
	supervisor=$!
	await 20 all_ready "$n"
}

stop() {
	[[ -n $supervisor ]] || return 0
	kill "$supervisor" 2>/dev/null || true
	wait "$supervisor" 2>/dev/null || true
	supervisor=''
}

# knobs LINE…
knobs() {
	printf '%s\n' "$@" >"$work/bin/knobs.new"
	mv "$work/bin/knobs.new" "$work/bin/standin.knobs"
}

await() {
	local limit=$1 end
	shift
	end=$((SECONDS + limit + 1))
	until "$@"; do
		if ((SECONDS >= end)); then
			echo "not within $limit s: $*" >&2
			return 1
		fi
		sleep 0.01
	done
}

status() {
	mpsctl status --json 2>/dev/null | jq -r "$@"
}

all_ready() {
	[[ $(status "(.instances | length) == $1 and all(.instances[]; .state == \"ready\")") == true ]]
}

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
	sed 's/^.*) //' "/proc/$supervisor/stat" | awk -v children="$1" \
		'{ print $12 + $13 + (children ? $14 + $15 : 0) }'
}

# cpu_percent TICKS MICROSECONDS
cpu_percent() {
	awk -v ticks="$1" -v us="$2" -v hz="$(getconf CLK_TCK)" 'BEGIN { printf "%.2f %%", ticks / hz / us * 1e8 }'
}

# status_field NAME: a number of /proc/PID/status
status_field() {
	awk -v name="$1:" '$1 == name { print $2 }' "/proc/$supervisor/status"
}

# ---------------------------------------------------------------- sections

# A holder on the first GPU that streams; its answers come on descriptor 9.
stream_holder() {
	local line
	rm -f "$work/answers"
	mkfifo "$work/answers"
	printf '%s\0' '{"method":"io.mps-supervisor.AcquireLease","parameters":{},"more":true}' >"$work/call"
	"$MPS_BUILD/rawsock" "$work/run/socket" 3600 <"$work/call" >"$work/answers" 2>/dev/null &
	started+=($!)
	exec 9<"$work/answers"
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
	: >"$work/times"
	start 1
	stream_holder
	for ((i = 0; i < SERVER_KILLS; i++)); do
		with_lease cuda-client init
		pid=$(server_pid)
		begin=${EPOCHREALTIME/./}
		kill -KILL "$pid"
		hear_interruption
		echo $((${EPOCHREALTIME/./} - begin)) >>"$work/times"
	done
	exec 9<&-
	stop
	statistics "kill -9 of a server until its holder is told" <"$work/times"
}

with_lease() {
	mpsctl lease -q -- "$@" >/dev/null
}

# The stand-in's control daemon alone: from its start until it answers.
control_alone() {
	local begin pid
	rm -rf "$work/alone"
	mkdir "$work/alone"
	begin=${EPOCHREALTIME/./}
	CUDA_MPS_PIPE_DIRECTORY=$work/alone CUDA_MPS_LOG_DIRECTORY=$work/alone CUDA_VISIBLE_DEVICES=$(uuid_of 0) \
		"$work/bin/nvidia-cuda-mps-control" -f >/dev/null 2>&1 &
	pid=$!
	until [[ $(CUDA_MPS_PIPE_DIRECTORY=$work/alone "$work/bin/nvidia-cuda-mps-control" \
		<<<get_default_active_thread_percentage 2>/dev/null) == 100.0 ]]; do :; done
	echo $((${EPOCHREALTIME/./} - begin))
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null || true
}

section_control() {
	local i pid begin generation
	: >"$work/times"
	: >"$work/alone.times"
	# Who was up for the window is started again at once: every death here is a first one.
	start 1 'restart = { window = 1.0; };'
	for ((i = 0; i < CONTROL_KILLS; i++)); do
		control_alone >>"$work/alone.times"
		with_lease cuda-client init
		await 5 up_for 1100000
		generation=$(status '.instances[0].generation')
		pid=$(status '.instances[0].control_pid')
		begin=${EPOCHREALTIME/./}
		kill -KILL "$pid"
		await 10 ready_since "$generation"
		echo $(($(status '.instances[0].since_usec') - begin)) >>"$work/times"
	done
	stop
	statistics "kill -9 of a control daemon until ready" <"$work/times"
	statistics "  of this the daemon's own start (measured alone, to its first answer)" <"$work/alone.times"
	paste <(sort -n "$work/times") <(sort -n "$work/alone.times") | awk '{ a[NR] = $1; b[NR] = $2 }
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
	: >"$work/times"
	knobs
	start 8 'health = { interval = 1.0; };' \
		'restart = { backoff_min = 0.1; backoff_max = 0.5; limit = 32; window = 1.0; };'
	# With a client it is not recycled.
	mpsctl lease -q --gpu 0 -- cuda-client hold >"$work/held" </dev/null &
	started+=($!)
	await 10 test -s "$work/held"
	knobs "[$(uuid_of 1)]" exit_after_ms=300 "[$(uuid_of 2)]" "flood_bytes_per_s=$FLOOD_BYTES_PER_S"
	# It sees the knob at its next start.
	kill -KILL "$(status '.instances[1].control_pid')" "$(status '.instances[2].control_pid')"
	await 10 in_state 2 ready
	stopped=$(status '.instances[0].control_pid')
	kill -STOP "$stopped"
	await 30 in_state 0 unresponsive
	generations=$(status '[.instances[].generation] | tostring')
	ticks=$(cpu_ticks '') from=${EPOCHREALTIME/./}
	sleep 5
	alone=$(cpu_percent $(($(cpu_ticks '') - ticks)) $((${EPOCHREALTIME/./} - from)))
	ticks=$(cpu_ticks '') all=$(cpu_ticks 1) from=${EPOCHREALTIME/./}
	end=$((from + TROUBLE_SECONDS * 1000000))
	for ((i = 3; ${EPOCHREALTIME/./} < end; i = i == 7 ? 3 : i + 1)); do
		begin=${EPOCHREALTIME/./}
		mpsctl lease -q --gpu "$i" -- true
		echo $((${EPOCHREALTIME/./} - begin)) >>"$work/times"
	done
	end=${EPOCHREALTIME/./}
	echo "three of eight in trouble: CPU of the supervisor $(cpu_percent $(($(cpu_ticks '') - ticks)) $((end - from)))," \
		"before the leases $alone, with the daemons it reaped $(cpu_percent $(($(cpu_ticks 1) - all)) $((end - from)))," \
		"VmRSS $(status_field VmRSS) KiB"
	echo "  states $(status '[.instances[].state] | join(" ")')"
	echo "  generations $generations, then $(status '[.instances[].generation] | tostring');" \
		"MPS wrote $(status .counters.log_lines) lines, logged $(wc -l <"$work/log")"
	kill -CONT "$stopped"
	stop
	knobs
	statistics "  mpsctl lease --gpu X -- true on the other five" <"$work/times"
}

section_idle() {
	local commands switches from us ticks
	start 8
	# Past what the start itself needs.
	await 5 up_for 2000000
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

# ---------------------------------------------------------------- all

mkdir "$work/bin"
cp "$STANDIN_DIR"/{nvidia-smi,nvidia-cuda-mps-control,nvidia-cuda-mps-server,cuda-client} "$work/bin/"
cp "$MPS_BUILD/mpsctl" "$work/bin/"
export PATH=$work/bin:$PATH MPS_SUPERVISOR_SOCKET=$work/run/socket
if (($# == 0)); then
	set -- server control trouble idle
fi
for section; do
	case $section in
	server | control | trouble | idle) "section_$section" ;;
	*)
		echo "supervision.sh: no section \"$section\": server, control, trouble, idle" >&2
		exit 2
		;;
	esac
done
