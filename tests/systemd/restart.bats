#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# The supervisor goes and comes back below systemd, and jobs do not notice.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # those are of jq, or for another shell
# shellcheck disable=SC2153 # MAIN and its like are of lib.bash

load lib

setup() {
	prepare_node
}

teardown() {
	clean_node
}

# With a job of an ordinary user, attached.
begin() {
	start_unit
	AS=1000 hold_attached job
	eventually 5 attached job "$PID"
	remember job
}

@test "restart: daemons, server, job and lease stay" {
	begin
	run -0 systemctl restart "$UNIT"
	eventually 15 ready_anew "$MAIN"
	undisturbed job
	property_is NRestarts 0
}

@test "restart, again and again" {
	begin
	for _ in {1..5}; do
		main=$(property MainPID)
		systemctl restart "$UNIT"
		eventually 15 ready_anew "$main"
	done
	undisturbed job
}

@test "restart: with a new program in the place of the old" {
	begin
	cp /usr/sbin/mps-supervisord /usr/sbin/.new
	mv /usr/sbin/.new /usr/sbin/mps-supervisord
	run -0 systemctl restart "$UNIT"
	eventually 15 ready_anew "$MAIN"
	undisturbed job
}

@test "restart: the lease ends with its job afterwards, and another is granted" {
	begin
	systemctl restart "$UNIT"
	eventually 15 ready_anew "$MAIN"
	kill -KILL "$JOB"
	eventually 5 no_leases
	AS=1000 run -0 ctl lease -q -- cuda-client init
	[[ $output == "mps server=$SERVER "* ]]
}

@test "restart: who waits goes on waiting, and is granted" {
	begin
	AS=1001 background other mpsctl lease --name other -- cuda-client init
	other=$PID
	eventually 5 queued other
	systemctl restart "$UNIT"
	eventually 15 ready_anew "$MAIN"
	eventually 10 queued other
	kill -KILL "$JOB"
	exits_with 0 "$other"
}

@test "crash: systemd starts it again, and it adopts what is there" {
	begin
	kill -KILL "$MAIN"
	eventually 15 ready_anew "$MAIN"
	undisturbed job
	property_is NRestarts 1
}

@test "crash while it starts" {
	begin
	kill -KILL "$MAIN"
	eventually 15 main_is_other "$MAIN"
	second=$(property MainPID)
	kill -KILL "$second"
	eventually 15 ready_anew "$second"
	undisturbed job
}

main_is_other() {
	local pid
	pid=$(property MainPID)
	[[ $pid != 0 && $pid != "$1" ]]
}

@test "hang: the watchdog ends it, and its successor adopts what is there" {
	drop_in WatchdogSec=2 TimeoutAbortSec=1
	begin
	kill -STOP "$MAIN"
	eventually 20 ready_anew "$MAIN"
	eventually 5 journal_says 'Watchdog timeout'
	undisturbed job
	property_is NRestarts 1
}

@test "a supervisor that cannot start leaves jobs alone, and goes on when it can again" {
	begin
	echo 'placement = "sideways";' >"$CONF"
	run ! systemctl restart "$UNIT"
	run ! gone "$CONTROL"
	run ! gone "$JOB"
	configure_node
	systemctl reset-failed "$UNIT"
	start_unit
	undisturbed job
}

# From here on a program takes its place that crashes before it has adopted anything.
give_up() {
	drop_in RestartSec=0
	mv /usr/sbin/mps-supervisord /usr/sbin/.kept
	printf '%s\n' '#!/bin/sh' 'kill -KILL $$' >/usr/sbin/mps-supervisord
	chmod 0755 /usr/sbin/mps-supervisord
	kill -KILL "$MAIN"
	eventually 30 property_is ActiveState failed
	mv /usr/sbin/.kept /usr/sbin/mps-supervisord
}

@test "crash, again and again: systemd gives up, jobs go on, and a start takes over" {
	begin
	give_up
	run ! gone "$CONTROL"
	run ! gone "$JOB"
	systemctl reset-failed "$UNIT" "$SOCKET_UNIT"
	start_unit
	undisturbed job
}

@test "crash, again and again: what is left can be ended" {
	begin
	give_up
	systemctl kill "$UNIT"
	eventually 5 no_unit_pids
	systemctl reset-failed "$UNIT" "$SOCKET_UNIT"
	start_unit
	[[ $(control_pid) != "$CONTROL" ]]
}

@test "stop of a supervisor that hangs ends MPS all the same" {
	drop_in TimeoutStopSec=2
	begin
	kill -STOP "$MAIN"
	systemctl stop "$UNIT" || true
	property_is Result timeout
	gone "$MAIN"
	gone "$CONTROL"
	gone "$SERVER"
	no_unit_pids
	eventually 5 property_is ActiveState inactive "$SOCKET_UNIT"
	systemctl reset-failed
	start_unit
}

@test "stop after a restart and after a crash ends what was adopted" {
	begin
	systemctl restart "$UNIT"
	eventually 15 ready_anew "$MAIN"
	main=$(property MainPID)
	kill -KILL "$main"
	eventually 15 ready_anew "$main"
	run -0 systemctl stop "$UNIT"
	gone "$CONTROL"
	gone "$SERVER"
	no_unit_pids
	property_is Result success
}

@test "stop and start: MPS ends in between, held instances stay held" {
	begin
	systemctl stop "$UNIT"
	gone "$CONTROL"
	start_unit
	[[ $(control_pid) != "$CONTROL" ]]
	[[ $(leases_json '.leases | length') == 0 ]]
}

@test "systemd itself is executed anew, and its configuration read again: nothing happens" {
	begin
	systemctl daemon-reexec
	systemctl daemon-reload
	property_is MainPID "$MAIN"
	undisturbed job
	systemctl restart "$UNIT"
	eventually 15 ready_anew "$MAIN"
	undisturbed job
}
