# SPDX-License-Identifier: MIT
#
# Checks on a machine with two GPUs of leases over both: a gang instance, PyTorch and NCCL in it, and
# the single instances before, meanwhile and after.
#
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of check-gpu and lib.bash

readonly gang_runs=3 gang_ratio=1.10

# find_two_gpus: gives first_uuid and second_uuid; not when there are no two that would do
find_two_gpus() {
	local uuid mode mig uuids=()

	while IFS=, read -r uuid mode mig; do
		[ "$mode" = Default ] && [ "$mig" != Enabled ] && uuids+=("$uuid")
	done < <(timeout 60 nvidia-smi --format=csv,noheader \
		--query-gpu=uuid,compute_mode,mig.mode.current | sed 's/, */,/g')
	if [ ${#uuids[@]} -lt 2 ]; then
		note "skipped, leases over two GPUs: ${#uuids[@]} here in mode Default and without MIG"
		return 1
	fi
	first_uuid=${uuids[0]}
	second_uuid=${uuids[1]}
	torchrun=(torchrun)
	command -v torchrun >/dev/null || torchrun=(python3 -m torch.distributed.run)
	torchrun+=(--standalone --nproc_per_node=2 "$here/all_reduce.py")
}

has_pytorch() {
	python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2>/dev/null
}

# check_singles NAME TEXT: a lease on each of the two
check_singles() {
	local uuid name

	for uuid in "$first_uuid" "$second_uuid"; do
		name=$1_${uuid:4:8}
		run_job "$name" "$mpsctl" lease --gpu "$uuid" -- "$cuda_client" init
		expect_mps "$name" "$2 a lease on ${uuid:0:12} runs under MPS"
		expect "on that GPU" @"$name" job_says "$name" "^dev $uuid"
	done
}

# --- what PyTorch said

# all_reduce_ms NAME
all_reduce_ms() {
	sed -n 's/^all_reduce ms \([0-9.]*\)$/\1/p' "$tmp/job/$1.out"
}

# rank NAME N FIELD: pid, device, visible, mps or sum of this rank
rank() {
	sed -n "s/^rank $2 .*\\b$3 \\([^ ]*\\).*/\\1/p" "$tmp/job/$1.out"
}

# all_ranks NAME FIELD VALUE: both ranks say so
all_ranks() {
	[ "$(rank "$1" 0 "$2")" = "$3" ] && [ "$(rank "$1" 1 "$2")" = "$3" ]
}

ranks_ready() {
	job_says "$1" '^rank 0 ' && job_says "$1" '^rank 1 ' && job_says "$1" '^all_reduce '
}

# ranks_over NAME PID: they are ready, or never will be
ranks_over() {
	ranks_ready "$1" || gone "$2"
}

# --- the runs

# run_ranks NAME COMMAND...: to its end; PyTorch takes its time to start
run_ranks() {
	local name=$1

	shift
	OMP_NUM_THREADS=1 timeout -k 5 90 "$@" "${torchrun[@]}" </dev/null \
		>"$tmp/job/$name.out" 2>"$tmp/job/$name.err"
}

run_plain() {
	run_ranks "plain$1" env CUDA_VISIBLE_DEVICES="$first_uuid,$second_uuid"
	expect "without MPS two ranks reduce (run $1)" @"plain$1" all_ranks "plain$1" sum 2
	expect "both without MPS" @"plain$1" all_ranks "plain$1" mps 0
}

run_gang() {
	run_ranks "gang$1" "$mpsctl" lease --gpus 2 --name "gang$1" --
	expect "under a lease of two GPUs two ranks reduce (run $1)" @"gang$1" \
		all_ranks "gang$1" sum 2
	expect "both under MPS" @"gang$1" all_ranks "gang$1" mps 1
}

# --- while a gang lives

# in_list JSON KEY REGEX: how often in the list of this key
in_list() {
	grep -oE "\"$2\": \\[[^]]*\\]" <<<"$1" | grep -oE -- "$3" | wc -l
}

# gang_devices JSON: their UUIDs, and their indexes, as they are listed
gang_devices() {
	grep -oE '"devices": \[[^]]*\]' <<<"$1" | grep -oE "\"$2\": \"?[^\",]*" | sed 's/.*: "*//' |
		tr '\n' ' '
}

expect_gang_instance() {
	local json pid0 pid1 uuids indexes

	pid0=$(rank gang1 0 pid)
	pid1=$(rank gang1 1 pid)
	await 5 instance_says gang "$(list_has clients "${pid1:-none}")"
	json=$(instance_json gang)
	gang_name=$(grep -oE '"name": "gang-[0-9a-f]{8}", "kind"' <<<"$json" | cut -d'"' -f4)
	note "instance ${gang_name:-none}"
	expect "status shows a gang instance" "$(timeout 5 "$mpsctl" status 2>&1 | tr '\n' ';')" \
		test -n "$gang_name"
	uuids=$(gang_devices "$json" uuid)
	indexes=$(gang_devices "$json" index)
	expect "with both devices" "$uuids" test "$uuids" = "$first_uuid $second_uuid "
	expect "in the order of their indexes" "$indexes" \
		test "$indexes" = "$(tr ' ' '\n' <<<"$indexes" | sort -n | xargs) "
	expect "one server" "$json" test "$(in_list "$json" servers '"pid"')" -eq 1
	expect "rank 0 is its client" "pid $pid0: $json" \
		grep -qE "$(list_has clients "${pid0:-none}")" <<<"$json"
	expect "rank 1 too" "pid $pid1: $json" grep -qE "$(list_has clients "${pid1:-none}")" <<<"$json"
}

expect_gang_lease() {
	local json pid0 pid1

	pid0=$(rank gang1 0 pid)
	pid1=$(rank gang1 1 pid)
	json=$(lease_json gang1)
	expect "the lease is on that instance" "$json" \
		grep -qF "\"instance\": \"${gang_name:-none}\"" <<<"$json"
	expect "with both devices" "$json" \
		grep -qF "\"devices\": [ \"$first_uuid\", \"$second_uuid\" ]" <<<"$json"
	expect "rank 0 is attached to it" "$json" grep -qE "$(list_has attached "${pid0:-none}")" <<<"$json"
	expect "rank 1 too" "$json" grep -qE "$(list_has attached "${pid1:-none}")" <<<"$json"
	expect "both ranks see both devices, in order" @gang1 \
		all_ranks gang1 visible "$first_uuid,$second_uuid"
	expect "rank 0 runs on the first" @gang1 test "$(rank gang1 0 device)" = "$first_uuid"
	expect "rank 1 on the second" @gang1 test "$(rank gang1 1 device)" = "$second_uuid"
}

# A lease on one of the gang's GPUs comes after it.
expect_single_waits() {
	local gang=$1 behind ended granted

	start_job behind "$mpsctl" lease --gpu "$second_uuid" --name behind -- "$cuda_client" hold
	behind=$job
	await 5 is_told behind "waiting for a lease"
	note "behind a gang: $(seen_in "$tmp/job/behind.err")"
	expect_lease behind '"state": "queued"' "a lease on one of the gang's GPUs waits"
	: >"$tmp/job/gang.go"
	wait "$gang"
	expect "the gang's job ends with status 0" "status $?" test $? -eq 0
	ended=$(now_usec)
	await_ready behind "$behind"
	granted=$(granted_usec behind)
	note "granted $(((${granted:-0} - ended) / 1000)) ms after the gang's end"
	expect_mps behind "after the gang it is granted and runs under MPS"
	end_job behind "$behind"
}

no_gang() {
	instances_ready && [ -z "$(instance_json gang)" ]
}

check_living_gang() {
	local gang gang_name=

	rm -f "$tmp/job/gang.go"
	start_job gang1 env OMP_NUM_THREADS=1 "$mpsctl" lease --gpus 2 --name gang1 -- \
		"${torchrun[@]}" --stay "$tmp/job/gang.go"
	gang=$job
	await 90 ranks_over gang1 "$gang"
	expect "under a lease of two GPUs two ranks reduce (run 1)" @gang1 all_ranks gang1 sum 2
	expect "both under MPS" @gang1 all_ranks gang1 mps 1
	expect_gang_instance
	expect_gang_lease
	expect_single_waits "$gang"
	await 10 no_gang
	expect "the gang instance is gone from status" "$(instance_json gang)" no_gang
}

# --- all of it

# at_most A B
at_most() {
	[ -n "$1" ] && awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b) }'
}

