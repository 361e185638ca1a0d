# SPDX-License-Identifier: MIT
#
# Checks on a GPU with more than one user, and with as many clients as MPS takes.
#
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of check-gpu and lib.bash

readonly user_a=65534 user_b=65533
readonly as_a=(setpriv --reuid "$user_a" --regid "$user_a" --clear-groups)
readonly as_b=(setpriv --reuid "$user_b" --regid "$user_b" --clear-groups)

# What an H200 with driver 580 takes, and what these need of its memory.
readonly crowd=48 crowd_mib=40000

several_users() {
	if [ "$(id -u)" -ne 0 ] || ! command -v setpriv >/dev/null; then
		note "skipped, other users: needs root and setpriv"
		return 1
	fi
}

check_other_user() {
	local start

	several_users || return
	start=$(now_usec)
	run_job other "${as_a[@]}" "$mpsctl" lease -- "$cuda_client" init
	note "uid $user_a: init $(init_ms other) ms, the whole command $(ms_since "$start") ms"
	expect_mps other "another user's lease runs under MPS once nobody else has one"
	start=$(now_usec)
	run_lease back "$cuda_client" init
	note "and back: init $(init_ms back) ms, the whole command $(ms_since "$start") ms"
	expect_mps back "so does the first user's lease after that"
}

servers() {
	local control

	control=$(control_pid) && mps_children "$control"
}

# The users of the servers, one a line.
server_users() {
	local pid

	for pid in $(servers); do
		uid_of "$pid"
	done
}

# served_by UID: by one server, of this user
served_by() {
	[ "$(server_users)" = "$1" ]
}

# A second user's requests while the first has a job there: refused, or queued, and told why.
expect_waiting() {
	local asked waited

	run_job nowait "${as_b[@]}" "$mpsctl" lease --no-wait -- true
	expect "a second user's --no-wait is refused with status 125" "status $?" test $? -eq 125
	expect "and names who is there" @nowait is_told nowait "in use by uid $user_a"
	asked=$(now_usec)
	start_job second "${as_b[@]}" "$mpsctl" lease --name second -- "$cuda_client" hold
	second=$job
	await 5 is_told second "in use by uid $user_a"
	waited=$(ms_since "$asked")
	note "told after $waited ms: $(seen_in "$tmp/job/second.err")"
	expect "a second user is told within 1 s who is in front" "$waited ms" test "$waited" -lt 1000
}

check_two_users() {
	local first second server ended granted

	several_users || return
	start_job first "${as_a[@]}" "$mpsctl" lease --name first -- "$cuda_client" hold
	first=$job
	await_ready first "$first"
	expect_mps first "a job of uid $user_a runs under MPS"
	server=$(servers)
	expect "its server is of the same user" "$(server_users)" served_by "$user_a"
	expect_waiting
	end_job first "$first"
	expect "the first user's job was not disturbed" "status $?" test $? -eq 0
	ended=$(now_usec)
	await_ready second "$second"
	granted=$(granted_usec second)
	note "the second user's grant $(((${granted:-0} - ended) / 1000)) ms after the first one's end," \
		"its job ready after $(ms_since "$ended") ms"
	expect_mps second "then the second user's job runs under MPS"
	expect "its server is of the same user, the only one" "$(server_users)" served_by "$user_b"
	expect "the first user's server is gone" "server ${server:-none}" gone "${server:-$$}"
	end_job second "$second"
	expect "the second user's job ends with status 0" "status $?" test $? -eq 0
}

# With multi_user: both at once.
check_users_together() {
	local first second name pid

	several_users || return
	start_job left "${as_a[@]}" "$mpsctl" lease --name left -- "$cuda_client" hold
	first=$job
	start_job right "${as_b[@]}" "$mpsctl" lease --name right -- "$cuda_client" hold
	second=$job
	await_ready left "$first"
	await_ready right "$second"
	for name in left right; do
		expect_mps "$name" "multi_user: with two users at once the $name one runs under MPS"
		pid=$(client_pid "$name")
		expect_lease "$name" "$(list_has attached "${pid:-none}")" \
			"leases show the $name user's process as attached"
		expect "status shows it as a client" "$(instance_json gpu)" \
			instance_says gpu "$(list_has clients "${pid:-none}")"
	done
	expect "one server serves them, of root" "$(server_users)" served_by 0
	note "$(timeout 5 "$mpsctl" leases 2>&1 | tr '\n' ';')"
	end_job left "$first"
	expect "the left job was not disturbed" "status $?" test $? -eq 0
	end_job right "$second"
	expect "the right job was not disturbed" "status $?" test $? -eq 0
}

# start_crowd: one that ends by itself, the others with the pipe that they read
start_crowd() {
	local i pipe=$tmp/job/crowd.pipe

	mkfifo "$pipe"
	sleep 300 <>"$pipe" &
	pipe_holder=$!
	jobs_started+=("$!")
	start_job crowd1 "$mpsctl" lease -q --name crowd1 -- "$cuda_client" hold
	first=$job
	for ((i = 2; i <= crowd; i++)); do
		new_output "crowd$i"
		timeout -k 5 180 "$mpsctl" lease -q --name "crowd$i" -- "$cuda_client" hold \
			<"$pipe" >"$tmp/job/crowd$i.out" 2>"$tmp/job/crowd$i.err" &
		others+=("$!")
		jobs_started+=("$!")
	done
}

# One more than there are places waits here, where MPS would fail it.
expect_one_more() {
	local more ended granted

	start_job more "$mpsctl" lease --name more -- "$cuda_client" hold
	more=$job
	await 5 is_told more "full: $crowd/$crowd clients reserved"
	expect "one more is told that all places are reserved" @more \
		is_told more "full: $crowd/$crowd clients reserved"
	expect_lease more '"state": "queued"' "and is queued"
	end_job crowd1 "$first"
	ended=$(now_usec)
	await_ready more "$more"
	granted=$(granted_usec more)
	note "its place $(((${granted:-0} - ended) / 1000)) ms after the end of another," \
		"ready after $(ms_since "$ended") ms"
	expect_mps more "when one of them has ended it runs under MPS"
	end_job more "$more"
	expect "and ends with status 0" "status $?" test $? -eq 0
}

gpu_mib() {
	timeout 60 nvidia-smi -i 0 --format=csv,noheader,nounits --query-gpu=memory.total |
		tr -dc '0-9'
}

check_crowd() {
	local first others=() pipe_holder start n pid n_bad=0

	if [ "$(gpu_mib)" -lt "$crowd_mib" ]; then
		note "skipped, $crowd clients at once: they need $crowd_mib MiB"
		return
	fi
	start=$(now_usec)
	start_crowd
	await 90 all_ready "$crowd" "$tmp"/job/crowd*.out
	note "$crowd clients ready after $(ms_since "$start") ms"
	n=$(cat "$tmp"/job/crowd*.out | grep -c '^ready .* mps 1$')
	expect "$crowd clients at once run under MPS" \
		"$n, $(cat "$tmp"/job/crowd*.{out,err} | grep -v '^ready' | sort | uniq -c | tr '\n' ';')" \
		test "$n" -eq "$crowd"
	expect_one_more
	kill "$pipe_holder"
	for pid in "${others[@]}"; do
		wait "$pid" || n_bad=$((n_bad + 1))
	done
	expect "none of the others was disturbed" "$n_bad failed" test "$n_bad" -eq 0
}
