# SPDX-License-Identifier: MIT
#
# Checks on a GPU of what happens after a fault and after deaths: who is told, and when leases work
# again.
#
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of check-gpu and lib.bash

readonly notices=11

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

# says_more_than FILE LINES
says_more_than() {
	[ "$(wc -l <"$1")" -gt "$2" ]
}

# expect_notice NAME LINES EVENT: mpsctl has said something after its first LINES lines
expect_notice() {
	local file="$tmp/job/$1.err"

	expect "mpsctl tells the job of $3" "nothing on stderr within 5 s" \
		await 5 says_more_than "$file" "$2"
	note "it said: $(tail -n +$(($2 + 1)) "$file" | tr '\n' ';')"
}

# kill_mps PID PARENT: SIGKILL for a process just seen to be an MPS program of ours
kill_mps() {
	is_child "$1" "$2" && kill -KILL "$1"
}

# Stays until its input ends after the client has failed, so that mpsctl is there to tell of it.
# shellcheck disable=SC2016  # for the job's shell
readonly hold_and_stay='"$0" hold; status=$?; cat >/dev/null; exit "$status"'

check_server_death() {
	local holder control server killed_usec error_usec n_lines start

	start_job victim "$mpsctl" lease -- sh -c "$hold_and_stay" "$cuda_client"
	holder=$job
	await 30 job_says victim '^ready'
	control=$(control_pid)
	server=$(mps_children "${control:-none}" | head -n 1)
	n_lines=$(wc -l <"$tmp/job/victim.err")
	killed_usec=$("$cuda_client" now)
	expect "the MPS server is found below its control daemon" "control ${control:-none}" \
		kill_mps "${server:-none}" "${control:-none}"
	await 5 job_says victim '^error'
	expect "SIGKILL of the server: its client gets error 806 within 5 s" @victim \
		test "$(error_of victim)" = 806
	error_usec=$(error_usec victim)
	[ -z "$error_usec" ] || note "after $(((error_usec - killed_usec) / 1000)) ms"
	expect_notice victim "$n_lines" "the server's loss"
	end_job victim "$holder"
	expect "mpsctl gives the job's own exit status, 10" "status $?" test $? -eq 10
	start=$(now_usec)
	run_lease after_server "$cuda_client" init
	note "the next lease: init $(init_ms after_server) ms, the whole command $(ms_since "$start") ms"
	expect_mps after_server "a new lease after that runs under MPS"
}

# shellcheck disable=SC2016  # for the job's shell
readonly init_twice='"$0" init; cat >/dev/null; "$0" init'

check_control_death() {
	local holder control killed_usec n_lines n_under_mps

	start_job twice "$mpsctl" lease -- sh -c "$init_twice" "$cuda_client"
	holder=$job
	await 30 job_says twice '^dev'
	n_lines=$(wc -l <"$tmp/job/twice.err")
	control=$(control_pid)
	killed_usec=$(now_usec)
	expect "the control daemon is found below the supervisor" "${control:-none}" \
		kill_mps "${control:-none}" "$supervisor"
	expect "SIGKILL of the control daemon: the instance is ready again" "not within 30 s" \
		await 30 ready_again "${control:-none}"
	note "after $(ms_since "$killed_usec") ms: $(timeout 5 "$mpsctl" status 2>&1 | tr '\n' ';')"
	expect_notice twice "$n_lines" "the control daemon's loss"
	end_job twice "$holder"
	n_under_mps=$(grep -c '^dev .* mps 1$' "$tmp/job/twice.out")
	expect "one lease's directory works before and after" @twice test "$n_under_mps" -eq 2
}

# check_fault VERB CODE: one client's error hits its neighbour on the GPU, and then it is over
check_fault() {
	local verb=$1 code=$2 bystander culprit n_lines start

	start_job bystander "$mpsctl" lease -- sh -c "$hold_and_stay" "$cuda_client"
	bystander=$job
	await 30 job_says bystander '^ready'
	n_lines=$(wc -l <"$tmp/job/bystander.err")
	start_job culprit "$mpsctl" lease -- "$cuda_client" "$verb" --after 200
	culprit=$job
	await 30 job_says culprit '^error'
	await 5 job_says bystander '^error'
	expect "$verb: the culprit gets error $code" @culprit test "$(error_of culprit)" = "$code"
	expect "$verb: the bystander is hit too, with $code" @bystander \
		test "$(error_of bystander)" = "$code"
	expect_notice bystander "$n_lines" "the fault ($verb)"
	end_job culprit "$culprit"
	end_job bystander "$bystander"
	start=$(now_usec)
	run_lease "after_$verb" "$cuda_client" init
	note "the next lease: the whole command $(ms_since "$start") ms"
	expect_mps "after_$verb" "$verb: a new lease after that runs under MPS"
}
