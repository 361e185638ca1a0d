# SPDX-License-Identifier: MIT
#
# Checks on a GPU that jobs live on when the supervisor does not.
#
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of check-gpu and lib.bash

readonly restart_spin_seconds=6

# The pids of control daemon and server, and the generation, as the status has them.
identities() {
	instance_json gpu | grep -oE '"(control_pid|generation)": [0-9]+|"servers": \[ \{ "pid": [0-9]+'
}

# same_identities TEXT
same_identities() {
	[ "$(identities)" = "$1" ]
}

kill_supervisor() {
	local pid=$supervisor

	supervisor=
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null
}

check_supervisor_death() {
	local before spinner holder start end

	start_job calm "$mpsctl" lease --name calm -- "$cuda_client" hold
	holder=$job
	await_ready calm "$holder"
	start_spinner busy "$mpsctl" lease --name busy -- "$cuda_client" spin "$restart_spin_seconds"
	spinner=${jobs_started[-1]}
	await 10 lease_says busy '"attached": \[ [0-9]'
	before=$(identities)
	kill_supervisor
	expect "kill -9 of the supervisor ends no job" @busy running "$spinner"
	start=$(now_usec)
	start_supervisor "$gpu_uuid"
	end=$?
	note "ready again $(ms_since "$start") ms after its start"
	expect "the next supervisor has the same control daemon, server and generation" \
		"$before; $(identities)" same_identities "$before"
	expect "it is ready" "status $end" test "$end" -eq 0
	expect_lease calm '"attached": \[ [0-9]' "both leases are there, with their clients"
	expect_lease busy '"attached": \[ [0-9]' "the other one"
	run_job third "$mpsctl" lease -- "$cuda_client" init
	expect_mps third "a new lease runs under MPS beside them"
	wait "$spinner"
	end=$?
	expect "the job that computed has computed through it all" @busy test "$end" -eq 0
	note "$(seen_in "$tmp/job/busy.out")"
	await 5 no_lease busy
	expect "its lease has ended with it" "$(lease_json busy)" no_lease busy
	end_job calm "$holder"
	expect "the other job ends with status 0" "status $?" test $? -eq 0
	await 5 no_lease calm
	expect "and its lease" "$(lease_json calm)" no_lease calm
	expect "nobody was told of anything" "$(seen_in "$tmp/job/busy.err" "$tmp/job/calm.err")" \
		test ! -s "$tmp/job/calm.err"
}

part_restart() {
	supervised "$gpu_uuid" || return
	check_supervisor_death
	check_stop
}
