#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# What a lease promises its job, and what it costs the others: that it is under MPS, on the GPU that is
# named; that it ends with its holder; that nobody gets more than there is, and everybody is told.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # those are of jq, or for another shell
# shellcheck disable=SC2034 # EXTRA is read by lib.bash
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load cases

# ---------------------------------------------------------------- 1

NOBODY='no client attached'

# lease_says NAME REASON|null
lease_says() {
	[[ $(leases_json --arg name "$1" '.leases[] | select(.name == $name) | .reason | tostring') == "$2" ]]
}

# Its line in the text of `status` or `leases`.
line_of() {
	ctl "$1" | grep -E " $2( |\$)"
}

age_ms() {
	leases_json --arg name "$1" '.leases[] | select(.name == $name) | now * 1000 - .granted_usec / 1000 | floor'
}

@test "case 1: a job that never connects: no client attached, after attach_grace and not before" {
	quick attach_grace=0.5
	start_supervisor
	hold first --gpu 0
	lease_says first null || (($(age_ms first) >= 500))
	eventually 3 lease_says first "$NOBODY"
	age=$(age_ms first)
	echo "said $age ms after the grant"
	((age >= 500 && age < 2000))
	leases_are '.leases[0] | .state == "granted" and .attached == []'
	line_of leases first | grep "$NOBODY"
	line_of status first | grep "$NOBODY"
	# It is said, and nothing is done about it: when it connects after all it is as any other.
	directory=$(directory_of first)
	client_through late "$directory" hold 600
	eventually 2 lease_says first null
	run ! grep "$NOBODY" <<<"$(ctl status)"
	run ! gone "${STARTED[0]}"
}

@test "case 1: a job that connects is not one without a client" {
	quick attach_grace=0.5
	start_supervisor
	hold_attached first --gpu 0
	first=$PID
	hold clock --gpu 0
	eventually 3 lease_says clock "$NOBODY"
	lease_says first null
	leases_are --argjson pid "$first" '.leases[] | select(.name == "first") | .attached == [$pid]'
	run ! grep "$NOBODY" <<<"$(line_of status first)"
}

# Release 535 does not name its clients: what is not known is not said.
@test "case 1: with the log lines of 535 nobody is called without a client who has one" {
	knobs version=535
	quick attach_grace=0.5
	start_supervisor
	hold_attached first --gpu 0
	eventually 5 past "$(leases_json '.leases[0].granted_usec')" 1000000
	lease_says first null
}

@test "case 1: the grace may be 0: nothing is ever said" {
	quick attach_grace=0.0
	start_supervisor
	hold first --gpu 0
	eventually 5 past "$(leases_json '.leases[0].granted_usec')" 1000000
	lease_says first null
}

# no_path REGEX: who asks now for a path gets none, but a reason.
no_path() {
	run --separate-stderr ctl lease --gpu 0 --format path --wait 0.7
	echo "$status $output $stderr"
	((status == 1 || status == 4))
	[[ -z $output && $stderr =~ $1 ]]
}

no_lease_on_a_broken_daemon() {
	begin
	run -0 --separate-stderr ctl lease --gpu 0 --pid "$OTHER_PID" --format path
	[[ -d $output ]]
	# It has ended, and does not come back.
	mv "$BIN/nvidia-cuda-mps-control" "$BIN/control"
	printf '#!/bin/sh\nexit 1\n' >"$BIN/nvidia-cuda-mps-control"
	chmod +x "$BIN/nvidia-cuda-mps-control"
	kill -KILL "$(control_pid)"
	no_path 'starting|backoff|failed'
	mv "$BIN/control" "$BIN/nvidia-cuda-mps-control"
	eventually 10 state_is ready
	# It is there, and hears nobody.
	kill -STOP "$(control_pid)"
	eventually 5 state_is unresponsive
	no_path 'unresponsive|does not answer'
	n_leases 0 queued
	other_untouched
}

@test "case 1: a daemon that has ended or hears nobody: no path" {
	quick backoff_min=0.5 limit=20
	no_lease_on_a_broken_daemon
}

@test "case 1: the same with the real daemon" {
	real backoff_min=0.5 limit=20
	no_lease_on_a_broken_daemon
}

# ---------------------------------------------------------------- 2

# inside COMMAND…: where the supervisor DEFAULT sees /run and /tmp, with nothing set.
inside() {
	nsenter --mount --target "$DEFAULT" "${ENVIRONMENT[@]}" env -u MPS_SUPERVISOR_SOCKET "$@"
}

ready_inside() {
	[[ $(inside mpsctl status --json 2>/dev/null | jq -r '.instances[0].state') == ready ]]
}

answers_inside() {
	[[ $(inside mpsctl lease --gpu 0 -- sh -c "$PROBE" 2>/dev/null) =~ $ANSWER ]]
}

