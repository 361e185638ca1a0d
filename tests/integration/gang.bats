#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# Leases of several devices: an instance of their own, which lives as long as its leases. What breaks
# and what crowds is in gang_trouble.bats.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell, or jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load gangs

setup() {
	prepare 4
	quick
}

teardown() {
	clean_up
}

# line_in_log REGEX: the number of the last line that matches.
line_in_log() {
	grep -nE -e "$1" "$LOG" | tail -n 1 | cut -d: -f1
}

@test "two devices: one instance, one directory, the environment; afterwards nothing of it is left" {
	start_supervisor
	ctl lease --gpu 1 -q -- cuda-client init
	ctl lease --gpu 2 -q -- cuda-client init
	eventually 2 has_server 1
	eventually 2 has_server 2
	servers=("$(server_pid 1)" "$(server_pid 2)")
	controls=("$(control_pid 0)" "$(control_pid 1)" "$(control_pid 2)" "$(control_pid 3)")
	# In the order of the machine, whatever order they are named in.
	background job mpsctl lease --gpus 2 --gpu 2 --gpu 1 -m 1G --name g -- \
		sh -c 'cat /proc/$0/stat /proc/$1/stat >&2; env; exec cuda-client hold 600' "${servers[@]}"
	job=$PID
	eventually 10 says "$WORK/job.out" '^mps server='
	gang=$(gang_of g)
	[[ $gang =~ ^gang-[0-9a-f]{8}$ ]]
	# The servers below were gone before the gang's daemon was started.
	gone "${servers[0]}"
	gone "${servers[1]}"
	started=$(line_in_log "^.*$gang: started control daemon")
	for server in "${servers[@]}"; do
		(($(line_in_log "MPS server $server has ended") < started))
	done
	n_lines 2 "$WORK/job.err" '^cat: /proc/[0-9]+/stat: No such file'
	# The instances below keep their daemons.
	for i in 0 1 2 3; do
		[[ $(control_pid "$i") == "${controls[i]}" ]]
	done
	# The job's environment.
	directory=$(directory_of g)
	says "$WORK/job.out" "^CUDA_VISIBLE_DEVICES=$GPU1,$GPU2\$"
	says "$WORK/job.out" '^CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G,1=1G$'
	says "$WORK/job.out" "^CUDA_MPS_PIPE_DIRECTORY=$directory\$"
	n_lines 1 "$WORK/job.out" "^mps server=[0-9]+ device=$GPU1\$"
	# What is listed.
	status_is --arg gang "$gang" --argjson uuids "[\"$GPU1\",\"$GPU2\"]" '.instances[] | select(.name == $gang) | .kind == "gang" and .state == "ready"
		and (.devices | map(.uuid)) == $uuids and (.devices | map(.index)) == [1, 2]
		and .leases == 1 and .clients_reserved == 1 and .generation == 1 and (.servers | length) == 1'
	leases_are --arg gang "$gang" --argjson uuids "[\"$GPU1\",\"$GPU2\"]" --argjson pid "$job" '.leases[0]
		| .instance == $gang and .devices == $uuids and .memory_bytes == 1073741824 and .attached == [$pid]'
	status_json --arg gang "$gang" '.instances[] | select(.name == $gang)' | conforms Instance
	ctl leases --json | jq '.leases[0]' | conforms Lease
	for pattern in "$GPU1" "$GPU2"; do
		ctl status "$gang" | grep -F "$gang"
		ctl status --json "$gang" | grep -F "$pattern"
	done
	# Its daemon's environment names both, and its directory is one of its own.
	control=$(gang_status g .control_pid)
	own=$(tr '\0' '\n' <"/proc/$control/environ" | sed -n 's/^CUDA_MPS_PIPE_DIRECTORY=//p')
	tr '\0' '\n' <"/proc/$control/environ" | grep '^CUDA_VISIBLE' | diff - <(echo "CUDA_VISIBLE_DEVICES=$GPU1,$GPU2")
	[[ $own == "$RUN/instance/"* && $own/control -ef $directory/control ]]
	[[ $(find "$RUN/instance" -mindepth 1 -maxdepth 1 | wc -l) == 5 ]]
	# Both are served through it, and no other.
	for gpu in "$GPU1" "$GPU2"; do
		DEVICE=$gpu run -0 through "$directory" cuda-client init
		[[ $output == "mps server="*" device=$gpu" ]]
	done
	run -10 through "$directory" cuda-client init
	[[ $output == "error 100" ]]
	# And nothing of it afterwards.
	kill -TERM "$job"
	exits_with 143 "$job"
	eventually 5 no_gangs
	gone "$control"
	[[ ! -e $own && ! -e $directory ]]
	no_leases
	for device in 1 2; do
		run -0 ctl lease --gpu "$device" --no-wait -q -- cuda-client init
		[[ $output == "mps server="* && $(control_pid "$device") == "${controls[device]}" ]]
	done
	status_is '.instances | map(.generation) == [1, 1, 1, 1] and all(.deaths == [])'
}

