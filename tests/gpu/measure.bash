# SPDX-License-Identifier: MIT
#
# Checks on a GPU of what a lease gives its job: MPS, the right environment, shares, a warm start,
# throughput; and what it costs.
#
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of check-gpu and lib.bash

readonly spinners=16 spin_seconds=3 ratio_wanted=15 overhead_runs=50
readonly warm_runs=5 warm_gain_ms=100

# has_variable NAME PATTERN: in the environment saved of the job
has_variable() {
	grep -q -- "^$1=$2\$" "$tmp/job/environment.txt"
}

check_environment() {
	local pid=$1 variable seen

	tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null |
		grep -E '^(CUDA_MPS_|CUDA_VISIBLE_|MPS_SUPERVISOR_LEASE=)' >"$tmp/job/environment.txt"
	seen=$(tr '\n' ';' <"$tmp/job/environment.txt")
	while IFS= read -r variable; do
		note "$variable"
	done <"$tmp/job/environment.txt"
	expect "the job's pipe directory is its lease's" "$seen" \
		has_variable CUDA_MPS_PIPE_DIRECTORY "$tmp/run/lease/.*"
	expect "the job's visible device is the GPU's UUID" "$seen" \
		has_variable CUDA_VISIBLE_DEVICES "$gpu_uuid"
	expect "the job knows its lease" "$seen" has_variable MPS_SUPERVISOR_LEASE "..*"
}

# A program under a lease, and beside it one without: NVIDIA's list names the first alone.
check_listed() {
	local lease_job plain_job pid plain_pid

	start_job lease "$mpsctl" lease -- "$cuda_client" hold
	lease_job=$job
	await 30 job_says lease '^ready'
	pid=$(client_pid lease)
	expect_mps lease "a program under a lease runs under MPS"
	expect "MPS lists the program under a lease" @ps await 10 ps_lists "${pid:-none}"
	note "$(grep "^${pid:-none} " "$tmp/job/ps.out")"
	check_environment "${pid:-none}"

	start_job plain env CUDA_VISIBLE_DEVICES="$gpu_uuid" "$cuda_client" hold
	plain_job=$job
	await 30 job_says plain '^ready'
	plain_pid=$(client_pid plain)
	expect "a program without a lease runs without MPS" @plain test "$(mps_of plain)" = 0
	expect "MPS does not list the program without a lease" @ps \
		await 5 lists_only "${pid:-none}" "${plain_pid:-none}"
	end_job plain "$plain_job"
	end_job lease "$lease_job"
	expect "a held program ends with its input, with status 0" "status $?" test $? -eq 0
}

# all_ready N FILE...
all_ready() {
	local n=$1

	shift
	[ "$(cat -- "$@" | grep -c '^ready')" -eq "$n" ]
}

