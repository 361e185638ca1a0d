#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# The stand-ins' knobs, and nvidia-smi's stand-in.
#
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load standin

@test "knobs: an unknown one ends the program with 2" {
	knobs no_such_knob=1
	run -2 with nvidia-cuda-mps-control -f
	[[ $output == *'unknown knob "no_such_knob"'* ]]
	run -2 with nvidia-smi -L
}

@test "knobs: sections, symbolic links" {
	knobs "[$GPU1]" exit_at_start=7 '[*]' '# a comment' command_delay_ms=1
	mkdir "$WORK/links"
	ln -s "$STANDIN/nvidia-cuda-mps-control" "$WORK/links/"
	cp "$BIN/standin.knobs" "$WORK/links/"
	VISIBLE=$GPU1 run -7 with "$WORK/links/nvidia-cuda-mps-control" -f
	daemon_ready
}

@test "knobs: late start, late answers, an end of its own" {
	knobs start_delay_ms=300 exit_after_ms=600 exit_status=5
	start=$(date +%s%3N)
	daemon
	eventually 5 test -e "$PIPE/nvidia-cuda-mps-control.pid"
	[[ ! -e $PIPE/control ]]
	eventually 5 answers
	(($(date +%s%3N) - start >= 300))
	exits_with 5 "$DAEMON"
}

@test "knobs: ignore_quit, ignore_term" {
	knobs ignore_quit=1 ignore_term=1
	daemon_ready
	run -124 with timeout 0.4 nvidia-cuda-mps-control <<<quit
	kill -TERM "$DAEMON"
	eventually 5 answers
	kill -KILL "$DAEMON"
}

@test "knobs: hang_on one command, until the knob goes" {
	knobs hang_on=get_server_list
	daemon_ready
	run -124 with timeout 0.3 nvidia-cuda-mps-control <<<get_server_list
	run -124 with timeout 0.3 nvidia-cuda-mps-control <<<get_default_active_thread_percentage
	knobs
	eventually 5 answers
}

@test "knobs: odd, empty and slow answers; status_text" {
	daemon_ready
	run -0 with cuda-client init
	knobs status_text=INITIALIZING
	status_is INITIALIZING
	knobs 'odd_output=Segmentation fault?'
	[[ $(ask get_server_list) == "Segmentation fault?" ]]
	knobs empty_answers=1
	[[ $(ask get_default_active_thread_percentage) == "" ]]
	knobs
	answers
}

@test "knobs: a server that fails, six times for a client" {
	knobs 'server_fail_reason=no CUDA-capable device is detected'
	daemon_ready
	run -10 with cuda-client init
	[[ $output == "error 805" ]]
	[[ $(grep -c 'Failed to start : no CUDA-capable device is detected' "$WORK/out") == 6 ]]
	[[ $(grep -c 'Server [0-9]* exited with status 1' "$WORK/out") == 6 ]]
	ask quit || true
	exits_with 1 "$DAEMON"
}

attempts_have_failed() {
	(($(grep -c 'exited with status 1' "$WORK/out") >= $1))
}

@test "knobs: a server that ends again and again" {
	knobs server_exit_after_ms=50 server_start_ms=1000 server_tries=0 server_exit_status=1
	daemon_ready
	client init
	eventually 5 attempts_have_failed 8
	run ! gone "$CLIENT"
	knobs server_start_ms=10
	exits_with 0 "$CLIENT"
}

@test "knobs: a server that outlives its daemon and bars the next one" {
	knobs server_survives_parent=1 "refuse_start_while_server_lives=$WORK/server.pid"
	daemon_ready
	attached hold 60
	server=$(server)
	kill -KILL "$DAEMON"
	eventually 2 gone "$DAEMON"
	run -1 with timeout 5 nvidia-cuda-mps-control -f
	[[ $output == "Server $server of an earlier daemon is still there" ]]
	kill -KILL "$server"
	exits_with 10 "$CLIENT"
	daemon_ready
}

@test "knobs: dump" {
	knobs "dump=$WORK/dump"
	daemon_ready
	run -0 with cuda-client init
	[[ $(grep -c '^== ' "$WORK/dump") -ge 2 ]]
	says "$WORK/dump" "^== control $DAEMON$"
	says "$WORK/dump" "^== server $(server)$"
	says "$WORK/dump" "^env CUDA_VISIBLE_DEVICES=$GPU0$"
	says "$WORK/dump" '^argv -f$'
	says "$WORK/dump" "^fd 1 $WORK/out$"
}

