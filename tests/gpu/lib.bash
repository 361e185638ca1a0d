# SPDX-License-Identifier: MIT
#
# What the checks on a GPU share: results, processes, the supervisor's state, jobs and what they say.
#
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of check-gpu

# --- results

note() {
	printf '# %s\n' "$*"
}

skip_all() {
	echo "skipped: $*"
	exit 77
}

give_up() {
	echo "Bail out! $*"
	exit 1
}

# expect TEXT SEEN COMMAND...: the check passes when COMMAND succeeds. SEEN is told when it fails;
# @NAME stands for what the job NAME has said by then.
expect() {
	local text=$1 seen=$2

	shift 2
	if "$@"; then
		n_passed=$((n_passed + 1))
		echo "ok $((n_passed + n_failed)) - $text"
	else
		n_failed=$((n_failed + 1))
		[[ $seen != @* ]] || seen=$(seen_in "$tmp/job/${seen#@}".{out,err})
		echo "not ok $((n_passed + n_failed)) - $text ($seen)"
	fi
}

# The last lines of files, on one line.
seen_in() {
	tail -qn 4 "$@" 2>/dev/null | tr '\n' ';'
}

# --- waiting and time

now_usec() {
	echo "${EPOCHREALTIME/./}"
}

# ms_since USEC
ms_since() {
	echo $((($(now_usec) - $1) / 1000))
}

# await SECONDS COMMAND...: polls until COMMAND succeeds, fails at the deadline
await() {
	local deadline=$(($(now_usec) + $1 * 1000000))

	shift
	until "$@"; do
		[ "$(now_usec)" -lt "$deadline" ] || return 1
		sleep 0.02
	done
}

# --- processes

# running PID: it exists and is no zombie
running() {
	grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null
}

gone() {
	! running "$1"
}

# is_child PID PARENT
is_child() {
	grep -q "^PPid:[[:space:]]*$2\$" "/proc/$1/status" 2>/dev/null
}