# With the configuration as it is shipped, where /run, /tmp and /var are empty.
default_directories() {
	local when
	need_root
	unshare --mount true || skip "needs mount namespaces"
	cp "$BATS_TEST_DIRNAME/../../conf/mps-supervisor.conf" "$WORK/default.conf"
	cat >"$WORK/session" <<-'END'
		set -e
		mount --make-rprivate /
		mount --bind "$1" /mnt
		mount -t tmpfs -o mode=1777 tmpfs /tmp
		mkdir "$1"
		mount --bind /mnt "$1"
		umount /mnt
		mount -t tmpfs tmpfs /run
		mount -t tmpfs tmpfs /var/lib
		mount -t tmpfs tmpfs /var/log
		exec mps-supervisord -c "$1/default.conf"
	END
	background default unshare --mount bash "$WORK/session" "$WORK"
	DEFAULT=$PID
	eventually 15 ready_inside
	# A server that is started ahead may be in the way of a command once.
	eventually 10 answers_inside
	# Seen from a lasting process; the supervisor's own end is looked at too.
	background witness nsenter --mount --target "$DEFAULT" sleep 600
	witness=$PID
	for when in running stopped; do
		if [[ $when == stopped ]]; then
			kill -TERM "$DEFAULT"
			exits_with 0 "$DEFAULT"
			DEFAULT=$witness
		fi
		inside find /tmp /run /var/lib /var/log -path "$WORK" -prune -o -print >"$WORK/found.$when"
		says "$WORK/found.$when" '^/run/mps-supervisor'
		cat "$WORK/found.$when"
		run ! says "$WORK/found.$when" 'nvidia-mps'
	done
	says "$WORK/found.running" '^/run/mps-supervisor/socket$'
}

@test "case 2: the configuration that is shipped: neither /tmp/nvidia-mps nor /run/nvidia-mps is ever there" {
	default_directories
}

@test "case 2: the same with the real daemon" {
	real
	default_directories
}

@test "case 2: /tmp/nvidia-mps and /run/nvidia-mps are refused, with the reason; nothing is spawned" {
	knobs "dump=$WORK/dump"
	for directory in /tmp/nvidia-mps /run/nvidia-mps; do
		[[ ! -e $directory ]] || skip "$directory is in use here"
		echo "runtime_directory = \"$directory\";" >"$CONF"
		run -1 with timeout 5 mps-supervisord -c "$CONF"
		echo "$output"
		[[ $output == *"$CONF:1:"*"$directory"* && $output == *"MPS's default directory"* ]]
		[[ ! -e $directory && ! -e $WORK/dump ]]
	done
}

# ---------------------------------------------------------------- 5

FOREIGN=(env CUDA_VISIBLE_DEVICES=7 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=5 CUDA_DEVICE_ORDER=FASTEST_FIRST
	CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps CUDA_MPS_LOG_DIRECTORY=/tmp CUDA_LAUNCH_BLOCKING=1
	CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1M LD_PRELOAD= SECRET=1)

# environment_of PID: sorted.
environment_of() {
	tr '\0' '\n' <"/proc/$1/environ" | sort
}

# environment_is PID GPU: that of a control daemon of this GPU alone, and of nobody else's choice.
environment_is() {
	local directory
	directory=$(environment_of "$1" | sed -n 's/^CUDA_MPS_PIPE_DIRECTORY=//p')
	[[ $directory == "$RUN/instance/"* ]]
	environment_of "$1" | grep -v '^PATH=' | diff - <(sort) <<-END
		CUDA_MPS_LOG_DIRECTORY=$directory
		CUDA_MPS_PIPE_DIRECTORY=$directory
		CUDA_VISIBLE_DEVICES=$2
	END
}

@test "case 5: the control daemon's environment is the supervisor's choice" {
	knobs "dump=$WORK/dump"
	EXTRA=("${FOREIGN[@]}")
	start_supervisor
	eventually 2 dumped
	control_dump
	environment_is "$(control_pid 0)" "$GPU0"
	environment_is "$(control_pid 1)" "$GPU1"
	[[ $(control_dump | grep '^argv') == *"argv -f" ]]
	[[ $(control_dump | grep '^fd 0 ') == "fd 0 /dev/null" ]]
	[[ $(control_dump | sed -n 's/^fd 1 //p') == "$RUN/state/"* ]]
	# The server of a lease has the same device, and serves it alone.
	run -0 ctl lease --gpu 1 -- cuda-client init
	[[ $output == *" device=$GPU1" ]]
	environment_is "$(server_pid 1)" "$GPU1"
	# Nor does one that is started later take anything over.
	old=$(control_pid)
	kill -KILL "$old"
	eventually 10 ready_again 2
	environment_is "$(control_pid)" "$GPU0"
}

