#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# Before and between leases: paths that are too long, sockets that are lost, daemons that are late.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # those are of jq, or for another shell
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load cases

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
