#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# What the stand-ins imitate of MPS with a GPU: servers, clients, faults, users, nvidia-smi; and their
# knobs. No real program takes part; conformance.bats holds the rest against one.
#
#   STANDIN_DIR    directory of the stand-ins
#
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

bats_require_minimum_version 1.5.0

load processes

GPU0=GPU-aaaaaaaa-0000-0000-0000-000000000000
GPU1=GPU-bbbbbbbb-1111-1111-1111-111111111111
MIG0=MIG-cccccccc-2222-2222-2222-222222222222

setup() {
	STANDIN=$(realpath -m "${STANDIN_DIR:-$BATS_TEST_DIRNAME/../../build/standin}")
	[[ -x $STANDIN/nvidia-cuda-mps-control ]] || skip "no stand-ins in $STANDIN"
	WORK=$(mktemp -d /tmp/mps-si.XXXXXX)
	chmod 0755 "$WORK"
	BIN=$WORK/bin
	mkdir "$BIN" "$WORK/log"
	cp "$STANDIN"/{nvidia-smi,nvidia-cuda-mps-control,nvidia-cuda-mps-server,cuda-client} "$BIN/"
	cat >"$BIN/standin.gpus" <<-END
		0, $GPU0, 00000000:00:06.0, NVIDIA H200, Default, Disabled, Enabled, 143771
		1, $GPU1, 00000000:00:07.0, NVIDIA H200, Prohibited, Enabled, Enabled, 143771
		mig, 1g.10gb, 0, $MIG0
	END
	PIPE=$WORK/pipe
	STARTED=()
	COUNT=0
}

teardown() {
	# Servers outlive a killed daemon only when a knob says so; their pids are in the log.
	mapfile -t -O "${#STARTED[@]}" STARTED < <(server_pids 2>/dev/null)
	kill_started
	[[ -z ${WORK:-} ]] || rm -rf "$WORK"
}

server_pids() {
	sed -nE 's/.*Starting new server ([0-9]+) .*/\1/p' "$WORK/out"
}

# ENVIRONMENT becomes the beginning of every command line; VISIBLE is CUDA_VISIBLE_DEVICES, if set.
environment() {
	ENVIRONMENT=(env -i PATH="$BIN:/usr/bin:/bin" CUDA_MPS_PIPE_DIRECTORY="$PIPE"
		CUDA_MPS_LOG_DIRECTORY="$WORK/log" ${VISIBLE+CUDA_VISIBLE_DEVICES="$VISIBLE"})
}

with() {
	environment
	"${ENVIRONMENT[@]}" "$@"
}

ask() {
	printf '%s\n' "$@" | with timeout 10 nvidia-cuda-mps-control 2>&1
}

answers() {
	[[ $(ask get_default_active_thread_percentage) == 100.0 ]]
}

# daemon [OPTION…]: in the foreground, over GPU0 alone unless VISIBLE says otherwise.
daemon() {
	local VISIBLE=${VISIBLE-$GPU0}
	environment
	"${ENVIRONMENT[@]}" nvidia-cuda-mps-control -f "$@" >"$WORK/out" 2>"$WORK/err" 3>&- &
	DAEMON=$!
	STARTED+=("$DAEMON")
}

daemon_ready() {
	daemon "$@"
	eventually 10 answers
}

# client WORD…: in the background, as the user AS; CLIENT is its pid and OUTPUT what it writes.
client() {
	local -a as=()
	[[ -z ${AS:-} ]] || as=(setpriv --reuid "$AS" --clear-groups)
	environment
	OUTPUT=$WORK/client.$((COUNT++))
	"${ENVIRONMENT[@]}" "${as[@]}" cuda-client "$@" >"$OUTPUT" 2>&1 </dev/null 3>&- &
	CLIENT=$!
	STARTED+=("$CLIENT")
}

attached() {
	client "$@"
	eventually 5 says "$OUTPUT" '^mps server='
}

# After at most SECONDS the newest line about it is this one.
logs() {
	eventually "$1" grep -qE "$2" "$WORK/out"
}

server() {
	ask get_server_list
}

