#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# Supervisors that are killed again and again, in the middle of taking over too: nobody notices. How
# long a restart takes, and keeps others waiting. And what was kept is damaged: nothing is believed or
# touched that cannot be proven.
#
#   KILLS=2000 SEED=7 bats tests/integration/adoption_kills.bats     more of them, at other moments
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell, or jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load adoption

setup() {
	prepare 4
	configure 'timeouts = { reclaim = 600.0; straggler_grace = 600.0; };' 'idle_server_stop = 0.0;'
	# Reproducible where it can be: the moments are.
	RANDOM=${SEED:-4711}
}

# 20 jobs: most have a keeper, some not; on one device and on two; some leases live with nobody, some
# with a connection that was lost.
start_jobs() {
	local i gpu
	for i in {1..6}; do
		hold_attached "keeper$i" --gpu $((i % 2)) -t $((i * 5))
	done
	for i in {1..4}; do
		hold_attached "quiet$i" -q --gpu $((i % 2)) --clients 2 -m 1G
	done
	for i in {1..5}; do
		hold_attached "gang$i" --gpus 2 --gpu 2 --gpu 3
	done
	for i in {1..3}; do
		gpu=$((i % 2))
		ctl lease --detach --name "detached$i" --gpu "$gpu" >/dev/null
		background "job$i" env CUDA_MPS_PIPE_DIRECTORY="$(directory_of "detached$i")" \
			CUDA_VISIBLE_DEVICES="$(status_json ".instances[$gpu].name")" cuda-client hold 600
		eventually 5 says "$WORK/job$i.out" '^mps server='
	done
	hold idle1 --gpu 0
	hold idle2 --gpu 1 --on-loss terminate
	JOBS=("${STARTED[@]}")
	stream_lease lost1 '{"devices":["0"],"name":"lost1"}'
	stream_lease lost2 '{"devices":["1"],"name":"lost2"}'
	eventually 5 n_leases 22
	eventually 5 status_is '[.instances[].clients[]] | length == 18'
}

# Connects anew whenever it can, so that it hears what every supervisor says.
watch_events() {
	message Monitor '{}' '"more":true' >"$WORK/monitor.call"
	printf '\0' >>"$WORK/monitor.call"
	background monitor bash -c "while :; do rawsock '$SOCKET' 600 <'$WORK/monitor.call' 2>/dev/null; read -rt 0.005 <> <(:); done"
}

jobs_are_well() {
	local pid
	for pid in "${JOBS[@]}"; do
		! gone "$pid" || return 1
	done
	! cat "$WORK"/{keeper,gang,quiet,idle,job}*.err | grep -v '^mpsctl: waiting for a lease: ' || return 1
	n_lines "$N_STARTED" "$LOG" 'started control daemon'
}

# 200 take about 27 s on two processors; KILLS and SEED ask for others.
@test "case 27: 200 supervisors, each killed at a random moment: no job, daemon or lease is lost or doubled" {
	local before leases kills=${KILLS:-200} n_ready=0 n_lines files
	start_supervisor
	start_jobs
	before=$(instances) leases=$(leases)
	N_STARTED=$(grep -c 'started control daemon' "$LOG")
	files=$(files_left | sort)
	n_lines=$(wc -l <"$LOG")
	watch_events
	for ((i = 1; i <= kills; i++)); do
		kill_supervisor
		launch_supervisor
		# Half of them in the middle of taking over.
		if ((i % 2)); then
			a_moment 300
		else
			a_moment 40
		fi
		((i % 25)) || jobs_are_well
		((i % 50)) || {
			eventually 15 all_ready
			same_as instances "$before"
		}
	done
	eventually 15 all_ready
	same_as instances "$before"
	same_as leases "$leases"
	jobs_are_well
	diff <(echo "$files") <(files_left | sort)
	n_ready=$(grep -c "$GPU0: ready" "$LOG")
	echo "# $kills supervisors were killed, $((n_ready - 1)) of them when they were ready" >&3
	# What is told of is that instances start and are ready, nothing else.
	# Of events there are only those of instances that start and are ready.
	jq -rR 'fromjson? | .parameters.event | "\(.kind) \(.message)"' "$WORK/monitor.out" | sort | uniq -c >"$WORK/events"
	cat "$WORK/events"
	run ! grep -vE ' instance-state (starting|ready)$' "$WORK/events"
	run ! grep -E 'has ended|did not come back|is gone|lost|draining|cannot|ending' <(tail -n "+$n_lines" "$LOG")
	# All of it ends as ever, and each end is told once.
	eventually 5 monitored
	: >"$WORK/monitor.out"
	for name in detached1 detached2 detached3 lost1 lost2; do
		ctl release "$(lease_id "$name")"
	done
	for pid in "${JOBS[@]}"; do
		kill -KILL "$pid"
	done
	eventually 5 no_leases
	eventually 5 no_gangs
	eventually 2 each_end_was_told "$(jq -r '.[].id' <<<"$leases" | sort)"
}