@test "while it lives its devices are leased to nobody else, and others are" {
	start_supervisor
	hold g --gpus 2 --gpu 1 --gpu 3
	g=$PID
	for device in 1 3; do
		run -1 --separate-stderr ctl lease --gpu "$device" --no-wait
		echo "$stderr"
		[[ -z $output && $stderr == *'1 lease of 2 GPUs'* ]]
	done
	for device in 1 3; do
		background "wait$device" mpsctl lease --gpu "$device" --name "wait$device" -- cuda-client init
		waiting[device]=$PID
		eventually 2 queued "wait$device"
	done
	run -1 ctl lease --gpus 2 --gpu 0 --gpu 1 --no-wait
	run -1 ctl lease --gpus 3 --no-wait
	for device in 0 2; do
		run -0 ctl lease --gpu "$device" --no-wait -q -- cuda-client init
		[[ $output == "mps server="* ]]
	done
	# Of any device: one that is free; and of any two.
	run -0 ctl lease --no-wait -q -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"'
	[[ $output == "$GPU0" || $output == "$GPU2" ]]
	run -0 ctl lease --gpus 2 --wait 5 -q -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"; cuda-client init'
	[[ ${lines[0]} == "$GPU0,$GPU2" && ${lines[1]} == "mps server="*" device=$GPU0" ]]
	queued wait1
	kill -KILL "$g"
	exits_with 0 "${waiting[1]}"
	exits_with 0 "${waiting[3]}"
	says "$WORK/wait1.out" '^mps server='
	says "$WORK/wait3.out" '^mps server='
	eventually 5 no_gangs
}

@test "as many as there are, and without a name: all of them" {
	start_supervisor
	run -0 ctl lease --gpus 4 -q -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"; cuda-client init'
	[[ ${lines[0]} == "$GPU0,$GPU1,$GPU2,$GPU3" && ${lines[1]} == "mps server="* ]]
	eventually 5 no_gangs
	run -0 ctl lease --gpus 3 --gpu GPU-dddd --gpu 00000000:00:07.0 --gpu 0 -q -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"'
	[[ $output == "$GPU0,$GPU1,$GPU3" ]]
}

@test "--gpus 1 is a lease as any other" {
	start_supervisor
	hold g --gpus 1 --gpu 2
	leases_are --arg gpu "$GPU2" '.leases[0] | .instance == $gpu and .devices == [$gpu]'
	no_gangs
}

# never REGEX PARAMETERS: Unsatisfiable, at once, whoever waits.
never() {
	call AcquireLease "$2" >"$WORK/answer"
	cat "$WORK/answer"
	[[ $(jq -r .error "$WORK/answer") == io.mps-supervisor.Unsatisfiable ]]
	[[ $(jq -r .parameters.reason "$WORK/answer") =~ $1 ]]
}

@test "more than there are: Unsatisfiable at once" {
	start_supervisor
	hold first -x --gpu 0
	never '5.*4' '{"count":5}'
	never '3.*2' '{"count":3,"devices":["0","3"]}'
	never '2.*1' '{"count":2,"devices":["1"]}'
	never '2.*1' '{"count":2,"devices":["1","GPU-bbbb"]}'
	never . '{"count":2,"devices":["1","2"],"clients":49}'
	start=$(now_ms)
	run -1 --separate-stderr ctl lease --gpus 5
	echo "$stderr"
	[[ -z $output && $stderr == *5*4* ]]
	run -125 ctl lease --gpus 5 -- true
	(($(now_ms) - start < 2000))
	no_gangs
}

@test "MIG devices: not in a lease of several, and not in the way of one" {
	cat >"$BIN/standin.gpus" <<-END
		0, $GPU0, 00000000:00:06.0, NVIDIA H200, Default, Enabled, Enabled, 143771
		mig, 1g.10gb, 0, MIG-11111111-0000-0000-0000-000000000000
		mig, 1g.10gb, 1, MIG-22222222-0000-0000-0000-000000000000
		1, $GPU1, 00000000:00:07.0, NVIDIA H200, Default, Disabled, Enabled, 143771
		2, $GPU2, 00000000:00:08.0, NVIDIA H200, Default, Disabled, Enabled, 143771
	END
	start_supervisor
	never MIG '{"count":2,"devices":["MIG-1","MIG-2"]}'
	never MIG '{"count":2,"devices":["MIG-1","1"]}'
	never MIG '{"count":3}'
	run -125 --separate-stderr ctl lease --gpus 2 --gpu MIG-1 --gpu MIG-2 -- true
	[[ $stderr == *MIG* ]]
	run -0 ctl lease --gpus 2 -q -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"'
	[[ $output == "$GPU1,$GPU2" ]]
}