status_is() {
	[[ $(ask "get_server_status $(server)") == "$1" ]]
}

@test "files and log lines of 580" {
	daemon_ready
	[[ $(cd "$PIPE" && stat -c '%A %n' -- * | sort) == \
		$'-rw-rw-rw- control_lock\n-rw-rw-rw- nvidia-cuda-mps-control.pid\nprwxrwxrwx log\nsrw-rw-rw- control\nsrwxr-xr-x control_privileged' ]]
	[[ $(<"$PIPE/nvidia-cuda-mps-control.pid") == "$DAEMON" ]]
	says "$WORK/out" '\] CUDA MPS Control binary version: 13000$'
	[[ $(ask quit) == "" ]]
	exits_with 0 "$DAEMON"
	[[ $(cd "$PIPE" && echo *) == "control control_lock control_privileged" ]]
}

@test "the first client gets a server, which is the daemon's child and stays" {
	daemon_ready
	run -0 with cuda-client init
	[[ $output == "mps server=$(server) device=$GPU0" ]]
	read -r _ _ _ parent _ < <(sed 's/(.*)/-/' "/proc/$(server)/stat")
	[[ $parent == "$DAEMON" ]]
	[[ $(tr '\0' ' ' <"/proc/$(server)/cmdline") == "nvidia-cuda-mps-server " ]]
	status_is ACTIVE
	logs 2 "NEW SERVER $(server): Ready"
	logs 2 "Server +$(server)\] Client process [0-9]+ disconnected"
}

@test "start_server returns at once, the daemon is deaf until the server is ready" {
	knobs server_start_ms=400
	daemon_ready
	start=$(date +%s%3N)
	ask "start_server -uid $EUID"
	(($(date +%s%3N) - start < 300))
	[[ $(server) =~ ^[0-9]+$ ]]
	(($(date +%s%3N) - start >= 350))
}

@test "lists of clients" {
	daemon_ready
	attached hold 60
	[[ $(ask "get_client_list $(server)") == "$CLIENT" ]]
	[[ $(ask get_device_client_list) == $'[0] 00:00.0, NVIDIA H200\n'"$CLIENT.1" ]]
	run ask ps
	[[ ${lines[0]} == "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        " ]]
	[[ ${lines[1]} =~ ^$CLIENT\ +1\ +[0-9]+\ +GPU-aaaaaaaa-0000-0000\ +[0-9]+\ +cuda-client ]]
	[[ $(ask device_query) == *"0000:00.06.00  $GPU0  NVIDIA H200"*"Server $(server)"* ]]
}

@test "the server is killed: 806 for its clients, a new one for the next" {
	daemon_ready
	attached hold 60
	old=$(server)
	kill -KILL "$old"
	exits_with 10 "$CLIENT"
	says "$OUTPUT" '^error 806$'
	logs 5 "Server $old exited with status 0"
	run -0 with cuda-client init
	[[ $(server) != "$old" ]]
}

@test "the control daemon is killed: server and clients follow, the files stay" {
	daemon_ready
	attached hold 60
	server=$(server)
	kill -KILL "$DAEMON"
	exits_with 10 "$CLIENT"
	says "$OUTPUT" '^error 806$'
	eventually 1 gone "$server"
	[[ -S $PIPE/control ]]
}

@test "SIGTERM: 143 and everything with it" {
	daemon_ready
	attached hold 60
	server=$(server)
	kill -TERM "$DAEMON"
	exits_with 143 "$DAEMON"
	eventually 1 gone "$server"
}

@test "silently without MPS: no directory, stale socket, no way in" {
	run -0 with cuda-client init
	[[ $output == no-mps ]]
	daemon_ready
	if ((EUID == 0)); then
		chmod 0700 "$PIPE"
		run -0 with setpriv --reuid 65534 --clear-groups cuda-client init
		[[ $output == no-mps ]]
	fi
	kill -KILL "$DAEMON"
	eventually 2 gone "$DAEMON"
	run -0 with cuda-client init
	[[ $output == no-mps ]]
}

