#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# The service below systemd: start, stop, reload, its socket, its journal, its sandbox.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # those are of jq, or for another shell
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load lib

setup() {
	prepare_node
}

teardown() {
	clean_node
}

# ---------------------------------------------------------------- start and stop

@test "start: systemd hears when it is ready, and what there is" {
	start_unit
	property_is ActiveState active
	property_is Type notify
	property_is MainPID "$(status_json .pid)"
	property_is WatchdogUSec 30s
	eventually 2 property_says StatusText '^1 of 1 instances ready, 0 leases'
	[[ $(unit_pids | sort) == "$(printf '%s\n' "$(property MainPID)" "$(control_pid)" | sort)" ]]
}

@test "status: leases and requests are counted as they come and go" {
	start_unit
	AS=1000 hold job
	job=$PID
	eventually 5 property_says StatusText ', 1 leases, 0 waiting$'
	AS=1001 background other mpsctl lease --name other -- sleep 600
	eventually 5 property_says StatusText ', 1 leases, 1 waiting$'
	kill -KILL "$PID" "$job"
	eventually 5 property_says StatusText ', 0 leases, 0 waiting$'
}

@test "stop ends MPS in order: holders are told, nothing is left, no client starts it again" {
	start_unit
	hold_attached job
	control=$(control_pid) server=$(server_pid)
	run -0 systemctl stop "$UNIT"
	gone "$control"
	gone "$server"
	no_unit_pids
	property_is ActiveState inactive
	property_is Result success
	eventually 5 property_is ActiveState inactive "$SOCKET_UNIT"
	eventually 5 says "$WORK/job.err" 'stopping|shut'
	run ! journal_says 'SIGKILL|timed out'
	run -3 ctl status
	property_is ActiveState inactive
	[[ -z $(find "$RUN" -not -type d) ]]
	start_unit
}

@test "stop: a request that waits for its grant is told, and does not hold the stop up" {
	knobs start_delay_ms=60000
	START=120.0 configure_node
	systemctl start "$UNIT"
	background job mpsctl lease --name job -- true
	eventually 5 queued job
	start=$(now_ms)
	run -0 systemctl stop "$UNIT"
	took=$(($(now_ms) - start))
	echo "took $took ms"
	((took < 25000))
	exits_with 125 "$PID"
	says "$WORK/job.err" 'stopping|shut'
	property_is Result success
	no_unit_pids
}

@test "stop: within timeouts.stop, though a job holds on and a daemon ignores quit and SIGTERM" {
	knobs ignore_quit=1 ignore_term=1
	STOP=4.0 configure_node
	start_unit
	background job mpsctl lease --name job -- cuda-client stubborn
	eventually 10 says "$WORK/job.out" '^mps server='
	start=$(now_ms)
	run -0 systemctl stop "$UNIT"
	took=$(($(now_ms) - start))
	echo "took $took ms"
	((took < 6000))
	property_is Result success
	no_unit_pids
}

@test "the unit's time to stop is more than timeouts.stop" {
	rm "$CONF"
	stop=$(mps-supervisord --print-config | grep -oP '\bstop = \K[0-9]+')
	limit=$(systemctl show --property=TimeoutStopUSec --value "$UNIT")
	echo "$stop $limit"
	[[ $limit =~ ^([0-9]+)s$ ]]
	((BASH_REMATCH[1] > stop))
}

# ---------------------------------------------------------------- reload

@test "reload takes a new configuration over" {
	start_unit
	main=$(property MainPID) control=$(control_pid)
	configure_node 'placement = "pack";'
	run -0 systemctl reload "$UNIT"
	eventually 5 journal_says 'configuration'
	property_is MainPID "$main"
	[[ $(control_pid) == "$control" ]]
}

@test "reload of a wrong configuration fails, says where, and changes nothing" {
	start_unit
	main=$(property MainPID)
	echo 'placement = "sideways";' >"$CONF"
	run ! systemctl reload "$UNIT"
	eventually 5 journal_says "^$CONF:1: "
	property_is ActiveState active
	property_is MainPID "$main"
	all_ready
}

# ---------------------------------------------------------------- socket

@test "socket: a lease asked for before the service runs is granted" {
	systemctl start "$SOCKET_UNIT"
	property_is ActiveState inactive
	[[ $(stat -c %a "$SOCKET") == 666 ]]
	AS=1000 run -0 ctl lease -q -- cuda-client init
	[[ $output == "mps server="* ]]
	property_is ActiveState active
	property_is SubState running "$SOCKET_UNIT"
}

@test "socket: many at once, before the service runs" {
	systemctl start "$SOCKET_UNIT"
	for i in {1..20}; do
		background "job$i" mpsctl lease -q -- cuda-client init
	done
	for pid in "${STARTED[@]}"; do
		exits_with 0 "$pid"
	done
	property_is NRestarts 0
}

@test "socket: a restart of the service keeps it, so nobody is refused" {
	start_unit
	inode=$(stat -c %i "$SOCKET")
	background ask sh -c 'while mpsctl status >/dev/null; do :; done'
	for _ in 1 2 3; do
		systemctl restart "$UNIT"
		eventually 10 all_ready
	done
	[[ $(stat -c %i "$SOCKET") == "$inode" ]]
	cat "$WORK/ask.err"
	[[ ! -s $WORK/ask.err ]]
	run ! gone "$PID"
}

@test "socket: a crash keeps it, and who asks meanwhile is answered" {
	drop_in RestartSec=2
	start_unit
	inode=$(stat -c %i "$SOCKET")
	kill -KILL "$(property MainPID)"
	eventually 5 property_is SubState auto-restart
	run -0 ctl status
	[[ $(stat -c %i "$SOCKET") == "$inode" ]]
	property_is NRestarts 1
}