# ---------------------------------------------------------------- shared

@test "two leases of one user share a gang of the same devices while their clients fit" {
	quick max_clients=2
	start_supervisor
	hold_attached g1 --gpus 2 --gpu 0 --gpu 1
	g1=$PID
	control=$(gang_status g1 .control_pid)
	hold_attached g2 --gpus 2 --gpu 1 --gpu 0
	g2=$PID
	[[ $(gang_of g1) == "$(gang_of g2)" && $(directory_of g1) != "$(directory_of g2)" ]]
	n_gangs 1
	[[ $(gang_status g2 '[.leases, .clients_reserved, (.clients | length)] | tostring') == '[2,2,2]' ]]
	run -1 --separate-stderr ctl lease --gpus 2 --gpu 0 --gpu 1 --no-wait
	echo "$stderr"
	[[ -z $output && $stderr == *'2 leases of 2 GPUs'* ]]
	background g3 mpsctl lease --name g3 --gpus 2 --gpu 0 --gpu 1 -- cuda-client hold 600
	g3=$PID
	eventually 2 queued g3
	kill -TERM "$g1"
	eventually 5 says "$WORK/g3.out" '^mps server='
	# As long as one of them is there the gang is the same.
	[[ $(gang_status g3 .control_pid) == "$control" ]]
	kill -TERM "$g2"
	exits_with 143 "$g2"
	[[ $(gang_status g3 .control_pid) == "$control" ]]
	run -1 ctl lease --gpu 0 --no-wait
	run ! gone "$g3"
	kill -TERM "$g3"
	eventually 5 no_gangs
	gone "$control"
}

@test "gangs that have a device in common follow each other" {
	start_supervisor
	hold g1 --gpus 2 --gpu 0 --gpu 1
	g1=$PID
	background g2 mpsctl lease --name g2 --gpus 2 --gpu 1 --gpu 2 -- cuda-client init
	g2=$PID
	eventually 2 queued g2
	background g3 mpsctl lease --name g3 --gpus 4 -- cuda-client init
	g3=$PID
	eventually 2 queued g3
	kill -TERM "$g1"
	exits_with 0 "$g2"
	exits_with 0 "$g3"
	says "$WORK/g2.out" "^mps server=[0-9]+ device=$GPU1"
	says "$WORK/g3.out" "^mps server=[0-9]+ device=$GPU0"
	eventually 5 no_gangs
}

@test "-x: nobody shares it" {
	start_supervisor
	hold g1 -x --gpus 2 --gpu 0 --gpu 1
	run -1 --separate-stderr ctl lease --gpus 2 --gpu 0 --gpu 1 --no-wait
	echo "$stderr"
	[[ -z $output && $stderr == *'1 lease of 2 GPUs'* ]]
	kill -KILL "$PID"
	run -0 ctl lease --gpus 2 --gpu 0 --gpu 1 --wait 5 -- true
}

@test "another user waits for the whole gang, and is told whose it is; then it is that one's" {
	need_root
	start_supervisor
	AS=1001 ctl lease --gpu 0 -q -- cuda-client init
	AS=1000 hold_attached g1 --gpus 2 --gpu 0 --gpu 1
	g1=$PID
	[[ $(gang_status g1 .uid) == 1000 && $(gang_status g1 '.servers[0].uid') == 1000 ]]
	AS=1001 background g2 mpsctl lease --name g2 --gpus 2 --gpu 0 --gpu 1 -- timeout 15 cuda-client init
	g2=$PID
	eventually 2 says "$WORK/g2.err" 'uid 1000'
	AS=1001 background single mpsctl lease --name single --gpu 0 -- timeout 15 cuda-client init
	single=$PID
	eventually 2 queued single
	kill -TERM "$g1"
	exits_with 0 "$g2"
	says "$WORK/g2.out" '^mps server='
	exits_with 0 "$single"
	says "$WORK/single.out" '^mps server='
}

@test "multi_user: two users in one gang" {
	need_root
	quick multi_user=true
	start_supervisor
	AS=1000 hold_attached g1 --gpus 2 --gpu 0 --gpu 1
	AS=1001 hold_attached g2 --gpus 2 --gpu 0 --gpu 1
	[[ $(gang_of g1) == "$(gang_of g2)" ]]
	[[ $(gang_status g1 '[.uid, .servers[0].uid, .multi_user] | tostring') == '[null,0,true]' ]]
}