@test "a lease directory with a hard link leads to the daemon" {
	daemon_ready
	mkdir "$WORK/lease"
	ln "$PIPE/control" "$WORK/lease/control"
	PIPE=$WORK/lease run -0 with cuda-client init
	[[ $output == "mps server="* ]]
	# Without control_privileged nobody may end the daemon.
	PIPE=$WORK/lease run -0 ask quit
	[[ $output == "Not enough privilege to execute quit command" ]]
}

@test "a server that cannot reach the pipe directory ends silently, the client gets 805" {
	((EUID == 0)) || skip "needs root"
	mkdir "$WORK/lease"
	daemon_ready
	chmod 0700 "$PIPE"
	ln "$PIPE/control" "$WORK/lease/control"
	PIPE=$WORK/lease run -10 with setpriv --reuid 65534 --clear-groups cuda-client init
	[[ $output == "error 805" ]]
	logs 2 'Server [0-9]+ exited with status 0'
}

@test "which devices a client sees" {
	daemon_ready
	VISIBLE=$GPU0 run -0 with cuda-client init
	VISIBLE=0 run -0 with cuda-client init
	VISIBLE=1 run -10 with cuda-client init
	[[ $output == "error 100" ]]
	VISIBLE=$GPU1 run -10 with cuda-client init
	[[ $output == "error 100" ]]
	kill -KILL "$DAEMON"
	eventually 2 gone "$DAEMON"
	VISIBLE=$GPU0,$GPU1 daemon_ready
	VISIBLE=$GPU1 run -0 with cuda-client init
	[[ $output == *"device=$GPU1" ]]
}

@test "a MIG instance" {
	VISIBLE=$MIG0 daemon_ready
	VISIBLE=$MIG0 run -0 with cuda-client init
	[[ $output == *"device=$MIG0" ]]
}

@test "fault: all of the GPU get 700, FAULT and 807 until the last has gone" {
	daemon_ready
	attached stubborn
	holdout=$CLIENT holdout_output=$OUTPUT
	attached fault
	culprit=$CLIENT
	exits_with 10 "$culprit"
	says "$OUTPUT" '^error 700$'
	eventually 2 says "$holdout_output" '^error 700$'
	status_is FAULT
	[[ $(ask "get_client_list $(server)") == "$holdout" ]]
	run -10 with cuda-client init
	[[ $output == "error 807" ]]
	logs 2 "Client \{PID: $holdout, Context: 1\} encountered a fatal GPU error"
	[[ $(sed -n '/have a sticky error set/,$p' "$WORK/out" | sed -n '2,3s/.*\] //p') == "$holdout"$'\n'"$culprit" ]]
	kill -KILL "$holdout"
	eventually 1 status_is ACTIVE
	run -0 with cuda-client init
}

@test "fault on one GPU of two: the other does not notice" {
	VISIBLE=$GPU0,$GPU1 daemon_ready
	VISIBLE=$GPU1 attached hold 60
	other=$CLIENT other_output=$OUTPUT
	VISIBLE=$GPU0 attached stubborn
	VISIBLE=$GPU0 attached trap
	exits_with 10 "$CLIENT"
	says "$OUTPUT" '^error 719$'
	VISIBLE=$GPU1 run -0 with cuda-client init
	VISIBLE=$GPU0 run -10 with cuda-client init
	run ! gone "$other"
	run ! says "$other_output" error
	run ! says "$WORK/out" 'encountered a fatal GPU error'
}

@test "terminate_client: 810 for the client, the server stays" {
	daemon_ready
	attached hold 60
	[[ $(ask "terminate_client $(server) $CLIENT") == 0 ]]
	exits_with 10 "$CLIENT"
	says "$OUTPUT" '^error 810$'
	status_is ACTIVE
}

@test "the 49th client: 46; the knob max_clients" {
	knobs max_clients=2
	daemon_ready
	attached hold 60
	attached hold 60
	run -10 with cuda-client init
	[[ $output == "error 46" ]]
	logs 2 'Failed to accept new client. Maximum number of clients \(2\) reached\.'
	knobs max_clients=3
	run -0 with cuda-client init
}

