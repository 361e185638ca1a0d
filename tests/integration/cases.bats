#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# Troubles that users of MPS have had, each provoked as it was met and held against what is wanted
# then. GPU 0 suffers; GPU 1 has a client all the while and must not notice.
#
# Where no GPU is needed NVIDIA's own control daemon of release 535 takes part as well. It starts no
# server without one, so nothing is started ahead and its holders have no clients.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # those are of jq, or for another shell
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load lib

setup() {
	prepare 2
	REAL=
	PROBE='cuda-client init'
	ANSWER='^mps server='
	quick
}

teardown() {
	clean_up
}

# ---------------------------------------------------------------- helpers

# quick [NAME=VALUE…]: a configuration with short times.
quick() {
	local setting
	local -A v=([start]=5.0 [query]=0.5 [stop]=2.0 [fault_grace]=30.0 [interval]=0.2 [idle_interval]=0.2
		[misses]=2 [wedge_grace]=60.0 [backoff_min]=0.05 [limit]=5 [window]=60.0 [failed_retry]=600.0 [prestart]=true)
	[[ -z $REAL ]] || v[prestart]=false
	for setting; do
		v[${setting%%=*}]=${setting#*=}
	done
	configure "prestart = ${v[prestart]};" \
		"timeouts = { start = ${v[start]}; query = ${v[query]}; stop = ${v[stop]}; fault_grace = ${v[fault_grace]}; };" \
		"health = { interval = ${v[interval]}; idle_interval = ${v[idle_interval]}; misses = ${v[misses]}; wedge_grace = ${v[wedge_grace]}; };" \
		"restart = { backoff_min = ${v[backoff_min]}; limit = ${v[limit]}; window = ${v[window]}; failed_retry = ${v[failed_retry]}; };"
}

# real [NAME=VALUE…]: from here on NVIDIA's own daemon.
real() {
	[[ -x $REAL_DIR/nvidia-cuda-mps-control ]] ||
		skip "no real control daemon in $REAL_DIR (tools/fetch-nvidia-mps)"
	cp "$REAL_DIR"/nvidia-cuda-mps-{control,server} "$BIN/"
	REAL=yes
	PROBE='echo get_default_active_thread_percentage | nvidia-cuda-mps-control'
	ANSWER='^100\.0$'
	quick "$@"
}

# Filters that must say true: jq 1.6 is content with no input at all.
status_is() {
	[[ $(status_json "$@") == true ]]
}

leases_are() {
	[[ $(leases_json "$@") == true ]]
}

both_ready() {
	status_is '.instances | map(.state) == ["ready", "ready"]'
}

# What GPU 0's troubles may not change of GPU 1.
other() {
	status_json -c '.instances[1] | [.state, .control_pid, .generation, .restarts, .servers, .clients, .deaths]'
}

# Both ready, GPU 1 in use.
begin() {
	start_supervisor
	eventually 15 both_ready
	if [[ -n $REAL ]]; then
		hold other --gpu 1
	else
		hold_attached other --gpu 1
		eventually 2 n_clients 1 1
	fi
	OTHER_PID=$PID
	OTHER=$(other)
}

other_untouched() {
	[[ $(other) == "$OTHER" ]]
	run ! says "$WORK/other.err" .
	run ! gone "$OTHER_PID"
}

# At once: nothing waits for GPU 0.
other_grants() {
	local start
	start=$(now_ms)
	ctl lease --gpu 1 --no-wait -- true
	(($(now_ms) - start < 1000))
}

# n_clients N [INDEX]: as MPS reports them.
n_clients() {
	[[ $(status_json ".instances[${2:-0}].clients | length") == "$1" ]]
}

# holder NAME: a lease on GPU 0 of a connection, which keeps every answer.
holder() {
	stream_lease "$1" "{\"name\":\"$1\",\"devices\":[\"$GPU0\"]}"
	eventually 10 answered "$1" '.[-1].parameters.what == "granted"'
}

# said NAME FILTER…: over its answers, and must say true.
said() {
	[[ $(answers "$@") == true ]]
}

# told NAME GENERATIONS: it was told of these losses, each once.
told() {
	[[ $(answers "$1" -c '[.[].parameters | select(.what == "interrupted") | .event.generation]') == "$2" ]]
}

directory_of() {
	leases_json --arg name "$1" '.leases[] | select(.name == $name) | .pipe_directory'
}

# Through a lease's directory the daemon of GPU 0 is there.
works_through() {
	[[ $(with env CUDA_MPS_PIPE_DIRECTORY="$1" CUDA_VISIBLE_DEVICES="$GPU0" timeout 5 sh -c "$PROBE" 2>/dev/null) =~ $ANSWER ]]
}

# client_through NAME DIRECTORY WORD…
client_through() {
	local name=$1 directory=$2
	shift 2
	background "$name" env CUDA_MPS_PIPE_DIRECTORY="$directory" CUDA_VISIBLE_DEVICES="$GPU0" cuda-client "$@"
	eventually 5 says "$WORK/$name.out" '^(mps server=|connected$)'
}

# refused_on_0 REGEX: who does not wait is refused at once and told why; nothing is granted.
refused_on_0() {
	local start
	start=$(now_ms)
	run -1 --separate-stderr ctl lease --gpu 0 --no-wait
	echo "$stderr"
	(($(now_ms) - start < 2000))
	[[ $stderr =~ $1 ]]
}

# ready_again GENERATION [INDEX]
ready_again() {
	[[ $(status_json ".instances[${2:-0}] | [.state, .generation] | tostring") == "[\"ready\",$1]" ]]
}

reason_is() {
	[[ $(status_json '.instances[0].reason') =~ $1 ]]
}

counter() {
	status_json ".counters.$1"
}

# counter_above NAME N
counter_above() {
	(($(counter "$1") > $2))
}

pipe_directory() {
	tr '\0' '\n' <"/proc/$(control_pid)/environ" | sed -n 's/^CUDA_MPS_PIPE_DIRECTORY=//p'
}

# ends_within SECONDS: the supervisor, after SIGTERM, whoever is attached; nothing is left.
ends_within() {
	local start took pid=$SUPERVISOR
	start=$(now_ms)
	kill -TERM "$pid"
	eventually 15 gone "$pid"
	took=$(($(now_ms) - start))
	echo "stopped after $took ms"
	wait "$pid"
	SUPERVISOR=
	((took < $1 * 1000))
	kill_started
	nothing_left
}

# ---------------------------------------------------------------- 9

# path_of N: a path below WORK of N bytes.
path_of() {
	printf "%s/%0$(($1 - ${#WORK} - 1))d" "$WORK" 0
}

too_long_a_path() {
	local limit
	RUN=$(path_of 120)
	quick
	for option in -n -v; do
		run -1 with timeout 5 mps-supervisord "$option" -c "$CONF"
		echo "$output"
		[[ $output == *"$CONF:1:"*"$RUN"* && $output == *"120 bytes"* ]]
	done
	[[ $output =~ at\ most\ ([0-9]+) ]]
	limit=${BASH_REMATCH[1]}
	[[ ! -e $RUN ]]
	none_of_ours
	# The limit is the one that is named: one byte less is one that works.
	RUN=$(path_of $((limit + 1)))
	quick
	run -1 with mps-supervisord -n -c "$CONF"
	RUN=$(path_of "$limit")
	quick
	SOCKET=$RUN/socket
	ENVIRONMENT+=("MPS_SUPERVISOR_SOCKET=$SOCKET")
	start_supervisor
	hold first --gpu 0
	eventually 5 works_through "$(directory_of first)"
}

@test "case 9: a runtime directory of 120 bytes is refused with path and limit, nothing is spawned" {
	knobs "dump=$WORK/dump"
	RUN=$(path_of 120)
	quick
	run -1 with timeout 5 mps-supervisord -c "$CONF"
	[[ ! -e $WORK/dump ]]
	too_long_a_path
	# What the absence of the file proves.
	says "$WORK/dump" '^== control'
}

@test "case 9: the same with the real daemon" {
	real
	too_long_a_path
}

# ---------------------------------------------------------------- 11

# socket_lost REASON COMMAND…: after the command GPU 0 leaves ready at once and comes back.
socket_lost() {
	local reason=$1 old
	shift
	quick "${SLOW_STOP[@]}"
	begin
	holder first
	hold second --gpu 0
	if [[ -z $REAL ]]; then
		# Somebody attached makes the orderly end last, so that it can be looked at.
		hold_attached third --gpu 0
		third=$PID
		eventually 2 n_clients 1
	else
		# Nobody attaches to the real one here. It cannot quit while it is stopped.
		kill -STOP "$(control_pid)"
	fi
	old=$(control_pid)
	"$@"
	eventually 1 state_is stopping
	reason_is "^$reason$"
	refused_on_0 "$reason"
	background waiter mpsctl lease --gpu 0 --name waiter -- true
	waiter=$PID
	eventually 2 queued waiter
	other_grants
	[[ -z $REAL ]] || kill -CONT "$old"
	eventually 10 ready_again 2
	[[ $(control_pid) != "$old" ]]
	exits_with 0 "$waiter"
	eventually 2 told first '[2]'
	answers first '.[-1].parameters.event.message' | grep -q "$reason"
	eventually 2 n_lines 1 "$WORK/second.err" "$reason"
	if [[ -z $REAL ]]; then
		exits_with 10 "$third"
		eventually 2 n_lines 1 "$WORK/third.err" "$reason"
	fi
	eventually 5 works_through "$(directory_of first)"
	eventually 5 works_through "$(directory_of second)"
	status_is --arg reason "$reason" '.instances[0].deaths | length == 1 and (.[0].reason | contains($reason))'
	log_says "$reason: "
	n_lines 1 "$WORK/second.err" .
	other_untouched
}

remove_control() {
	rm "$(pipe_directory)/control"
}

replace_control() {
	: >"$WORK/run/foreign"
	mv "$WORK/run/foreign" "$(pipe_directory)/control"
}

SLOW_STOP=(stop=3.0)

@test "case 11: the control socket is removed" {
	socket_lost 'control socket missing' remove_control
}

@test "case 11: the control socket is replaced" {
	socket_lost 'control socket replaced' replace_control
}

@test "case 11: the control socket of the real daemon is removed" {
	real
	socket_lost 'control socket missing' remove_control
}

@test "case 11: the control socket of the real daemon is replaced" {
	real
	socket_lost 'control socket replaced' replace_control
}

# harmless FILE…: what the daemon can do without.
harmless() {
	local old file directory commands
	begin
	holder first
	old=$(control_pid)
	directory=$(pipe_directory)
	for file; do
		[[ -e $directory/$file ]]
		rm "$directory/$file"
		eventually 2 log_says "removed $file from $directory"
	done
	# Through two health checks and more.
	commands=$(counter control_commands)
	eventually 5 counter_above control_commands $((commands + 6))
	ready_again 1
	[[ $(control_pid) == "$old" ]]
	told first '[]'
	eventually 5 works_through "$(directory_of first)"
	n_lines 2 "$LOG" 'started control daemon'
	other_untouched
}

@test "case 11: pid file, log and lock are removed: noted, nothing else" {
	harmless nvidia-cuda-mps-control.pid log control_lock
}

@test "case 11: log and lock of the real daemon are removed: noted, nothing else" {
	real
	harmless log control_lock
}

# ---------------------------------------------------------------- 14

# late_start MS: a lease that was asked for at once is granted after so long, never before.
late_start() {
	local start granted
	start=$(now_ms)
	launch_supervisor
	eventually 5 test -S "$SOCKET"
	background early mpsctl lease --gpu 0 --name early -- sh -c "date +%s%3N; $PROBE"
	early=$PID
	eventually 2 queued early
	leases_json '.leases[0].reason' | grep starting
	state_is starting
	refused_on_0 starting
	exits_with 0 "$early"
	cat "$WORK/early.out"
	granted=$(head -n 1 "$WORK/early.out")
	((granted - start >= $1))
	((granted - start < $1 + 3000))
	[[ $(tail -n 1 "$WORK/early.out") =~ $ANSWER ]]
}

@test "case 14: sockets late, pid file at once: a lease asked at once comes after the delay" {
	quick idle_interval=60.0
	knobs start_delay_ms=1200
	late_start 1200
}

@test "case 14: sockets at once, answers late: the same" {
	quick idle_interval=60.0
	knobs answer_delay_ms=1200
	late_start 1200
}

# A real daemon that takes its time, and finds the socket of the last one.
@test "case 14: the real daemon is late behind a stale socket: the same" {
	real idle_interval=60.0
	mkdir "$WORK/real"
	mv "$BIN"/nvidia-cuda-mps-control "$WORK/real/"
	printf '%s\n' '#!/bin/sh' 'case $1 in' "-f) if ln $WORK/stale \$CUDA_MPS_PIPE_DIRECTORY/control 2>/dev/null; then sleep 1.2; fi ;;" 'esac' \
		"exec $WORK/real/nvidia-cuda-mps-control \"\$@\"" >"$BIN/nvidia-cuda-mps-control"
	chmod +x "$BIN/nvidia-cuda-mps-control"
	start_supervisor
	hold first --gpu 0
	eventually 5 works_through "$(directory_of first)"
	directory=$(pipe_directory)
	ln "$directory/control" "$WORK/stale"
	start=$(now_ms)
	kill -KILL "$(control_pid)"
	eventually 2 state_is starting
	eventually 1 test -S "$directory/control"
	refused_on_0 starting
	run -0 ctl lease --gpu 0 -q -- sh -c "$PROBE"
	echo "$output after $(($(now_ms) - start)) ms"
	(($(now_ms) - start >= 1200))
	[[ $output =~ $ANSWER ]]
}

@test "case 14: a delay beyond timeouts.start: not ready after so many seconds, for all who ask" {
	quick start=0.5 limit=2
	knobs "[$GPU0]" start_delay_ms=30000
	launch_supervisor
	eventually 5 test -S "$SOCKET"
	background early mpsctl lease --gpu 0 --name early -- true
	early=$PID
	eventually 2 queued early
	exits_with 125 "$early"
	cat "$WORK/early.err"
	says "$WORK/early.err" "$GPU0.*failed.*not ready after 0.5 s"
	state_is failed
	refused_on_0 'not ready after 0\.5 s'
	status_is '.instances[0] | .control_pid == null and (.deaths | length) == 2'
	eventually 2 state_is ready 1
	ctl lease --gpu 1 --no-wait -- true
}

# ---------------------------------------------------------------- 17

# fails_and_recovers REASON: GPU 0's servers are out of order by knob, and a client asks for one.
fails_and_recovers() {
	local control start starts lines
	begin
	control=$(control_pid)
	holder first
	background waiter mpsctl lease --gpu 0 --name waiter -x -- true
	waiter=$PID
	eventually 2 queued waiter
	start=$(now_ms)
	background job env CUDA_MPS_PIPE_DIRECTORY="$(directory_of first)" CUDA_VISIBLE_DEVICES="$GPU0" \
		sh -c "until [ -e $WORK/enough ]; do cuda-client hold 0.3; done"
	job=$PID
	eventually 10 state_is failed
	echo "failed after $(($(now_ms) - start)) ms: $(status_json '.instances[0].reason')"
	reason_is "$1"
	# Who waits is refused too, and so is whoever asks.
	exits_with 125 "$waiter"
	says "$WORK/waiter.err" "failed: .*$1"
	refused_on_0 "failed: .*$1"
	call AcquireLease "{\"devices\":[\"$GPU0\"]}" >"$WORK/refusal"
	[[ $(jq --arg reason "$1" '.error == "io.mps-supervisor.NotReady" and .parameters.state == "failed"
		and (.parameters.reason | test($reason))' "$WORK/refusal") == true ]]
	# Nothing goes round any more.
	status_is '.instances[0] | .control_pid == null and .servers == []'
	gone "$control"
	starts=$(counter server_starts) lines=$(grep -c "$GPU0" "$LOG")
	((starts < 40 && lines < 600))
	eventually 3 later_than "$(status_json '.instances[0].since_usec')" 1
	[[ $(counter server_starts) == "$starts" && $(grep -c "$GPU0" "$LOG") == "$lines" ]]
	other_grants
	other_untouched
	# The cause is gone; the retry comes by itself.
	: >"$WORK/enough"
	knobs
	exits_with 0 "$job"
	eventually 6 state_is ready
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	[[ $output == "mps server="* ]]
	eventually 5 works_through "$(directory_of first)"
	other_untouched
}

# later_than USEC SECONDS: so long after.
later_than() {
	((${EPOCHREALTIME/./} > $1 + $2 * 1000000))
}

@test "case 17: the server ends with status 1 after 50 ms, again and again" {
	quick failed_retry=3.0 prestart=false
	knobs "[$GPU0]" server_exit_after_ms=50 server_tries=0
	fails_and_recovers 'end again and again'
}

@test "case 17: the server cannot start and says why" {
	quick failed_retry=3.0 prestart=false
	knobs "[$GPU0]" 'server_fail_reason=no CUDA-capable device is detected' server_tries=0
	fails_and_recovers 'no CUDA-capable device is detected'
}

@test "case 17: the server becomes ready and ends with status 1, again and again" {
	quick failed_retry=3.0 prestart=false
	knobs "[$GPU0]" server_start_ms=20 server_exit_after_ms=200
	fails_and_recovers 'end again and again'
}

# ---------------------------------------------------------------- 24

# control_killed: twice; each time all holders of GPU 0 are told once.
control_killed() {
	local control i
	begin
	holder first
	hold second --gpu 0
	for i in 2 3; do
		control=$(control_pid)
		kill -KILL "$control"
		eventually 10 ready_again "$i"
		[[ $(control_pid) != "$control" ]]
		eventually 5 works_through "$(directory_of first)"
		eventually 5 works_through "$(directory_of second)"
	done
	told first '[2,3]'
	said first '[.[].parameters | select(.what == "interrupted")]
		| all(.event.cause == "control" and .lease.state == "granted" and (.event.hit_leases | type) == "array")'
	eventually 2 n_lines 2 "$WORK/second.err" "interrupted: control daemon [0-9]+ .*signal 9"
	n_lines 2 "$WORK/second.err" .
	status_is '.instances[0] | .restarts == 2 and (.deaths | map(.what)) == ["control", "control"]
		and all(.deaths[]; .status | test("9"))'
	leases_are --arg gpu "$GPU0" '[.leases[] | select(.instance == $gpu) | .generation] == [3, 3]'
	other_grants
	other_untouched
}

@test "case 24: kill -9 of the control daemon: a new pair, the same leases, each holder told once" {
	control_killed
}

@test "case 24: kill -9 of the real control daemon: the same" {
	real
	control_killed
}

@test "case 24: the server survives and bars the next daemon: it is ended, a namesake is not" {
	knobs "[$GPU0]" server_survives_parent=1 "refuse_start_while_server_lives=$WORK/server.pid"
	mkdir "$WORK/other"
	cp "$(command -v sleep)" "$WORK/other/nvidia-cuda-mps-server"
	background namesake setsid "$WORK/other/nvidia-cuda-mps-server" 600
	namesake=$PID
	begin
	hold_attached first --gpu 0
	eventually 2 n_clients 1
	server=$(server_pid)
	kill -KILL "$(control_pid)"
	eventually 10 ready_again 2
	gone "$server"
	run ! gone "$namesake"
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	[[ $output == "mps server="* ]]
	eventually 2 n_lines 1 "$WORK/first.err" interrupted
	# One spawn was enough: the new daemon was not started against the old server.
	n_lines 3 "$LOG" 'started control daemon'
	other_untouched
}

# ---------------------------------------------------------------- 25

@test "case 25: the server is killed: all told once with who was hit, a new generation, the daemon stays" {
	begin
	holder first
	background second mpsctl lease --gpu 0 --name second -- cuda-client stubborn
	second=$PID
	eventually 5 says "$WORK/second.out" '^mps server='
	hold_attached third --gpu 0
	third=$PID
	eventually 2 n_clients 2
	control=$(control_pid) server=$(server_pid)
	# All leases, with or without a client: the generation is lost to all.
	hit=$(leases_json --arg gpu "$GPU0" -c '[.leases[] | select(.instance == $gpu) | .id] | sort')
	kill -KILL "$server"
	start=$(now_ms)
	eventually 5 told first '[2]'
	eventually 5 n_lines 1 "$WORK/second.err" 'interrupted: MPS server'
	echo "told after $(($(now_ms) - start)) ms"
	answers first -c '.[-1].parameters.event.hit_leases | sort' | grep -xF "$hit"
	said first --argjson pids "[$second,$third]" \
		'.[-1].parameters.event | .cause == "server" and (.hit_pids | sort) == ($pids | sort)'
	# Its job died of the loss, and is told all the same.
	exits_with 10 "$third"
	eventually 2 n_lines 1 "$WORK/third.err" 'interrupted: MPS server'
	ready_again 2
	[[ $(control_pid) == "$control" ]]
	status_is '.instances[0] | .restarts == 0 and .deaths[0].what == "server"'
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	[[ $output == "mps server="* && $output != "mps server=$server "* ]]
	# The old leases go on, to the next loss.
	eventually 2 has_server
	kill -KILL "$(server_pid)"
	eventually 5 told first '[2,3]'
	eventually 5 n_lines 2 "$WORK/second.err" interrupted
	n_lines 1 "$WORK/third.err" .
	other_untouched
}

@test "case 25: jobs that die at once of the loss are told, each in one line" {
	begin
	jobs=()
	for i in {1..5}; do
		hold_attached "job$i" --gpu 0
		jobs+=("$PID")
	done
	eventually 2 n_clients 5
	kill -KILL "$(server_pid)"
	for pid in "${jobs[@]}"; do
		exits_with 10 "$pid"
	done
	for i in {1..5}; do
		eventually 2 n_lines 1 "$WORK/job$i.err" 'interrupted: MPS server'
		n_lines 1 "$WORK/job$i.err" .
	done
	ready_again 2
	other_untouched
}

# However many generations two deaths at once cost: who holds a lease hears of each once.
@test "cases 24 and 25: control and server are killed together" {
	begin
	holder first
	hold second --gpu 0
	for i in 1 2 3; do
		old=$(generation)
		ctl lease --gpu 0 -q -- cuda-client init
		eventually 2 has_server
		victims=("$(server_pid)" "$(control_pid)")
		((i % 2)) || victims=("${victims[1]}" "${victims[0]}")
		kill -KILL "${victims[@]}"
		eventually 10 newer_and_ready "$old"
	done
	last=$(generation)
	((last >= 4))
	eventually 2 told first "$(jq -nc --argjson last "$last" '[range(2; $last + 1)]')"
	eventually 2 n_lines $((last - 1)) "$WORK/second.err" interrupted
	other_untouched
}

newer_and_ready() {
	(($(generation) > $1)) && state_is ready
}

# ---------------------------------------------------------------- 31

in_state() {
	[[ $(status_json '.instances[0].state') == "$1" ]] && reason_is "$2"
}

# three_and_a_fault KIND: leases a and b stay attached after it, c breaks the GPU and leaves; d has no client.
three_and_a_fault() {
	background a mpsctl lease --gpu 0 --name a -- cuda-client stubborn
	A=$PID
	eventually 5 says "$WORK/a.out" '^mps server='
	holder b
	client_through b_client "$(directory_of b)" stubborn
	B=$PID
	holder d
	background c mpsctl lease --gpu 0 --name c -- cuda-client "$1" 500
	C=$PID
	eventually 5 says "$WORK/c.out" '^mps server='
	HIT=$(leases_json -c '[.leases[] | select(.name == "a" or .name == "b" or .name == "c") | .id] | sort')
	exits_with 10 "$C"
	eventually 3 state_is faulted
}

# Both orders: the table's is not said.
both_pids() {
	reason_is "(^|[^0-9])$1([^0-9]|$)" && reason_is "(^|[^0-9])$2([^0-9]|$)"
}

@test "case 31: a fault by one of three: who was hit is told, who holds on is named, then all is well" {
	begin
	control=$(control_pid)
	three_and_a_fault fault
	eventually 2 both_pids "$A" "$B"
	run ! reason_is "(^|[^0-9])$C([^0-9]|$)"
	refused_on_0 "faulted: .*pids ($A, $B|$B, $A)"
	background waiter mpsctl lease --gpu 0 --name waiter -- cuda-client init
	waiter=$PID
	eventually 2 queued waiter
	other_grants
	# Who was hit.
	status_is --argjson hit "$HIT" --argjson pids "[$A,$B,$C]" '.instances[0].deaths | length == 1 and (.[0]
		| .what == "fault" and (.hit_leases | sort) == $hit and (.hit_pids | sort) == ($pids | sort))'
	told b '[2]'
	said b --argjson hit "$HIT" --argjson pids "[$A,$B,$C]" '.[-1].parameters.event
		| .cause == "fault" and (.hit_leases | sort) == $hit and (.hit_pids | sort) == ($pids | sort)'
	eventually 2 n_lines 1 "$WORK/a.err" 'interrupted: a GPU fault .*also hit: '
	eventually 2 n_lines 1 "$WORK/c.err" 'interrupted: a GPU fault .*also hit: '
	n_lines 1 "$WORK/c.err" .
	# One leaves, the other is still waited for.
	kill -KILL "$A"
	eventually 2 in_state faulted "pids $B to leave"
	queued waiter
	kill -KILL "$B"
	eventually 3 ready_again 2
	exits_with 0 "$waiter"
	says "$WORK/waiter.out" '^mps server='
	[[ $(control_pid) == "$control" ]]
	# Without a client nothing was lost.
	told d '[]'
	eventually 5 works_through "$(directory_of d)"
	eventually 5 works_through "$(directory_of b)"
	status_is '.instances[0] | .restarts == 0 and (.suspects | map([.name, .present, .faults]) | sort)
		== [["a", 1, 1], ["b", 1, 1], ["c", 1, 1]]'
	other_untouched
}

@test "case 31: who is there at every fault stands out" {
	begin
	for i in 1 2 3; do
		background "neighbour$i" mpsctl lease --gpu 0 --name "neighbour$i" -- cuda-client hold 600
		neighbour=$PID
		eventually 5 says "$WORK/neighbour$i.out" '^mps server='
		background "bad$i" mpsctl lease --gpu 0 --name bad -- cuda-client trap 200
		exits_with 10 "$PID"
		exits_with 10 "$neighbour"
		says "$WORK/neighbour$i.out" '^error 719$'
		eventually 3 ready_again $((i + 1))
	done
	status_is '.instances[0].suspects | map(select(.name == "bad")) == [{uid: .[0].uid, name: "bad", present: 3, faults: 3}]
		and (map(select(.present == 1)) | length) == 3'
	other_untouched
}

@test "case 31: fault_grace is over: terminate_client ends a holdout's hold, the daemon stays" {
	quick fault_grace=0.5
	begin
	control=$(control_pid)
	three_and_a_fault fault
	start=$(now_ms)
	eventually 5 ready_again 2
	echo "ready again after $(($(now_ms) - start)) ms"
	log_says "client $A holds .*terminate_client"
	log_says "client $B holds .*terminate_client"
	eventually 2 says "$WORK/a.out" '^error 810$'
	[[ $(control_pid) == "$control" ]]
	run ! log_says SIGKILL
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	[[ $output == "mps server="* ]]
	told b '[2]'
	told d '[]'
	other_untouched
}

# terminate_client is without effect while every command is answered FAULT.
@test "case 31: a holdout that MPS cannot end: SIGTERM, SIGKILL, then MPS recovers and the daemon stays" {
	quick fault_grace=1.0
	begin
	control=$(control_pid)
	background a mpsctl lease --gpu 0 --name a -- cuda-client stubborn
	a=$PID
	eventually 5 says "$WORK/a.out" '^mps server='
	background left mpsctl lease --gpu 0 --name left -- sh -c 'cuda-client ignore-term hold 600; exec sleep 600'
	left=$PID
	eventually 5 says "$WORK/left.out" '^mps server='
	holder d
	background c mpsctl lease --gpu 0 --name c -- cuda-client fault 300
	c=$PID
	eventually 2 in_state faulted "pids .*$a"
	knobs "[$GPU0]" odd_output=FAULT
	exits_with 10 "$c"
	eventually 2 in_state faulted "pids $a to leave"
	eventually 8 gone "$a"
	log_says "client $a .*terminate_client"
	log_says "client $a .*SIGTERM"
	log_says "client $a .*SIGKILL"
	knobs
	eventually 5 ready_again 2
	[[ $(control_pid) == "$control" ]]
	# Only clients are signalled, not the job that has left the server.
	run ! gone "$left"
	n_lines 1 "$WORK/left.err" interrupted
	told d '[]'
	other_untouched
}

# ---------------------------------------------------------------- 44

@test "case 44: quit is never answered, SIGTERM ignored, a client attached: in time, and who blocked it" {
	quick stop=2.0
	knobs "[$GPU0]" ignore_quit=1 ignore_term=1
	begin
	background blocker mpsctl lease --gpu 0 -- cuda-client stubborn
	blocker=$PID
	eventually 5 says "$WORK/blocker.out" '^mps server='
	eventually 2 n_clients 1
	pair=("$(control_pid)" "$(server_pid)")
	ends_within 3
	gone "${pair[0]}"
	gone "${pair[1]}"
	log_says "client $blocker did not let"
}

@test "case 44: the control daemon is stopped by a signal: in time" {
	quick stop=2.0
	begin
	hold_attached first --gpu 0
	kill -STOP "$(control_pid)"
	ends_within 3
}

@test "case 44: the real control daemon is stopped by a signal: in time" {
	real stop=2.0
	begin
	hold first --gpu 0
	control=$(control_pid)
	kill -STOP "$control"
	ends_within 3
	gone "$control"
}

# ---------------------------------------------------------------- 45

# until_unresponsive: meanwhile status answers in less than 100 ms; one slow answer may be the machine's.
until_unresponsive() {
	local start end slow=0 n=0
	end=$(($(now_ms) + 8000))
	until state_is unresponsive; do
		start=$(now_ms)
		ctl status --json >/dev/null
		(($(now_ms) - start < 100)) || slow=$((slow + 1))
		n=$((n + 1))
		((start < end))
	done
	echo "$n times status, $slow slow"
	((slow <= 1))
	reason_is '^does not answer commands'
	refused_on_0 'unresponsive: does not answer'
}

# goes_on PROCESS: it is stopped while somebody holds GPU 0; continued it is the same again.
goes_on() {
	local control
	control=$(control_pid)
	kill -STOP "$1"
	other_grants
	until_unresponsive
	other_grants
	background waiter mpsctl lease --gpu 0 --name waiter -- true
	waiter=$PID
	eventually 2 queued waiter
	kill -CONT "$1"
	eventually 3 ready_again 1
	exits_with 0 "$waiter"
	[[ $(control_pid) == "$control" ]]
	status_is '.instances[0] | .deaths == [] and .restarts == 0'
	other_untouched
}

@test "case 45: SIGSTOP of control, a client attached: unresponsive, nobody is delayed; CONT: ready, the same" {
	begin
	holder first
	hold_attached second --gpu 0
	second=$PID
	eventually 2 n_clients 1
	goes_on "$(control_pid)"
	told first '[]'
	run ! gone "$second"
	run ! says "$WORK/second.out" error
	run ! says "$WORK/second.err" .
}

@test "case 45: SIGSTOP of the server, a client attached: the same" {
	begin
	holder first
	hold_attached second --gpu 0
	second=$PID
	eventually 2 n_clients 1
	server=$(server_pid)
	goes_on "$server"
	[[ $(server_pid) == "$server" ]]
	told first '[]'
	run ! gone "$second"
	run ! says "$WORK/second.out" error
	run ! says "$WORK/second.err" .
}

@test "case 45: SIGSTOP of the real control daemon, somebody holds a lease: the same" {
	real
	begin
	holder first
	goes_on "$(control_pid)"
	told first '[]'
}

# is_recycled PROCESS CAUSE: stopped for good it is replaced.
is_recycled() {
	local control
	control=$(control_pid)
	kill -STOP "$1"
	eventually 8 gone "$control"
	eventually 5 ready_again 2
	gone "$1"
	status_is '.instances[0] | .restarts == 1 and .deaths[0].what == "wedge"'
	other_grants
	other_untouched
}

@test "case 45: SIGSTOP of control, nobody attached, no lease: recycled" {
	begin
	ctl lease --gpu 0 -q -- cuda-client init
	eventually 2 n_clients 0
	is_recycled "$(control_pid)"
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	[[ $output == "mps server="* ]]
}

# Whoever has a lease may be about to attach: wedge_grace counts for it too.
@test "case 45: SIGSTOP of control, a lease without a client: recycled after wedge_grace, the holder told" {
	quick wedge_grace=1.0
	begin
	holder first
	is_recycled "$(control_pid)"
	eventually 2 told first '[2]'
	said first '.[-1].parameters.event.cause == "wedge"'
	eventually 5 works_through "$(directory_of first)"
}

@test "case 45: SIGSTOP of the server, nobody attached: recycled" {
	begin
	ctl lease --gpu 0 -q -- cuda-client init
	eventually 2 has_server
	eventually 2 n_clients 0
	is_recycled "$(server_pid)"
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	[[ $output == "mps server="* ]]
}

@test "case 45: SIGSTOP of the real control daemon without leases: recycled" {
	real
	begin
	is_recycled "$(control_pid)"
}

# somebody_silent: SILENT makes GPU 0's daemon deaf through the lease of first, and is named.
somebody_silent() {
	client_through silent "$(directory_of first)" silent
	SILENT=$PID
	until_unresponsive
	reason_is "process $SILENT \(cuda-client\)"
}

@test "case 45: a silent connection: named; the client works on; ready when it goes" {
	begin
	holder first
	hold_attached second --gpu 0
	second=$PID
	eventually 2 n_clients 1
	control=$(control_pid)
	somebody_silent
	other_grants
	run ! gone "$second"
	kill -KILL "$SILENT"
	eventually 3 ready_again 1
	[[ $(control_pid) == "$control" ]]
	run ! gone "$second"
	run ! says "$WORK/second.out" error
	run ! says "$WORK/second.err" .
	told first '[]'
	other_untouched
}

@test "case 45: a silent connection to the real daemon: named; ready when it goes" {
	real
	begin
	holder first
	control=$(control_pid)
	somebody_silent
	other_grants
	kill -KILL "$SILENT"
	eventually 3 ready_again 1
	[[ $(control_pid) == "$control" ]]
	told first '[]'
	other_untouched
}

@test "case 45: a silent connection beyond wedge_grace: recycled, the cause is told" {
	quick wedge_grace=1.5
	begin
	holder first
	hold_attached second --gpu 0
	second=$PID
	eventually 2 n_clients 1
	control=$(control_pid)
	somebody_silent
	run ! gone "$control"
	eventually 6 ready_again 2
	gone "$control"
	status_is '.instances[0].deaths | length == 1 and .[0].what == "wedge"'
	told first '[2]'
	said first --argjson pid "$second" '.[-1].parameters.event | .cause == "wedge" and .hit_pids == [$pid]'
	exits_with 10 "$second"
	eventually 2 n_lines 1 "$WORK/second.err" 'interrupted: .*does not answer'
	n_lines 1 "$WORK/second.err" .
	eventually 5 works_through "$(directory_of first)"
	other_untouched
}

# ---------------------------------------------------------------- 58

rss_kib() {
	awk '/^VmRSS:/ { print $2 }' "/proc/$SUPERVISOR/status"
}

@test "case 58: a flood of 50 MB/min: memory and log are bounded, the other grants at once" {
	knobs "[$GPU0]" flood_bytes_per_s=833333
	start=$(now_ms)
	begin
	hold_attached first --gpu 0
	eventually 8 counter_above log_lines 15000
	other_grants
	eventually 8 counter_above log_lines 25000
	other_grants
	resident=$(rss_kib) n_logged=$(wc -l <"$LOG") seconds=$((($(now_ms) - start) / 1000 + 1))
	echo "RSS $resident KiB, $n_logged lines logged of $(counter log_lines) in $seconds s"
	! memory_is_real || ((resident < 16384))
	((n_logged < 300 * seconds))
	eventually 3 log_says '[0-9]+ lines .*were not logged'
	# The flooding one serves as well, and its last words are kept.
	ctl lease --gpu 0 -- cuda-client init
	ready_again 1
	kill -KILL "$(control_pid)"
	eventually 10 ready_again 2
	status_is '.instances[0].deaths[0].reason | split("\n") | length > 10'
	other_untouched
}

# idle_commands INTERVAL PERIODS: at most one command for each instance and interval, and not none.
idle_commands() {
	local before from n most
	start_supervisor
	before=$(counter control_commands)
	from=${EPOCHREALTIME/./}
	eventually 10 later_than "$from" "$2"
	n=$(($(counter control_commands) - before))
	most=$((2 * ((${EPOCHREALTIME/./} - from) / 1000000 + 1)))
	echo "$n commands to two idle instances in $2 s, at most $most"
	((n >= 2 && n <= most))
	all_ready
}

@test "case 58: idle: at most one command for each instance and idle_interval" {
	quick idle_interval=1.0
	idle_commands 1 3
}

@test "case 58: the real daemon idle: the same" {
	real idle_interval=1.0
	idle_commands 1 3
}

@test "case 58: with the times of the default configuration an idle device hears nothing for seconds" {
	configure
	start_supervisor
	before=$(counter control_commands)
	from=${EPOCHREALTIME/./}
	eventually 10 later_than "$from" 3
	[[ $(counter control_commands) == "$before" ]]
}
