#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# Daemons that do not end, do not answer, or talk without end.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # those are of jq, or for another shell
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load cases

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

@test "case 58: a flood of 50 MB/min: memory and log are bounded, the other grants at once" {
	knobs "[$GPU0]" flood_bytes_per_s=833333
	start=$(now_ms)
	begin
	hold_attached first --gpu 0
	eventually 8 counter_above log_lines 15000
	other_grants
	eventually 8 counter_above log_lines 25000
	other_grants
	resident=$(rss) n_logged=$(wc -l <"$LOG") seconds=$((($(now_ms) - start) / 1000 + 1))
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
	eventually 10 past "$from" $(($2 * 1000000))
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
	eventually 10 past "$from" 3000000
	[[ $(counter control_commands) == "$before" ]]
}