@test "another uid waits without a word until the first has left" {
	((EUID == 0)) || skip "needs root"
	daemon_ready
	attached hold 60
	first=$CLIENT
	AS=65534 client init
	second=$CLIENT second_output=$OUTPUT
	logs 2 "NEW CLIENT $second from user 65534: Server is not ready, push client to pending list"
	logs 2 'again in at most 400ms'
	# Newcomers of the first uid still get in.
	run -0 with cuda-client init
	[[ ! -s $second_output ]]
	kill "$first"
	exits_with 0 "$second"
	says "$second_output" '^mps server='
	[[ $(stat -c %u "/proc/$(server)") == 65534 ]]
}

@test "an idle server gives way to another uid" {
	((EUID == 0)) || skip "needs root"
	daemon_ready
	run -0 with cuda-client init
	run -0 with timeout 2 setpriv --reuid 65534 --clear-groups cuda-client init
	[[ $output == "mps server="* ]]
}

@test "multi-user: several uids in one server" {
	((EUID == 0)) || skip "needs root"
	daemon_ready -multiuser-server
	attached hold 60
	AS=65534 attached hold 60
	[[ $(ask "get_client_list $(server)" | wc -l) == 2 ]]
	[[ $(tr '\0' ' ' <"/proc/$(server)/cmdline") == "nvidia-cuda-mps-server -multiuser-server " ]]
}

@test "set_* by another user: refused by 580, allowed by 535" {
	((EUID == 0)) || skip "needs root"
	daemon_ready
	run -0 with setpriv --reuid 65534 --clear-groups nvidia-cuda-mps-control \
		<<<"set_default_active_thread_percentage 20"
	[[ $output == "Insufficient privileges for UID 65534. "* ]]
	knobs version=535
	run -0 with setpriv --reuid 65534 --clear-groups nvidia-cuda-mps-control \
		<<<"set_default_active_thread_percentage 20"
	[[ $output == 20.0 ]]
}

@test "a stopped server: the list answers, its status does not" {
	daemon_ready
	run -0 with cuda-client init
	server=$(server)
	kill -STOP "$server"
	[[ $(server) == "$server" ]]
	run -124 with timeout 0.5 nvidia-cuda-mps-control <<<"get_server_status $server"
	kill -CONT "$server"
	eventually 5 status_is ACTIVE
}

@test "quit waits for the clients; newcomers get 805, other commands nothing" {
	daemon_ready
	attached hold 60
	holder=$CLIENT
	environment
	"${ENVIRONMENT[@]}" nvidia-cuda-mps-control <<<quit 3>&- &
	quitter=$!
	STARTED+=("$quitter")
	logs 2 'Control will try shutting down server [0-9]+ again in at most 200ms'
	run -10 with cuda-client init
	[[ $output == "error 805" ]]
	[[ $(ask get_default_active_thread_percentage || true) != 100.0 ]]
	kill "$holder"
	exits_with 0 "$quitter"
	exits_with 0 "$DAEMON"
	logs 1 'Exit with status 0'
}

@test "quit -t never returns once there was a client" {
	daemon_ready
	attached hold 60
	run -124 with timeout 1.5 nvidia-cuda-mps-control <<<"quit -t 1"
	kill "$CLIENT"
	logs 2 'Force shutting down server'
	run ! gone "$DAEMON"
	run ! answers
	kill -TERM "$DAEMON"
	exits_with 143 "$DAEMON"
}

@test "shutdown_server: an idle server goes; -f kills nothing and spoils quit" {
	daemon_ready
	run -0 with cuda-client init
	old=$(server)
	ask "shutdown_server $old"
	eventually 1 gone "$old"
	attached hold 60
	ask "shutdown_server $(server) -f"
	run ! gone "$CLIENT"
	kill "$CLIENT"
	run -124 with timeout 1 nvidia-cuda-mps-control <<<quit
	run ! gone "$DAEMON"
}

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

@test "a daemon whose GPU is not there has no server" {
	VISIBLE=GPU-dddddddd daemon_ready
	run -10 with cuda-client init
	[[ $output == "error 805" ]]
	says "$WORK/out" 'Failed to start : no CUDA-capable device is detected'
}
