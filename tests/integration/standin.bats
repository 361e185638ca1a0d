#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# What the stand-ins imitate of MPS with a GPU: servers, clients, faults, users. standin_knobs.bats has
# their knobs and nvidia-smi; conformance.bats holds the rest against a real program.
#
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be
# shellcheck disable=SC2153 # OUTPUT is what a client writes

load standin

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

@test "a daemon whose GPU is not there has no server" {
	VISIBLE=GPU-dddddddd daemon_ready
	run -10 with cuda-client init
	[[ $output == "error 805" ]]
	says "$WORK/out" 'Failed to start : no CUDA-capable device is detected'
}
