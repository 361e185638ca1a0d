# SPDX-License-Identifier: MIT
#
# Checks on a GPU of jobs that are unlike the plain one: in a container, with children that outlive
# it, or without any use of CUDA.
#
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of check-gpu and lib.bash

readonly straggler_seconds=2 attach_seconds=1

# --- in a container

# As in a container that has the lease's directory mounted elsewhere, and of the supervisor nothing
# else. Arguments: directory for it, what to hide, "own" or "shared" /dev/shm, program, arguments.
# shellcheck disable=SC2016  # for the job's shell
readonly in_a_box='
box=$0 hidden=$1 shm=$2
shift 2
mount -t tmpfs box "$box" && mkdir "$box/mps" &&
	mount --bind "$CUDA_MPS_PIPE_DIRECTORY" "$box/mps" && mount -t tmpfs hidden "$hidden" || exit 120
[ "$shm" = shared ] || mount -t tmpfs shm /dev/shm || exit 120
ls -d "$CUDA_MPS_PIPE_DIRECTORY" >&2
CUDA_MPS_PIPE_DIRECTORY=$box/mps exec "$@"'

may_mount() {
	unshare -m mount -t tmpfs test "$tmp/box" 2>/dev/null
}

check_box() {
	local holder pid

	mkdir -p "$tmp/box"
	if ! may_mount; then
		note "skipped, a job in a mount namespace: not permitted here"
		return
	fi
	start_job box "$mpsctl" lease --name box -- unshare -m \
		sh -c "$in_a_box" "$tmp/box" "$tmp/run" shared "$cuda_client" hold
	holder=$job
	await_ready box "$holder"
	pid=$(client_pid box)
	note "its pipe directory: $(tr '\0' '\n' <"/proc/${pid:-none}/environ" | grep '^CUDA_MPS_PIPE_')"
	expect "a job in a mount namespace does not see the supervisor's directories" @box \
		grep -q "No such file" "$tmp/job/box.err"
	expect_mps box "with its lease's directory mounted elsewhere it runs under MPS"
	expect_lease box "$(list_has attached "${pid:-none}")" "and is shown as attached to its lease"
	end_job box "$holder"
	expect "it ends with status 0" "status $?" test $? -eq 0
	run_lease box_shm timeout -k 2 15 unshare -m \
		sh -c "$in_a_box" "$tmp/box" "$tmp/run" own "$cuda_client" init
	note "with a /dev/shm of its own: status $?, $(seen_in "$tmp/job/box_shm.out")"
}

# --- a child that outlives the holder

# Arguments: program, file whose coming ends the holder, the program's arguments. Only the child
# reads the input.
# shellcheck disable=SC2016  # for the job's shell
readonly leave_a_child='
leave=$1
shift
exec 3<&0
setsid "$0" "$@" <&3 3<&- &
exec 3<&-
while [ ! -e "$leave" ]; do sleep 0.02; done'

# start_straggler NAME VERB...: gives holder and child
start_straggler() {
	local name=$1

	shift
	start_job "$name" "$mpsctl" lease --name "$name" -- \
		sh -c "$leave_a_child" "$cuda_client" "$tmp/job/$name.leave" "$@"
	holder=$job
	await_ready "$name" "$holder"
	child=$(client_pid "$name")
	expect_lease "$name" "$(list_has attached "${child:-none}")" \
		"a child of the holder is attached to its lease ($name)"
}

# leave NAME HOLDER: the holder ends, its child does not
leave() {
	: >"$tmp/job/$1.leave"
	wait "$2"
}

expect_draining() {
	expect_lease "$1" '"state": "draining"' "a lease whose child outlives its holder is draining ($1)"
	expect_lease "$1" "\"reason\": \"([^\"]*[^0-9\"])?$2[^0-9]" "its reason names the child"
	note "$(lease_json "$1" | grep -o '"reason": "[^"]*"')"
}

check_straggler() {
	local holder child ended

	start_straggler alone hold
	leave alone "$holder"
	expect_draining alone "${child:-none}"
	expect "the child is left alone" "pid ${child:-none}" running "${child:-none}"
	run_job full "$mpsctl" lease --no-wait --clients 48 -- true
	expect "and keeps its place: nobody else gets all 48" "status $?" test $? -eq 125
	expect "because one is taken" @full is_told full "full: 1/48"
	rm -f "$tmp/job/alone.input"
	await 10 gone "${child:-none}"
	ended=$(now_usec)
	await 5 no_lease alone
	expect "the lease ends with the child" "$(lease_json alone)" no_lease alone
	note "$(ms_since "$ended") ms after it"
	run_job full "$mpsctl" lease --no-wait --clients 48 -- true
	expect "then all places are free again" @full test $? -eq 0
}

# With straggler_grace: SIGTERM after it, and SIGKILL for one that ignores that.
check_straggler_ended() {
	local holder child meek meek_holder ended ms

	start_straggler meek hold
	meek=$child meek_holder=$holder
	start_straggler stubborn_child hold --stubborn
	leave meek "$meek_holder"
	leave stubborn_child "$holder"
	ended=$(now_usec)
	expect_draining meek "${meek:-none}"
	expect_draining stubborn_child "${child:-none}"
	await 15 gone "${meek:-none}"
	ms=$(ms_since "$ended")
	note "straggler_grace is $straggler_seconds s; the child was gone after $ms ms"
	expect "after straggler_grace the child is ended, not before" "$ms ms" \
		test "$ms" -ge $((straggler_seconds * 1000 - 200)) -a "$ms" -lt 10000
	await 20 gone "${child:-none}"
	expect "one that ignores SIGTERM too" "pid ${child:-none}" gone "${child:-$$}"
	note "after $(ms_since "$ended") ms"
	await 5 no_lease meek
	await 5 no_lease stubborn_child
	expect "their leases are over" "$(lease_json meek)$(lease_json stubborn_child)" \
		eval 'no_lease meek && no_lease stubborn_child'
	run_lease after_children "$cuda_client" init
	expect_mps after_children "a lease after that runs under MPS"
}

# --- a job that does not use CUDA

# shellcheck disable=SC2016  # for the job's shell
readonly late_use='while [ ! -e "$1" ]; do sleep 0.02; done; exec "$0" hold'

# shows_reason NAME
shows_reason() {
	lease_says "$1" '"reason": "[^"]*no client attached'
}

shows_no_reason() {
	lease_says "$1" '"reason": null'
}

check_unattached() {
	local user idle start

	start_job user "$mpsctl" lease --name user -- "$cuda_client" hold
	user=$job
	await_ready user "$user"
	start_job idle "$mpsctl" lease --name idle -- \
		sh -c "$late_use" "$cuda_client" "$tmp/job/idle.go"
	idle=$job
	start=$(now_usec)
	await 5 shows_no_reason idle
	expect "at first a lease without a client has no reason" "$(lease_json idle)" shows_no_reason idle
	await 5 shows_reason idle
	note "'no client attached' after $(ms_since "$start") ms, attach_grace is $attach_seconds s"
	expect "after attach_grace it says that no client is attached" "$(lease_json idle)" \
		shows_reason idle
	expect "one with a client does not" "$(lease_json user)" shows_no_reason user
	: >"$tmp/job/idle.go"
	await_ready idle "$idle"
	await 5 shows_no_reason idle
	expect "nor does the other when it has come" "$(lease_json idle)" shows_no_reason idle
	end_job idle "$idle"
	end_job user "$user"
}