# The monitor hears what happens now.
monitored() {
	ctl lease -q --name probe -- true
	says "$WORK/monitor.out" '"lease-ended"'
}

# each_end_was_told IDS
each_end_was_told() {
	[[ $(jq -r '.parameters.event | select(.kind == "lease-ended") | .lease' "$WORK/monitor.out" | sort) == "$1" ]]
}

eight_gpus() {
	local i
	for i in {0..7}; do
		echo "$i, GPU-0000000$i-0000-0000-0000-000000000000, 00000000:0$i:00.0, NVIDIA H200, Default, Disabled, Enabled, 143771"
	done >"$BIN/standin.gpus"
}

@test "8 instances and 300 leases are taken over within 2 s" {
	local start took best=999999 worst=0
	eight_gpus
	start_supervisor
	for _ in {1..300}; do
		message AcquireLease '{"bind":"none"}'
		printf '\0'
	done >"$WORK/calls"
	with rawsock -c 300 "$SOCKET" 20 <"$WORK/calls" >"$WORK/answers"
	n_lines 300 "$WORK/answers" '"granted"'
	before=$(leases)
	for _ in {1..5}; do
		kill_supervisor
		start=${EPOCHREALTIME/./}
		start_supervisor
		took=$((($(status_json '[.instances[].since_usec] | max') - start) / 1000))
		((took >= best)) || best=$took
		((took <= worst)) || worst=$took
		status_is '.instances | length == 8 and all(.generation == 1 and .restarts == 0)'
		same_as leases "$before"
	done
	echo "# 8 instances and 300 leases ready $best to $worst ms after the start of a supervisor (5 runs)" >&3
	((worst < 2000))
	n_lines 8 "$LOG" 'started control daemon'
	jq -r '.parameters.lease.id' "$WORK/answers" | xargs "${ENVIRONMENT[@]}" mpsctl release
	eventually 5 no_leases
}

takes_a_lease() {
	ctl lease -q -- true 2>/dev/null
}

@test "a lease that is asked for during a restart waits less than 2 s" {
	local start took sum=0 worst=0
	start_supervisor
	for i in {1..10}; do
		hold "job$i"
	done
	for _ in {1..20}; do
		kill_supervisor
		start=${EPOCHREALTIME/./}
		launch_supervisor
		until takes_a_lease; do
			((${EPOCHREALTIME/./} - start < 10000000))
		done
		took=$(((${EPOCHREALTIME/./} - start) / 1000))
		((sum += took))
		((took <= worst)) || worst=$took
	done
	echo "# a lease asked for at a restart: $((sum / 20)) ms on average, $worst ms at most (20 restarts, 10 jobs)" >&3
	((worst < 2000))
	n_leases 10
}

# ---------------------------------------------------------------- what cannot be proven