# run_spinners N plain|lease: gives launches and n_under_mps
run_spinners() {
	local n=$1 kind=$2 i pids=() outputs=() command=() sums

	command=("$mpsctl" lease -q --)
	[ "$kind" = lease ] || command=(env CUDA_VISIBLE_DEVICES="$gpu_uuid")
	command+=("$cuda_client" spin "$spin_seconds" --go "$tmp/job/go")
	rm -f "$tmp/job/go" "$tmp"/job/spin*.out
	for ((i = 1; i <= n; i++)); do
		start_spinner "spin$i" "${command[@]}"
		pids+=("$!")
		outputs+=("$tmp/job/spin$i.out")
	done
	await 60 all_ready "$n" "${outputs[@]}" || note "not all of $n processes became ready"
	: >"$tmp/job/go"
	wait "${pids[@]}"
	sums=$(awk '/^launches/ { sum += $2; mps += $4 } END { print sum + 0, mps + 0 }' "${outputs[@]}")
	launches=${sums% *}
	n_under_mps=${sums#* }
	note "$n process(es), $kind: $launches launches in $spin_seconds s, $n_under_mps under MPS"
}

# ratio A B
ratio() {
	awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f\n", (b > 0 ? a / b : 0) }'
}

# at_least A B
at_least() {
	awk -v a="$1" -v b="$2" 'BEGIN { exit !(a >= b) }'
}

check_throughput() {
	local alone plain gain

	run_spinners 1 plain
	alone=$launches
	run_spinners 1 lease
	note "ratio at 1 process: $(ratio "$launches" "$alone")"
	run_spinners "$spinners" plain
	plain=$launches
	expect "$spinners programs without leases ran without MPS" "$n_under_mps under MPS" \
		test "$n_under_mps" -eq 0
	run_spinners "$spinners" lease
	expect "$spinners programs under leases ran under MPS" \
		"$n_under_mps under MPS, $(seen_in "$tmp"/job/spin*.err)" test "$n_under_mps" -eq "$spinners"
	gain=$(ratio "$launches" "$plain")
	note "ratio at $spinners processes: $gain"
	expect "$spinners processes launch at least $ratio_wanted times as many kernels under leases" \
		"$gain times" at_least "$gain" "$ratio_wanted"
}

# multiprocessors NAME
multiprocessors() {
	sed -n 's/^dev .* sm \([0-9]*\) .*/\1/p' "$tmp/job/$1.out"
}

check_shares() {
	local full share

	run_lease whole "$cuda_client" init
	run_job share "$mpsctl" lease --threads 25 -- "$cuda_client" init
	full=$(multiprocessors whole)
	share=$(multiprocessors share)
	note "multiprocessors: ${full:-none} without a cap, ${share:-none} with --threads 25"
	if [ "${full:-0}" -eq 132 ]; then
		expect "--threads 25 leaves 32 of 132 multiprocessors" "${share:-none}" test "${share:-0}" -eq 32
	else
		expect "--threads 25 leaves at most 30 % of the multiprocessors" "${share:-none}" \
			test $((${share:-999} * 10)) -le $((${full:-0} * 3))
	fi
	run_job little "$mpsctl" lease --memory 1G -- "$cuda_client" alloc $((256 << 20))
	expect "--memory 1G allows an allocation of 256 MiB" @little job_says little '^alloc .* ok'
	run_job memory "$mpsctl" lease --memory 1G -- "$cuda_client" alloc $((2 << 30))
	note "--memory 1G: $(seen_in "$tmp/job/memory.out")"
	expect "--memory 1G refuses an allocation of 2 GiB" @memory job_says memory '^error 2 '
}

check_first_lease() {
	local start i

	start=$(now_usec)
	run_lease cold "$cuda_client" init
	note "first lease: init $(init_ms cold) ms, the whole command $(ms_since "$start") ms"
	expect_mps cold "the first lease after the start runs under MPS"
	for i in 1 2 3; do
		start=$(now_usec)
		run_lease "warm$i" "$cuda_client" init
		note "a later lease: init $(init_ms "warm$i") ms, the whole command $(ms_since "$start") ms"
	done
	expect_mps warm3 "a later lease runs under MPS"
}

# median NUMBER...
median() {
	printf '%s\n' "$@" | sort -n | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'
}

# The first CUDA call half a second after the first grant of a new supervisor, with the server
# started at the grant and without.
check_warm_start() {
	local i kind cold=() warm=() n_under_mps=0 gain

	for ((i = 1; i <= warm_runs; i++)); do
		for kind in false true; do
			supervised "$gpu_uuid" "prestart = $kind;" || return
			# shellcheck disable=SC2016  # for the job's shell
			run_lease "start_$kind" sh -c 'sleep 0.5; exec "$0" init' "$cuda_client"
			[ "$(mps_of "start_$kind")" != 1 ] || n_under_mps=$((n_under_mps + 1))
			if [ "$kind" = true ]; then
				warm+=("$(init_ms start_true)")
			else
				cold+=("$(init_ms start_false)")
			fi
		done
	done
	expect "with and without prestart all run under MPS" "$n_under_mps" \
		test "$n_under_mps" -eq $((2 * warm_runs))
	note "first CUDA call, ms: prestart = false ${cold[*]}; prestart = true ${warm[*]}"
	gain=$(awk -v a="$(median "${cold[@]}")" -v b="$(median "${warm[@]}")" 'BEGIN { print a - b }')
	note "medians: cold $(median "${cold[@]}") ms, warm $(median "${warm[@]}") ms, $gain ms less"
	expect "a warm start saves at least $warm_gain_ms ms of the first CUDA call" "$gain ms" \
		at_least "$gain" "$warm_gain_ms"
}

# median_usec COMMAND...
median_usec() {
	local i start times=()

	for ((i = 0; i < overhead_runs; i++)); do
		start=$(now_usec)
		timeout 30 "$@" </dev/null >/dev/null 2>&1
		times+=("$(($(now_usec) - start))")
	done
	median "${times[@]}"
}

report_overhead() {
	local plain lease

	plain=$(median_usec true)
	lease=$(median_usec "$mpsctl" lease -q -- true)
	note "median of $overhead_runs: true $plain us, mpsctl lease -- true $lease us"
}