flooded() {
	(($(stat -c %s "$WORK/out") > 200000))
}

@test "knobs: a flood of lines; the daemon answers" {
	knobs flood_bytes_per_s=1000000
	daemon_ready
	eventually 5 flooded
	answers
	eventually 5 grep -q 'Flood of lines' "$WORK/out"
}

@test "nobody reads the daemon's output: it wedges, and goes on when somebody does" {
	mkfifo "$WORK/fifo"
	exec {reader}<>"$WORK/fifo"
	environment
	"${ENVIRONMENT[@]}" nvidia-cuda-mps-control -f >"$WORK/fifo" 2>&1 3>&- {reader}>&- &
	DAEMON=$!
	STARTED+=("$DAEMON")
	eventually 5 answers
	knobs flood_bytes_per_s=10000000
	answers || true
	run -124 with timeout 0.5 nvidia-cuda-mps-control <<<get_server_list
	knobs
	cat <&"$reader" >/dev/null 3>&- {reader}>&- &
	STARTED+=($!)
	eventually 4 answers
	exec {reader}>&-
}

@test "nvidia-smi: queries and list" {
	run -0 with nvidia-smi --query-gpu=index,uuid,pci.bus_id,name,compute_mode,mig.mode.current,persistence_mode,memory.total \
		--format=csv,noheader,nounits
	[[ ${lines[0]} == "0, $GPU0, 00000000:00:06.0, NVIDIA H200, Default, Disabled, Enabled, 143771" ]]
	((${#lines[@]} == 2))
	run -0 with nvidia-smi --query-gpu=memory.total,index --format=csv,noheader,nounits
	[[ ${lines[1]} == "143771, 1" ]]
	run -0 with nvidia-smi -L
	[[ ${lines[0]} == "GPU 0: NVIDIA H200 (UUID: $GPU0)" ]]
	[[ ${lines[2]} == "  MIG 1g.10gb     Device  0: (UUID: $MIG0)" ]]
	run -2 with nvidia-smi --query-gpu=index,nonsense --format=csv
	[[ ${lines[0]} == 'Field "nonsense" is not a valid field to query.' ]]
}

@test "nvidia-smi: compute mode" {
	((EUID == 0)) || skip "needs root"
	run -0 with nvidia-smi -i "$GPU1" -c EXCLUSIVE_PROCESS
	[[ ${lines[0]} == "Set compute mode to EXCLUSIVE_PROCESS for GPU 00000000:00:07.0." ]]
	[[ ${lines[1]} == "All done." ]]
	[[ $(with nvidia-smi --query-gpu=compute_mode --format=csv,noheader) == $'Default\nExclusive_Process' ]]
	run -0 with nvidia-smi -i 0 -c 2
	[[ $(with nvidia-smi --query-gpu=compute_mode --format=csv,noheader) == $'Prohibited\nExclusive_Process' ]]
	says "$BIN/standin.gpus" "^mig, 1g.10gb, 0, $MIG0$"
}

@test "nvidia-smi: no device, errors, garbage" {
	knobs smi_exit=15 'smi_error=Unable to determine the device handle for GPU0000:00:06.0: Unknown Error'
	run -15 with nvidia-smi -L
	[[ $output == "Unable to determine the device handle"* ]]
	knobs smi_garbage=,,,
	run -0 with nvidia-smi -L
	[[ $output == ,,, ]]
	knobs smi_hang=1
	run -124 with timeout 0.3 nvidia-smi -L
	knobs
	: >"$BIN/standin.gpus"
	run -6 with nvidia-smi -L
	[[ $output == "No devices were found" ]]
}

@test "nvidia-smi: 256 devices, and no more" {
	local i
	for ((i = 0; i < 256; i++)); do
		printf '%d, GPU-%08d, 00000000:%02x:00.0, NVIDIA H200, Default, Disabled, Enabled, 143771\n' "$i" "$i" "$i"
	done >"$BIN/standin.gpus"
	run -0 with nvidia-smi -L
	[[ ${#lines[@]} == 256 && ${lines[255]} == *"(UUID: GPU-00000255)" ]]
	VISIBLE=255 daemon_ready
	VISIBLE=GPU-00000255 run -0 with cuda-client init
	[[ $output == *"device=GPU-00000255" ]]
	echo "mig, 1g.10gb, 0, $MIG0" >>"$BIN/standin.gpus"
	run -2 with nvidia-smi -L
	[[ $output == *"more than 256 devices" ]]
}