@test "case 5: the real control daemon's environment is the supervisor's choice" {
	real
	EXTRA=("${FOREIGN[@]}")
	start_supervisor
	environment_is "$(control_pid 0)" "$GPU0"
	environment_is "$(control_pid 1)" "$GPU1"
	run -0 ctl lease --gpu 1 -- sh -c "$PROBE"
	[[ $output =~ $ANSWER ]]
	kill -KILL "$(control_pid)"
	eventually 10 ready_again 2
	environment_is "$(control_pid)" "$GPU0"
}

# ---------------------------------------------------------------- 6

@test "case 6: CUDA_VISIBLE_DEVICES=2 and a lease on GPU 2: the job has the UUID, and nothing is said" {
	gpus 3
	start_supervisor
	ENVIRONMENT+=(CUDA_VISIBLE_DEVICES=2)
	run -0 --separate-stderr ctl lease --gpu 2 -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"; cuda-client init'
	echo "$output $stderr"
	[[ ${lines[0]} == "$GPU2" && ${lines[1]} == "mps server="*" device=$GPU2" && -z $stderr ]]
	run -0 --separate-stderr ctl lease --gpu 2 --pid $$
	[[ $output == *"CUDA_VISIBLE_DEVICES='$GPU2'"* && -z $stderr ]]
}

# disagreement OPTION…: one line that names the index and the GPU of the lease.
disagreement() {
	run -0 --separate-stderr ctl lease "$@"
	echo "$stderr"
	[[ $output == *"$GPU1"* ]]
	[[ -n $stderr && $stderr != *$'\n'* && $stderr == mpsctl:* ]]
	[[ $stderr =~ CUDA_VISIBLE_DEVICES[^A-Z]*2[^0-9].*GPU\ 1\ \($GPU1\) ]]
}

@test "case 6: the lease is on another GPU than the index says: one line names both" {
	gpus 3
	start_supervisor
	ENVIRONMENT+=(CUDA_VISIBLE_DEVICES=2)
	disagreement --gpu 1 -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"'
	disagreement --gpu 1 --pid $$
	# Only errors.
	run -0 --separate-stderr ctl lease -q --gpu 1 -- true
	[[ -z $stderr ]]
}

@test "case 6: what names the lease's GPU, or names none by index, is no disagreement" {
	gpus 3
	start_supervisor
	for visible in 1 "$GPU1" GPU-bbbb ''; do
		run -0 --separate-stderr with env CUDA_VISIBLE_DEVICES="$visible" mpsctl lease --gpu 1 -- \
			sh -c 'echo "$CUDA_VISIBLE_DEVICES"'
		echo "$visible: $stderr"
		[[ $output == "$GPU1" && -z $stderr ]]
	done
}

# ---------------------------------------------------------------- 35 (the rest is in holders.bats)

@test "case 35: the listing shows pid, user and age of each holder" {
	start_supervisor
	hold first --gpu 0
	if ((EUID == 0)); then
		AS=1000 hold second --gpu 1
	fi
	second=$PID
	eventually 5 past "$(leases_json '.leases[] | select(.name == "first") | .granted_usec')" 1000000
	line=$(line_of leases first)
	echo "$line"
	[[ $line =~ (^|\ )${STARTED[0]}\ +[1-9][0-9]*\ ?s ]]
	((EUID != 0)) || line_of leases second | grep -E " 1000( \([^)]*\))? +$second "
	leases_are --argjson pids "[${STARTED[0]},$second]" '[.leases[].pid] | sort == ($pids | unique)'
}

# ---------------------------------------------------------------- 37

monitoring() {
	ctl lease --gpu 0 -- true && [[ -s $WORK/monitor.out ]]
}

# positions_are N: those who wait are in the order in which they asked, 1 to N.
positions_are() {
	leases_are --argjson n "$1" '[.leases[] | select(.state == "queued")]
		| length == $n and ([sort_by(.requested_usec)[].position] == [range(1; $n + 1)])'
}

# The most that were there at a time, by lines "TIME +1|-1"; an end counts before a beginning.
most_at_a_time() {
	sort -k1,1n -k2,2n | awk '{ now += $2; if (now > most) most = now } END { print most + 0 }'
}

