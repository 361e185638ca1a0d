# SPDX-License-Identifier: MIT
#
# Checks on a GPU of what happens after a fault and after deaths: who is told, and when leases work
# again.
#
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of check-gpu and lib.bash

status_says() {
	timeout 5 "$mpsctl" status 2>/dev/null | grep -qE "$1"
}

state_is() {
	timeout 5 "$mpsctl" status --json 2>/dev/null | tr -d '\n' |
		grep -qE "\"kind\": \"gpu\".*\"state\": \"$1\""
}

# The line of `mpsctl status` that names whom the newest loss hit: "pids" or "leases".
hit_by_newest() {
	timeout 5 "$mpsctl" status 2>/dev/null | sed -n "s/^ *hit *$1 //p" | head -n 1
}

lease_of() {
	timeout 5 "$mpsctl" leases 2>/dev/null | awk -v name="$1" '$0 ~ "(^| )" name "( |$)" { print $1; exit }'
}

was_told() {
	grep -q 'was interrupted: .*fault' "$tmp/job/$1.err"
}

# Three leased jobs that end when they see the error; the third causes it.
check_three_victims() {
	local first second third ids pids name start seen

	start_job hit1 "$mpsctl" lease --name hit1 -- "$cuda_client" hold
	first=$job
	start_job hit2 "$mpsctl" lease --name hit2 -- "$cuda_client" hold
	second=$job
	await 30 job_says hit1 '^ready'
	await 30 job_says hit2 '^ready'
	start_job hit3 "$mpsctl" lease --name hit3 -- "$cuda_client" fault --after 1500
	third=$job
	await 30 job_says hit3 '^ready'
	ids=$(for name in hit1 hit2 hit3; do lease_of "$name"; done | sort | tr '\n' ' ')
	pids=$(for name in hit1 hit2 hit3; do client_pid "$name"; done | sort -n | tr '\n' ' ')
	await 30 job_says hit3 '^error'
	wait "$first" "$second" "$third"
	start=$(now_usec)
	timeout 20 "$mpsctl" lease -q -- true
	note "a new lease $(ms_since "$start") ms after the last victim's exit was seen"
	expect "a new lease is granted within 1 s of the last victim's exit" "not in time" \
		test "$(($(now_usec) - start))" -lt 1000000
	seen=$(hit_by_newest pids | tr -d ',' | tr ' ' '\n' | sort -n | tr '\n' ' ')
	expect "status names the pids of all three as hit" "$seen, not $pids" test "$seen" = "$pids"
	seen=$(hit_by_newest leases | tr -d ',' | tr ' ' '\n' | sort | tr '\n' ' ')
	expect "status names the leases of all three as hit" "$seen, not $ids" test "$seen" = "$ids"
	for name in hit1 hit2 hit3; do
		expect "$name is told of the fault" @"$name" await 2 was_told "$name"
	done
	expect "status shows who was present at the fault" "no suspect" \
		status_says 'suspect .*hit3: present at'
	expect_next_lease after_three
}

expect_next_lease() {
	run_lease "$1" "$cuda_client" init
	expect_mps "$1" "a lease after that runs under MPS"
}

# One that stays attached, ignoring SIGTERM, is ended after fault_grace.
check_stubborn_victim() {
	local victim culprit start

	start_job stubborn "$mpsctl" lease --name stubborn -- "$cuda_client" hold --stubborn
	victim=$job
	await 30 job_says stubborn '^ready'
	start_job culprit2 "$mpsctl" lease --name culprit2 -- "$cuda_client" fault --after 200
	culprit=$job
	await 30 job_says stubborn '^error'
	start=$(now_usec)
	wait "$culprit"
	expect "while a victim stays the instance is faulted" "not" await 2 state_is faulted
	expect "status names the pid that holds it" "no" \
		status_says "waiting for pids $(client_pid stubborn)"
	run_job refused "$mpsctl" lease --no-wait -- true
	expect "meanwhile no lease is granted" @refused grep -q 'faulted' "$tmp/job/refused.err"
	expect "after fault_grace it is ready again" "not within 30 s" await 30 state_is ready
	note "$(ms_since "$start") ms after the fault, fault_grace is 3 s"
	expect_next_lease after_stubborn
	end_job stubborn "$victim"
	note "the stubborn victim ended with status $?"
}

# When the supervisor told of the N-th interruption since the monitor started, microseconds.
told_usec() {
	grep -F '"interrupted"' "$tmp/job/monitor.out" | sed -n "$1p" |
		sed -n 's/.*"at_usec": *\([0-9]*\).*/\1/p'
}

has_told() {
	[ -n "$(told_usec "$1")" ]
}

# From SIGKILL of the server to the supervisor's telling of it, by the supervisor's own clock.
report_notice_times() {
	local i holder control server monitor killed_usec times=()

	start_job monitor "$mpsctl" monitor --json
	monitor=$job
	for ((i = 1; i <= notices; i++)); do
		start_job "notice$i" "$mpsctl" lease -q -- sh -c "$hold_and_stay" "$cuda_client"
		holder=$job
		await 30 job_says "notice$i" '^ready'
		control=$(control_pid)
		server=$(mps_children "${control:-none}" | head -n 1)
		killed_usec=$(now_usec)
		kill_mps "${server:-none}" "${control:-none}"
		await 5 has_told "$i"
		times+=("$(($(told_usec "$i") - killed_usec))")
		end_job "notice$i" "$holder"
	done
	kill "$monitor"
	note "SIGKILL of the server until its holders are told, us, sorted:" \
		"$(printf '%s\n' "${times[@]}" | sort -n | tr '\n' ' ')"
}