# mps_children PARENT: its children that are MPS programs
mps_children() {
	local status pid

	grep -ls "^PPid:[[:space:]]*$1\$" /proc/[0-9]*/status | while read -r status; do
		pid=${status//[!0-9]/}
		grep -q '^nvidia-cuda-mps' "/proc/$pid/comm" 2>/dev/null && echo "$pid"
	done
}

# uid_of PID
uid_of() {
	awk '/^Uid:/ { print $2 }' "/proc/$1/status" 2>/dev/null
}

# The processes that have a directory of this run as their MPS pipe directory: control daemons,
# servers and jobs.
our_processes() {
	grep -lsaz "^CUDA_MPS_PIPE_DIRECTORY=$tmp/" /proc/[0-9]*/environ | tr -dc '0-9\n'
}

# end_child PID SECONDS: SIGTERM, then SIGKILL, for a child of this script that still runs
end_child() {
	running "$1" && is_child "$1" $$ || return
	kill -TERM "$1"
	await "$2" gone "$1" || kill -KILL "$1"
}

# For what a failed check left behind.
end_ours() {
	local pid

	for pid in $(our_processes); do
		kill -TERM "$pid" 2>/dev/null
		await 5 gone "$pid" || kill -KILL "$pid" 2>/dev/null
	done
}

describe_processes() {
	local pid

	for pid in "$@"; do
		echo "$pid $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null);"
	done
}

# --- the supervisor

# Every instance is ready.
instances_ready() {
	timeout 5 "$mpsctl" status --json 2>/dev/null |
		awk '/"kind": /  { n++ } /"state": *"ready"/ { ready++ } END { exit !(n > 0 && n == ready) }'
}

# instance_json KIND: of the first instance of this kind, on one line; nothing when there is none
instance_json() {
	timeout 5 "$mpsctl" status --json 2>/dev/null | tr -s '\n ' ' ' |
		sed 's/{ "name": "[^"]*", "kind":/\n&/g' | grep -F -m 1 "\"kind\": \"$1\""
}

# instance_says KIND REGEX
instance_says() {
	instance_json "$1" | grep -qE -- "$2"
}

# lease_json NAME: of the lease or request with this name, on one line; nothing when there is none
lease_json() {
	timeout 5 "$mpsctl" leases --json 2>/dev/null | tr -s '\n ' ' ' |
		sed 's/{ "id":/\n&/g' | grep -F -m 1 "\"name\": \"$1\""
}

# lease_says NAME REGEX
lease_says() {
	lease_json "$1" | grep -qE -- "$2"
}

no_lease() {
	[ -z "$(lease_json "$1")" ]
}

# granted_usec NAME: when the lease was granted, on the clock of now_usec
granted_usec() {
	lease_json "$1" | sed -n 's/.*"granted_usec": \([0-9]*\).*/\1/p'
}

# list_has KEY PID: a regular expression for a list of numbers in JSON that has this one
list_has() {
	echo "\"$1\": \\[([^]]*[^0-9])?$2[^0-9]"
}

# The control daemon that the status names, if it is what it should be.
control_pid() {
	local pid

	pid=$(timeout 5 "$mpsctl" status --json 2>/dev/null | grep -o '"control_pid": *[0-9]*' | head -n 1)
	pid=${pid##*[!0-9]}
	[ -n "$pid" ] && is_child "$pid" "$supervisor" || return 1
	grep -q '^nvidia-cuda-mps' "/proc/$pid/comm" 2>/dev/null && echo "$pid"
}

# ready_again OLD_CONTROL: a new control daemon is there and its instance is ready
ready_again() {
	local pid

	pid=$(control_pid) && [ "$pid" != "$1" ] && instances_ready
}

instance_directory() {
	local directory

	for directory in "$tmp"/run/instance/*/; do
		[ -d "$directory" ] && echo "${directory%/}" && return
	done
	return 1
}

# ps_lists PID: in NVIDIA's own list of clients, kept in ps.out. The control daemon answers one
# command at a time, so that one of the supervisor's can get in the way: ask again.
ps_lists() {
	local directory

	directory=$(instance_directory) || return
	echo ps | CUDA_MPS_PIPE_DIRECTORY=$directory timeout 5 nvidia-cuda-mps-control \
		>"$tmp/job/ps.out" 2>"$tmp/job/ps.err"
	grep -q "^$1 " "$tmp/job/ps.out"
}

# lists_only PID OTHER
lists_only() {
	ps_lists "$1" && ! grep -q "^$2 " "$tmp/job/ps.out"
}

# --- jobs

# new_output NAME: there before the job runs, for those who look whether it has said something
new_output() {
	: >"$tmp/job/$1.out"
	: >"$tmp/job/$1.err"
}

# start_job NAME COMMAND...: in the background; its input ends with end_job, or with this script
start_job() {
	local name=$1 input="$tmp/job/$1.input"

	shift
	: >"$input"
	new_output "$name"
	timeout -k 5 120 "$@" >"$tmp/job/$name.out" 2>"$tmp/job/$name.err" \
		< <(while [ -e "$input" ]; do sleep 0.02; done) &
	job=$!
	jobs_started+=("$job")
}

# What jobs are left end: by the end of their input, then by signals.
end_jobs() {
	local pid

	rm -f "$tmp"/job/*.input
	for pid in "${jobs_started[@]}"; do
		end_child "$pid" 10
	done
	jobs_started=()
}

# end_job NAME PID: gives the job's exit status
end_job() {
	rm -f "$tmp/job/$1.input"
	wait "$2"
}

# start_spinner NAME COMMAND...
start_spinner() {
	local name=$1

	shift
	new_output "$name"
	timeout -k 5 180 "$@" </dev/null >"$tmp/job/$name.out" 2>"$tmp/job/$name.err" &
	jobs_started+=("$!")
}

# run_job NAME COMMAND...: to its end, without input
run_job() {
	local name=$1

	shift
	timeout -k 5 60 "$@" </dev/null >"$tmp/job/$name.out" 2>"$tmp/job/$name.err"
}

# run_lease NAME COMMAND...: likewise, under a lease
run_lease() {
	local name=$1

	shift
	run_job "$name" "$mpsctl" lease -- "$@"
}

# job_says NAME PATTERN
job_says() {
	grep -q -- "$2" "$tmp/job/$1.out"
}

ready_or_over() {
	job_says "$1" '^ready' || gone "$2"
}

# await_ready NAME PID: the job of this pid says so, or has ended
await_ready() {
	await 30 ready_or_over "$@"
}

# is_told NAME TEXT: mpsctl has said so to the job
is_told() {
	grep -qF -- "$2" "$tmp/job/$1.err"
}

# expect_lease NAME REGEX TEXT: the check that the lease says so within 5 s
expect_lease() {
	await 5 lease_says "$1" "$2"
	expect "$3" "$(lease_json "$1")" lease_says "$1" "$2"
}

# mps_of NAME: 1 under MPS, 0 without
mps_of() {
	sed -n 's/^\(dev\|ready\|launches\) .*\bmps \([01]\).*/\2/p' "$tmp/job/$1.out" | head -n 1
}

# init_ms NAME
init_ms() {
	sed -n 's/^init_ms //p' "$tmp/job/$1.out"
}

# client_pid NAME
client_pid() {
	sed -n 's/^ready pid \([0-9]*\) .*/\1/p' "$tmp/job/$1.out"
}

# error_of NAME: the CUDA error's number
error_of() {
	sed -n 's/^error \([0-9]*\) .*/\1/p' "$tmp/job/$1.out" | head -n 1
}

# error_usec NAME: when, on the clock of `cuda_client now`
error_usec() {
	sed -n 's/^error .* at \([0-9]*\)$/\1/p' "$tmp/job/$1.out" | head -n 1
}

# expect_mps NAME TEXT: the check that this finished or ready job says `mps 1`
expect_mps() {
	expect "$2" "@$1" test "$(mps_of "$1")" = 1
}