# cap 4, 40 requesters with hold times, five more that die while they wait.
forty_for_four() {
	local i order
	start_supervisor
	background monitor mpsctl monitor --json
	eventually 5 monitoring
	eventually 5 no_leases
	hold first --gpu 0 -c 4
	first=$PID
	cat >"$WORK/job" <<-'END'
		echo "$EPOCHREALTIME +1"
		mpsctl leases --json >"$2"
		read -rt "0.0$1" <> <(:)
		echo "$EPOCHREALTIME -1"
		echo served
	END
	# Some begin only then, so that asking and leaving overlap too.
	for i in {1..30}; do
		background "job$i" mpsctl lease -q --gpu 0 --name "job$i" -- bash "$WORK/job" "$((RANDOM % 9 + 1))" "$WORK/seen.$i"
	done
	for i in {1..5}; do
		background "dead$i" mpsctl lease -q --gpu 0 --name "dead$i" -- bash "$WORK/job" 1 "$WORK/dead"
		dead[i]=$PID
	done
	eventually 20 n_leases 35 queued
	positions_are 35
	run -1 --separate-stderr ctl lease --gpu 0 --no-wait
	echo "$stderr"
	[[ -z $output && $stderr == *"full: 4/4"* ]]
	run -125 --separate-stderr ctl lease --gpu 0 --no-wait -- true
	[[ $stderr == *"full: 4/4"* ]]
	kill -KILL "${dead[@]}"
	eventually 2 n_leases 30 queued
	positions_are 30
	leases_are '[.leases[] | select(.state == "queued") | .name | select(startswith("dead"))] == []'
	kill -KILL "$first"
	for i in {31..40}; do
		background "job$i" mpsctl lease -q --gpu 0 --name "job$i" -- bash "$WORK/job" "$((RANDOM % 9 + 1))" "$WORK/seen.$i"
	done
	eventually 40 all_served
	eventually 5 no_leases
	# Nobody who had died ran.
	[[ -z $(cat "$WORK"/dead*.out) && ! -e $WORK/dead ]]
	# As the jobs saw it,
	[[ $(cat "$WORK"/job*.out | grep -E '^[0-9.]+ [+-]1$' | most_at_a_time) -le 4 ]]
	# and as it happened, one event after the other. (Before the first there was none.)
	jq -se --argjson first "$first" 'map(select(.lease != null))
		| (map(select(.pid == $first)) | .[0].lease) as $first | .[(map(.lease) | index($first)):]
		| reduce .[] as $e ({now: 0, most: 0}; (if $e.lease == $first then 4 else 1 end) as $clients
			| if $e.kind == "lease-granted" then .now += $clients
			elif $e.kind == "lease-ended" then .now -= $clients else . end
			| .most = ([.most, .now] | max))
		| debug | .now == 0 and .most == 4' "$WORK/monitor.out"
	# First come, first served: by when it was asked for, grants are in order.
	jq -se '[.[].leases[] | select(.state == "granted") | {id, requested_usec, granted_usec}] | unique_by(.id)
		| length == 40 and ([sort_by(.requested_usec)[].granted_usec] | . == sort)' "$WORK"/seen.*
}

all_served() {
	[[ $(cat "$WORK"/job*.out | grep -c '^served$') == 40 ]]
}

@test "case 37: cap 4, 40 requesters: never more than 4, all served in order, the dead leave the queue" {
	quick max_clients=4
	forty_for_four
}

@test "case 37: the same with the real daemon" {
	real max_clients=4
	forty_for_four
}

# ---------------------------------------------------------------- 39

second_user_waits() {
	local start took
	need_root
	gpus 1
	start_supervisor
	AS=1000 background first mpsctl lease --name first -- sh -c "$PROBE; exec sleep 600"
	eventually 10 says "$WORK/first.out" "$ANSWER"
	start=$(now_ms)
	AS=1001 background second mpsctl lease --name second -- sh -c "$PROBE"
	second=$PID
	eventually 5 says "$WORK/second.err" "GPU in use by uid 1000$NAMED, 1 lease"
	took=$(($(now_ms) - start))
	echo "told after $took ms: $(<"$WORK/second.err")"
	((took < 1000))
	queued second
	leases_are '.leases[] | select(.name == "second") | .uid == 1001 and .position == 1 and (.reason | test("uid 1000, 1 lease"))'
	AS=1001 run -125 --separate-stderr ctl lease --no-wait -- true
	[[ $stderr == *"uid 1000"* ]]
	AS=1001 run -1 --separate-stderr with sh -c 'mpsctl lease --no-wait; exit $?'
	[[ -z $output && $stderr == *"uid 1000"* ]]
	AS=1001 run -4 with sh -c 'mpsctl lease -q --wait 0.2; exit $?'
	# The same user gets in meanwhile only in its turn, which is behind the second.
	AS=1000 run -125 ctl lease -q -w 0.2 -- true
	kill -TERM "${STARTED[0]}"
	exits_with 0 "$second"
	says "$WORK/second.out" "$ANSWER"
	eventually 5 no_leases
}

@test "case 39: a second user is told why it waits, and is granted after the first" {
	second_user_waits
}

@test "case 39: the same with the real daemon" {
	real
	second_user_waits
}
