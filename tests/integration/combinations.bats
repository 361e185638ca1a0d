#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# Two things at once: drains, leases of several devices, changes of user, the end of the supervisor.
#
# shellcheck disable=SC2154 # output is bats'
# shellcheck disable=SC2016 # for jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load gangs

setup() {
	prepare 3
	quick
}

teardown() {
	clean_up
}

waits_on_no_gang() {
	status_is '[.instances[] | select(.kind == "gang")] | length == 1'
	queued "$1"
}

@test "a device is drained under a gang: nobody gets into that gang any more" {
	start_supervisor
	hold a --gpus 2 --gpu 0 --gpu 1
	a=$PID gang=$(gang_of a)
	background drain mpsctl drain 0
	drain=$PID
	eventually 5 says "$WORK/drain.err" waits
	background b mpsctl lease --name b --gpus 2 -- sleep 600
	eventually 5 waits_on_no_gang b
	kill -KILL "$a"
	eventually 5 granted b
	[[ $(gang_of b) != "$gang" ]]
	status_is --arg uuid "$GPU0" '[.instances[] | select(.kind == "gang") | .devices[].uuid] | index($uuid) == null'
	exits_with 0 "$drain"
}

@test "drain with a time under a gang that somebody else waits for: nothing is granted on what is stopped" {
	quick max_clients=1
	start_supervisor
	hold a --gpus 2 --gpu 0 --gpu 1
	background b mpsctl lease --name b --gpus 2 --gpu 0 --gpu 1 -- sleep 600
	eventually 5 queued b
	AS='' run -0 ctl drain 0 --timeout 0.2
	eventually 5 gone "$PID"
	says "$WORK/b.err" 'held by an administrator'
	eventually 5 n_gangs 0
	no_leases
}

@test "a gang's daemon cannot be started, and one failure is the limit: refused, and the supervisor lives" {
	quick limit=1
	start_supervisor
	mv "$BIN/nvidia-cuda-mps-control" "$BIN/away"
	run -125 ctl lease --gpus 2 -- true
	mv "$BIN/away" "$BIN/nvidia-cuda-mps-control"
	eventually 5 no_gangs
	ctl lease --gpus 2 -q -- cuda-client init
}

gang_is_stopping() {
	status_is '[.instances[] | select(.kind == "gang") | .state] == ["stopping"]'
}

@test "all devices of a gang are held, it is stopping, and the supervisor is killed: the next one ends it" {
	start_supervisor
	hold a --gpus 2 --gpu 0 --gpu 1
	a=$PID
	background drain mpsctl drain 0 1
	eventually 5 says "$WORK/drain.err" waits
	knobs ignore_quit=1
	kill -KILL "$a"
	eventually 5 gang_is_stopping
	kill_supervisor
	knobs
	launch_supervisor
	eventually 5 state_is ready 2
	eventually 5 n_gangs 0
	status_is '[.instances[:2][] | [.state, .held, .control_pid]] == [["stopped", true, null], ["stopped", true, null]]'
}

@test "an idle server that was adopted ends before another user is let in" {
	need_root
	start_supervisor
	AS=1000 ctl lease --gpu 0 -q -- cuda-client init
	eventually 2 has_server
	server=$(server_pid)
	kill_supervisor
	start_supervisor
	[[ $(server_pid) == "$server" ]]
	AS=1001 run -0 ctl lease --gpu 0 -q -- sh -c 'kill -0 "$1" 2>/dev/null || [ ! -e "/proc/$1" ] && echo gone; exec cuda-client init' sh "$server"
	[[ ${lines[0]} == gone && ${lines[1]} == "mps server="* ]]
}

@test "an idle server that was adopted ends after idle_server_stop" {
	quick idle_server_stop=0.5
	start_supervisor
	ctl lease --gpu 0 -q -- cuda-client init
	eventually 2 has_server
	server=$(server_pid)
	kill_supervisor
	start_supervisor
	eventually 5 gone "$server"
}
