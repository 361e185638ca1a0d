#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# The queue: caps are never passed, order is kept, waiters that die leave it.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # those are of jq

load lib

setup() {
	prepare
}

teardown() {
	clean_up
}

@test "--no-wait with all places taken: full, with the numbers" {
	configure 'max_clients = 4;'
	start_supervisor
	hold a -c 3
	hold b
	run -1 --separate-stderr ctl lease --no-wait
	echo "$stderr"
	[[ $stderr == *"4"*"4"* ]]
	run -1 ctl lease --no-wait -c 2
}

@test "a waiter that dies leaves the queue" {
	configure 'max_clients = 1;'
	start_supervisor
	hold first
	for name in a b c; do
		background "$name" mpsctl lease --name "$name" -- sh -c 'echo here; exec sleep 600'
		eventually 5 queued "$name"
	done
	[[ $(leases_json -c '[.leases[] | select(.state == "queued") | [.name, .position]] | sort') == \
		'[["a",1],["b",2],["c",3]]' ]]
	status_json '.instances[0].waiting == 3'
	kill -KILL "${STARTED[2]}"
	eventually 2 n_leases 2 queued
	[[ $(leases_json '.leases[] | select(.name == "c") | .position') == 2 ]]
	# Who waits is told that it has moved up.
	eventually 2 says "$WORK/c.err" 'position 2'
	kill -KILL "${STARTED[0]}"
	eventually 5 granted a
	queued c
	kill -KILL "${STARTED[1]}"
	eventually 5 granted c
	says "$WORK/c.out" here
	[[ ! -s $WORK/b.out ]]
}

@test "a large request in front is not passed by small ones" {
	configure 'max_clients = 4;'
	start_supervisor
	hold first -c 2
	background large mpsctl lease --name large -c 4 -- sleep 600
	eventually 5 queued large
	background small mpsctl lease --name small -- sleep 600
	eventually 5 queued small
	run -1 ctl lease --no-wait
	kill -KILL "${STARTED[0]}"
	eventually 5 granted large
	queued small
	kill -KILL "${STARTED[1]}"
	eventually 5 granted small
}

@test "a request for one device does not hold up another device" {
	gpus 2
	configure 'max_clients = 1;'
	start_supervisor
	hold first --gpu 0
	background waits mpsctl lease --name waits --gpu 0 -- sleep 600
	eventually 5 queued waits
	run -0 ctl lease --no-wait -- true
	queued waits
}

@test "exclusive: alone on the device, waits for all others" {
	start_supervisor
	hold a
	hold b
	background x mpsctl lease --name x -x -- sleep 600
	eventually 5 queued x
	kill -KILL "${STARTED[0]}"
	eventually 5 n_leases 1
	queued x
	kill -KILL "${STARTED[1]}"
	eventually 5 granted x
	run -1 ctl lease --no-wait
	kill -KILL "$PID"
	eventually 5 no_leases
	run -0 ctl lease --no-wait -- true
}

@test "memory is not promised twice; threads only when they may be" {
	start_supervisor
	hold a -m 100G -t 60
	run -1 --separate-stderr ctl lease --no-wait -m 60G
	echo "$stderr"
	[[ $stderr == *"full: 100GiB of 140.4GiB of memory reserved"* ]]
	run -0 ctl lease --no-wait -m 40G -t 60 -- true
	kill_started
	stop_supervisor
	configure 'oversubscribe_threads = false;'
	start_supervisor
	hold a -t 60
	run -1 ctl lease --no-wait -t 41
	run -0 ctl lease --no-wait -t 40 -- true
}

@test "placement: spread and pack" {
	gpus 2
	configure 'multi_user = true;'
	start_supervisor
	hold a
	hold b
	[[ $(leases_json '[.leases[].instance] | unique | length') == 2 ]]
	kill_started
	stop_supervisor
	configure 'multi_user = true;' 'placement = "pack";'
	start_supervisor
	hold a
	hold b
	[[ $(leases_json '[.leases[].instance] | unique | length') == 1 ]]
}

@test "waiting through a restart of the daemon" {
	configure 'max_clients = 1;'
	start_supervisor
	hold first
	background waits mpsctl lease --name waits -- cuda-client init
	eventually 5 queued waits
	waits=$PID
	knobs start_delay_ms=500
	kill -KILL "$(control_pid)"
	eventually 2 state_is starting
	kill -KILL "${STARTED[0]}"
	eventually 2 n_leases 0
	queued waits
	exits_with 0 "$waits"
	says "$WORK/waits.out" '^mps server='
}

@test "daemon and holder die in one moment: the next lease is on the new daemon" {
	configure 'max_clients = 1;'
	start_supervisor
	hold first
	background waits mpsctl lease --name waits -- cuda-client init
	eventually 5 queued waits
	waits=$PID control=$(control_pid)
	# The supervisor finds both deaths at once.
	kill -STOP "$SUPERVISOR"
	kill -KILL "${STARTED[0]}"
	kill -KILL "$control"
	eventually 2 gone "${STARTED[0]}"
	eventually 2 gone "$control"
	kill -CONT "$SUPERVISOR"
	exits_with 0 "$waits"
	says "$WORK/waits.out" '^mps server='
}