# Everything was damaged: the next one starts clean, ends the daemons that are proven to be of ours,
# nobody else, and says so.
starts_clean() {
	local file
	local -a daemons
	gpus 2
	start_supervisor
	hold_attached first --gpu 0
	job=$PID
	ctl lease --detach --gpu 1
	# As like ours as may be, but on a directory of its own.
	mkdir "$WORK/other"
	background bystander env CUDA_MPS_PIPE_DIRECTORY="$WORK/other" CUDA_MPS_LOG_DIRECTORY="$WORK/other" \
		CUDA_VISIBLE_DEVICES="$GPU0" nvidia-cuda-mps-control -f
	bystander=$PID
	daemons=("$(control_pid 0)" "$(control_pid 1)")
	kill_supervisor
	for file in "$RUN"/state/*.{instance,lease}; do
		"$@" "$file"
	done
	start_supervisor
	for i in 0 1; do
		gone "${daemons[i]}"
		[[ $(generation "$i") == 1 ]]
		log_says "ending control daemon ${daemons[i]}"
	done
	no_leases
	run ! gone "$bystander"
	run ! gone "$job" || exits_with 10 "$job"
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	[[ $output == "mps server=$(server_pid 0) "* ]]
	# And what it has now is adopted again.
	daemons=("$(control_pid 0)" "$(control_pid 1)")
	ctl lease --detach --gpu 1
	kill_supervisor
	start_supervisor
	[[ "$(control_pid 0) $(control_pid 1)" == "${daemons[*]}" ]]
	n_leases 1
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	ctl release "$(leases_json '.leases[0].id')"
}

tear() {
	truncate -s $(($(stat -c %s "$1") / 2)) "$1"
}

@test "state files that are gone: a clean start" {
	starts_clean rm
}

@test "torn state files: a clean start" {
	starts_clean tear
}

@test "state files of another version: a clean start" {
	starts_clean sed -i -E 's/"version":[0-9]+/"version":999/'
}

@test "state files of another boot: a clean start" {
	starts_clean sed -i -E 's/"boot_id":"[^"]*"/"boot_id":"00000000-0000-0000-0000-000000000000"/'
}

@test "state files that somebody else owns: a clean start" {
	need_root
	starts_clean chown 1000
}

@test "only a daemon's state file is torn: whoever had a lease is told that the GPU is lost" {
	gpus 2
	start_supervisor
	hold first --gpu 0
	hold other --gpu 1
	old=$(control_pid 0) other=$(control_pid 1)
	name=$(tr '\0' '\n' <"/proc/$old/environ" | sed -n 's,^CUDA_MPS_PIPE_DIRECTORY=.*/,,p')
	kill_supervisor
	tear "$RUN/state/$name.instance"
	start_supervisor
	gone "$old"
	[[ $(control_pid 1) == "$other" ]]
	eventually 2 n_lines 1 "$WORK/first.err" 'interrupted|revoked'
	run ! says "$WORK/other.err" .
}

@test "a state file that names strangers: they are neither taken over nor touched" {
	gpus 2
	start_supervisor
	hold first --gpu 0
	ctl lease --detach --gpu 0 --name second
	background stranger sleep 600
	stranger=$PID
	ticks=$(sed 's/.*) //' "/proc/$stranger/stat" | cut -d ' ' -f 20)
	old=$(control_pid 0)
	kill_supervisor
	for file in "$RUN"/state/*.instance; do
		sed -i -E "s/\"control\":\{[^}]*\}/\"control\":{\"pid\":$stranger,\"start_ticks\":$ticks}/" "$file"
	done
	start_supervisor
	run ! gone "$stranger"
	gone "$old"
	status_is --argjson pid "$stranger" 'all(.instances[]; .control_pid != $pid)'
	# A lease's process is another one when it has started at another time.
	kill_supervisor
	for file in "$RUN"/state/*.lease; do
		sed -i -E 's/"start_ticks":[0-9]+/"start_ticks":1/' "$file"
	done
	start_supervisor
	ended first
	granted second
	run ! gone "${STARTED[0]}"
}

@test "what a supervisor was writing when it was killed is removed, also beside what it kept" {
	gpus 2
	start_supervisor
	hold first --gpu 0
	kill_supervisor
	for file in 0badcafe.lease.new "$(lease_id_in_files).lease.new" 0badcafe.instance.new; do
		echo '{"kind":"lea' >"$RUN/state/$file"
	done
	start_supervisor
	granted first
	[[ -z $(find "$RUN" -name '*.new') ]]
}

lease_id_in_files() {
	basename "$RUN"/state/*.lease .lease
}

# A process that a killed supervisor was just starting has its descriptors until it is another program.
@test "the lock of a killed supervisor is free a moment later: that is waited for" {
	gpus 2
	start_supervisor
	hold first --gpu 0
	control=$(control_pid 0)
	kill_supervisor
	background child flock "$RUN/lock" sh -c 'echo locked; exec sleep 0.1'
	eventually 2 says "$WORK/child.out" locked
	start_supervisor
	[[ $(control_pid 0) == "$control" ]]
	granted first
}
