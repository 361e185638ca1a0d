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

all_done() {
	[[ $(cat "$WORK"/job*.out | grep -c '^done$') == 40 ]]
}

monitoring() {
	ctl lease -- true && [[ -s $WORK/monitor.out ]]
}

@test "case 37: cap 4, 40 requesters: never more than 4, all served, in order" {
	local i
	configure 'max_clients = 4;'
	start_supervisor
	background monitor mpsctl monitor --json
	eventually 5 monitoring
	eventually 5 no_leases
	# Each sees, when it has its lease, all the leases there are.
	cat >"$WORK/job" <<-'END'
		mpsctl leases --json >"$1"
		read -rt "0.0$2" <> <(:)
		echo done
	END
	for i in {1..40}; do
		background "job$i" mpsctl lease -q -- bash "$WORK/job" "$WORK/seen.$i" "$((RANDOM % 9 + 1))"
	done
	eventually 40 all_done
	for i in "${STARTED[@]:1}"; do
		exits_with 0 "$i"
	done
	eventually 5 no_leases
	# Never more than four, as the jobs saw it,
	jq -se 'all(.[]; [.leases[] | select(.state == "granted")] | length <= 4 and length >= 1)' "$WORK"/seen.*
	# and as it happened, one event after the other.
	# (Of the lease that showed that the monitor listens it may have seen the end alone.)
	jq -se 'map(select(.lease != null)) | (map(select(.kind == "lease-granted") | .lease)) as $known
		| map(select(.lease as $l | $known | index($l))) | reduce .[] as $e ({now: 0, most: 0};
			if $e.kind == "lease-granted" then .now += 1
			elif $e.kind == "lease-ended" then .now -= 1 else . end
			| .most = ([.most, .now] | max))
		| debug | .now == 0 and .most == 4' "$WORK/monitor.out"
	# First come, first served: by when it was asked for, grants are in order.
	jq -se '[.[].leases[] | select(.state == "granted") | {id, requested_usec, granted_usec}] | unique_by(.id)
		| length == 40 and ([sort_by(.requested_usec)[].granted_usec] | . == sort)' "$WORK"/seen.*
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
	[[ $stderr == *memory* ]]
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