compare_times() {
	local i plain=() gang=() slower

	for ((i = 1; i <= gang_runs; i++)); do
		plain+=("$(all_reduce_ms "plain$i")")
		gang+=("$(all_reduce_ms "gang$i")")
	done
	note "all-reduce of 64 MiB, ms: without MPS ${plain[*]}; under leases ${gang[*]}"
	slower=$(ratio "$(median "${gang[@]}")" "$(median "${plain[@]}")")
	note "medians: $(median "${plain[@]}") and $(median "${gang[@]}"), ratio $slower"
	expect "under a lease an all-reduce takes at most $gang_ratio times as long" "$slower" \
		eval 'at_least "$slower" 0.01 && at_most "$slower" "$gang_ratio"'
}

# run_by_turns: without and with leases; not to the end when one fails, for that takes long
run_by_turns() {
	local i

	for ((i = 1; i <= gang_runs; i++)); do
		run_plain "$i"
		all_ranks "plain$i" sum 2 || return
		if [ "$i" -eq 1 ]; then
			check_living_gang
		else
			run_gang "$i"
		fi
		all_ranks "gang$i" sum 2 || return
	done
}

check_gang() {
	check_singles before "before a gang"
	if has_pytorch; then
		run_by_turns && compare_times
	else
		note "skipped, PyTorch under a lease of two GPUs: no PyTorch here"
	fi
	await 10 no_gang
	expect "no gang instance is left" "$(instance_json gang)" no_gang
	check_singles after "after gangs"
}