@test "socket: after a stop for good it starts nothing, and is back with the service" {
	start_unit
	systemctl stop "$UNIT"
	eventually 5 property_is ActiveState inactive "$SOCKET_UNIT"
	[[ ! -e $SOCKET ]]
	run -3 ctl status
	property_is ActiveState inactive
	start_unit
	property_is ActiveState active "$SOCKET_UNIT"
}

@test "socket: a stop of it is a stop of the service" {
	start_unit
	control=$(control_pid)
	run -0 systemctl stop "$SOCKET_UNIT"
	property_is ActiveState inactive
	gone "$control"
	no_unit_pids
}

# ---------------------------------------------------------------- journal

@test "journal: lines of MPS and of the supervisor have their fields" {
	start_unit
	hold_attached job
	lease=$(lease_of job .id)
	eventually 5 journal_says . "MPS_INSTANCE=$GPU0" MPS_ROLE=control
	eventually 5 journal_says . "MPS_INSTANCE=$GPU0" MPS_ROLE=server
	eventually 5 journal_says 'granted' "MPS_LEASE=$lease"
	eventually 5 journal_says 'started control daemon' "MPS_PID=$(control_pid)"
}

@test "journal: what an operator acts on is explained" {
	journalctl --update-catalog
	start_unit
	kill -KILL "$(control_pid)"
	eventually 5 journal_says 'Subject: An MPS control daemon was lost' --output=short --catalog
	eventually 5 all_ready
}

# ---------------------------------------------------------------- sandbox

# One file of /proc/PID/root or ns is that of the machine.
shared() {
	[[ $(stat -L -c %d:%i "/proc/$1/$2") == $(stat -L -c %d:%i "/proc/1/$2") ]]
}

@test "sandbox: what CUDA may share with its jobs is shared, and nothing forbids nvidia-modprobe" {
	start_unit
	hold_attached job
	for pid in "$(control_pid)" "$(server_pid)"; do
		for name in ns/{ipc,net,pid,uts,cgroup,user} root/tmp root/dev root/dev/shm root/run/mps-supervisor; do
			echo "$name of $pid"
			shared "$pid" "$name"
		done
		grep -P '^NoNewPrivs:\t0$' "/proc/$pid/status"
	done
}

@test "sandbox: the rest of the file system is read-only, homes are out of sight" {
	start_unit
	control=$(control_pid)
	for directory in /usr /etc /var/log /opt; do
		run ! nsenter --target "$control" --mount touch "$directory/file"
		[[ $output == *"Read-only file system"* ]]
	done
	for directory in /root /home; do
		[[ -z $(nsenter --target "$control" --mount ls -A "$directory") ]]
	done
	nsenter --target "$control" --mount touch /tmp/file /var/lib/mps-supervisor/file
}

@test "sandbox: jobs of several users, one of them in a mount namespace of its own" {
	configure_node 'multi_user = true;'
	start_unit
	AS=1000 hold_attached one
	eventually 5 attached one "$PID"
	AS=1001 hold_attached two
	eventually 5 attached two "$PID"
	cat >"$WORK/contained" <<-'END'
		mkdir -p "${MPS_TEST}inside"
		mount --bind "$CUDA_MPS_PIPE_DIRECTORY" "${MPS_TEST}inside"
		CUDA_MPS_PIPE_DIRECTORY=${MPS_TEST}inside exec cuda-client hold 600
	END
	background three mpsctl lease --name three -- unshare --mount sh "$WORK/contained"
	eventually 10 says "$WORK/three.out" '^mps server='
	eventually 5 attached three "$PID"
}

@test "sandbox: other directories and programs elsewhere, with the drop-ins of docs/systemd.md" {
	mkdir -p /root/nvidia /srv/mps
	cp "$BIN"/{nvidia-cuda-mps-control,nvidia-cuda-mps-server,standin.gpus} /root/nvidia/
	configure_node 'runtime_directory = "/run/elsewhere";' 'state_directory = "/srv/mps";' \
		'mps_control = "/root/nvidia/nvidia-cuda-mps-control";'
	run ! systemctl start "$UNIT"
	systemctl reset-failed "$UNIT" "$SOCKET_UNIT"
	drop_in RuntimeDirectory=elsewhere ReadWritePaths=/srv/mps ProtectHome=read-only
	start_unit
	ctl lease -q -- cuda-client init
	main=$(property MainPID) control=$(control_pid)
	systemctl restart "$UNIT"
	eventually 15 ready_anew "$main"
	[[ $(control_pid) == "$control" && -d /run/elsewhere/instance ]]
	systemctl stop "$UNIT"
	rm -rf /root/nvidia /srv/mps /run/elsewhere
}

# ---------------------------------------------------------------- NVIDIA's own

@test "NVIDIA's control daemon under the unit, over a restart" {
	[[ -x $REAL_DIR/nvidia-cuda-mps-control ]] || skip "no real control daemon (tools/fetch-nvidia-mps)"
	configure_node "mps_control = \"$REAL_DIR/nvidia-cuda-mps-control\";" 'prestart = false;'
	drop_in "Environment=PATH=$REAL_DIR:/usr/sbin:/usr/bin:/sbin:/bin"
	start_unit
	control=$(control_pid)
	[[ $(readlink "/proc/$control/exe") == "$REAL_DIR/nvidia-cuda-mps-control" ]]
	run -0 ctl lease -q -- sh -c "echo get_default_active_thread_percentage | $REAL_DIR/nvidia-cuda-mps-control"
	[[ $output == 100.0 ]]
	main=$(property MainPID)
	systemctl restart "$UNIT"
	eventually 15 ready_anew "$main"
	[[ $(control_pid) == "$control" ]]
	run -0 systemctl stop "$UNIT"
	gone "$control"
	no_unit_pids
}
