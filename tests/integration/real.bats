#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# The main job with NVIDIA's own control daemon of release 535, which answers all commands without a GPU.
# No server can start here, so nothing is started ahead and no CUDA program takes part.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load lib

setup() {
	prepare 2
	[[ -x $REAL_DIR/nvidia-cuda-mps-control ]] ||
		skip "no real control daemon in $REAL_DIR (tools/fetch-nvidia-mps)"
	cp "$REAL_DIR"/nvidia-cuda-mps-{control,server} "$BIN/"
	configure_real
	DEFAULT='echo get_default_active_thread_percentage | timeout 10 nvidia-cuda-mps-control'
}

teardown() {
	clean_up
}

configure_real() {
	configure 'prestart = false;'
}

@test "the real daemon answers inside a lease, for root and for another user" {
	start_supervisor
	run -0 ctl lease -- sh -c "$DEFAULT"
	[[ $output == 100.0 ]]
	need_root
	AS=1000 run -0 ctl lease -- sh -c "$DEFAULT"
	[[ $output == 100.0 ]]
	# Each device's daemon is another.
	for i in 0 1; do
		AS=65534 run -0 ctl lease --gpu "$i" -- sh -c "$DEFAULT"
		[[ $output == 100.0 ]]
	done
}

@test "the real daemon cannot be ended through a lease directory, not even by root" {
	start_supervisor
	control=$(control_pid 0)
	run ctl lease --gpu 0 -- sh -c 'echo quit | timeout 10 nvidia-cuda-mps-control'
	echo "$output"
	[[ $output == *rivilege* ]]
	run ! gone "$control"
	run -0 ctl lease --gpu 0 -- sh -c "$DEFAULT"
	[[ $output == 100.0 && $(control_pid 0) == "$control" ]]
	need_root
	AS=1000 run ctl lease --gpu 0 -- sh -c 'echo quit | timeout 10 nvidia-cuda-mps-control'
	run ! gone "$control"
}

@test "the real daemon is killed: ready again within 0.5 s, the same lease reaches the new one" {
	start_supervisor
	background first mpsctl lease --gpu 0 --name first -- sleep 600
	eventually 5 granted first
	directory=$(leases_json '.leases[0].pipe_directory')
	kill_control 500
	run -0 with env CUDA_MPS_PIPE_DIRECTORY="$directory" sh -c "$DEFAULT"
	[[ $output == 100.0 ]]
	eventually 2 n_lines 1 "$WORK/first.err" interrupted
	kill_control 2000
	run -0 with env CUDA_MPS_PIPE_DIRECTORY="$directory" sh -c "$DEFAULT"
	[[ $output == 100.0 ]]
	[[ $(generation 1) == 1 ]]
	# After release the old directory reaches nothing.
	kill -KILL "$PID"
	eventually 2 no_leases
	run with env CUDA_MPS_PIPE_DIRECTORY="$directory" sh -c "$DEFAULT"
	echo "$output"
	((status != 0))
	[[ $output != *100.0* ]]
}

@test "the real daemon: another user's directory and the instance's lead nowhere" {
	need_root
	start_supervisor
	AS=1000 hold first --gpu 0
	directory=$(leases_json '.leases[0].pipe_directory')
	AS=1000 run -0 with env CUDA_MPS_PIPE_DIRECTORY="$directory" sh -c "$DEFAULT"
	[[ $output == 100.0 ]]
	for path in "$directory" "$(readlink -f "$RUN"/instance/*/ | head -n 1)"; do
		AS=1001 run with env CUDA_MPS_PIPE_DIRECTORY="$path" sh -c "$DEFAULT"
		[[ $output != *100.0* ]]
	done
}

@test "case 27: the supervisor is killed and started again: the same real daemon, the same lease" {
	start_supervisor
	hold first --gpu 0
	old=$(control_pid) directory=$(directory_of first)
	kill -KILL "$SUPERVISOR"
	eventually 2 gone "$SUPERVISOR"
	wait "$SUPERVISOR" || true
	start_supervisor
	[[ $(control_pid) == "$old" && $(generation) == 1 ]]
	granted first
	for path in "$directory" "$(ctl lease --gpu 0 --pid $$ --format path)"; do
		run -0 with env CUDA_MPS_PIPE_DIRECTORY="$path" sh -c "$DEFAULT"
		[[ $output == 100.0 ]]
	done
	ctl release "$(lease_id first)"
	run ! test -e "$directory"
}

@test "the longest directories are ones that the real daemon can use" {
	local limit
	for ((limit = 90; limit > ${#WORK}; limit--)); do
		RUN=$WORK/$(printf "%0$((limit - ${#WORK} - 1))d" 0)
		configure_real
		if with mps-supervisord -n -c "$CONF" >/dev/null 2>&1; then break; fi
	done
	ENVIRONMENT+=("MPS_SUPERVISOR_SOCKET=$RUN/socket")
	start_supervisor
	run -0 ctl lease --gpu 0 -- sh -c "$DEFAULT"
	[[ $output == 100.0 ]]
}

@test "quiet: an idle supervisor sends the real daemon less than a command in ten seconds" {
	start_supervisor
	before=$(status_json .counters.control_commands)
	# What would poll more often than a second shows here.
	eventually 3 later
	[[ $(status_json .counters.control_commands) == "$before" ]]
}

later() {
	[[ $(status_json 'now - (.started_usec / 1e6) > 2') == true ]]
}
