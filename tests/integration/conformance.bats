#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# The stand-in control daemon and front end against NVIDIA's own of release 535, which answer all commands
# without a GPU. Every scenario runs once with each, and what it wrote has to be the same: answers, exit
# statuses, files, modes, log lines. Process ids and times are made alike first.
#
#   MPS_REAL_DIR   directory of the two real programs (tools/fetch-nvidia-mps puts them there)
#   STANDIN_DIR    directory of the stand-ins

bats_require_minimum_version 1.5.0

load processes

setup() {
	local root=$BATS_TEST_DIRNAME/../..
	REAL_DIR=$(realpath -m "${MPS_REAL_DIR:-$root/build/nvidia/535}")
	STANDIN=$(realpath -m "${STANDIN_DIR:-$root/build/standin}")
	[[ -x $STANDIN/nvidia-cuda-mps-control ]] || skip "no stand-ins in $STANDIN"
	[[ -x $REAL_DIR/nvidia-cuda-mps-control ]] ||
		skip "no real control daemon in $REAL_DIR (tools/fetch-nvidia-mps)"
	# Short: a pipe directory may have 87 bytes.
	WORK=$(mktemp -d /tmp/mps-conf.XXXXXX)
	chmod 0755 "$WORK"
	mkdir "$WORK/real" "$WORK/standin"
	cp "$REAL_DIR"/nvidia-cuda-mps-{control,server} "$WORK/real/"
	cp "$STANDIN"/nvidia-cuda-mps-{control,server} "$STANDIN/cuda-client" "$WORK/standin/"
	printf '%s\n' version=535 'server_fail_reason=no CUDA-capable device is detected' \
		>"$WORK/standin/standin.knobs"
	STARTED=()
}

teardown() {
	kill_started
	[[ -z ${WORK:-} ]] || rm -rf "$WORK"
}

# ENVIRONMENT becomes the beginning of a command line for a program of KIND (real, standin). A program in
# the background is started with it directly: then $! is the program and not a shell around it.
environment_of() {
	ENVIRONMENT=(env -i PATH="$WORK/$1:/usr/bin:/bin" CUDA_MPS_PIPE_DIRECTORY="${PIPE:-$WORK/run/pipe}"
		CUDA_MPS_LOG_DIRECTORY="$WORK/run/log")
}

# Runs a program of KIND.
with() {
	environment_of "$1"
	shift
	"${ENVIRONMENT[@]}" "$@"
}

# ask KIND COMMAND…: one front end; its answers, messages and exit status.
ask() {
	local kind=$1 rc=0
	shift
	printf '%s\n' "$@" | with "$kind" timeout 10 nvidia-cuda-mps-control 2>&1 || rc=$?
	echo "status $rc"
}

# quit KIND: the front end's status is not to be compared. It is the daemon's, or 0 when the daemon closed
# before it had read the end of the input, or 1 with a message when it closed before that was sent.
quit() {
	[[ $(ask "$1" quit) =~ ^(Cannot send command to MPS control daemon process.)?status\ [01]$ ]]
	end_status "$DAEMON"
}

answers() {
	[[ $(ask "$1" get_default_active_thread_percentage) == $'100.0\nstatus 0' ]]
}

# launch KIND [OPTION…]: a daemon in the foreground; DAEMON is its pid.
launch() {
	local kind=$1
	shift
	environment_of "$kind"
	"${ENVIRONMENT[@]}" nvidia-cuda-mps-control -f "$@" >"$WORK/run/out" 2>"$WORK/run/err" 3>&- &
	DAEMON=$!
	STARTED+=("$DAEMON")
}

launch_ready() {
	launch "$@"
	eventually 10 answers "$1"
	eventually 5 idle
	LOG_START=$(wc -l <"$WORK/run/out")
}

idle() {
	[[ $(tail -n 1 "$WORK/run/out") == *"UI closed" ]]
}

end_status() {
	local rc=0
	eventually 10 gone "$1" || return 1
	wait "$1" || rc=$?
	echo "daemon ended with $rc"
}

stop() {
	kill -KILL "$DAEMON"
	end_status "$DAEMON" >/dev/null
}

files() {
	(cd "$1" && stat -c '%A %n' -- *) | sort
}

plain() {
	sed -E -e 's/^\[[^]]* (Control|Server|Other) +[0-9]+\]/[\1]/' \
		-e 's/(Starting new server|^\[Control\] Server) [0-9]+ (for|exited)/\1 N \2/' "$@"
}

# The daemon's lines since it was ready; a line of another process that looked in is left out.
log_since_ready() {
	tail -n "+$((LOG_START + 1))" "$WORK/run/out" | plain | grep -v '^\[Other\]' || true
}

# alike SCENARIO…: runs it for both kinds and compares what was written.
alike() {
	local kind
	for kind in real standin; do
		rm -rf "$WORK/run"
		mkdir "$WORK/run" "$WORK/run/log"
		"$@" "$kind" >"$WORK/$kind.txt"
	done
	diff -u "$WORK/real.txt" "$WORK/standin.txt"
	[[ -s $WORK/real.txt ]]
}

start_scenario() {
	launch_ready "$1"
	files "$WORK/run/pipe"
	stat -c '%A' "$WORK/run/pipe"
	plain "$WORK/run/out" | sed '/Accepting/,$d'
	cat "$WORK/run/err"
	stop
}

@test "start: files, modes and first lines" {
	alike start_scenario
}

umask_scenario() {
	(umask 077 && mkdir "$WORK/run/pipe")
	umask 077
	launch_ready "$1"
	umask 022
	files "$WORK/run/pipe"
	stop
}

@test "start with umask 077" {
	alike umask_scenario
}

commands_scenario() {
	local command
	launch_ready "$1"
	while IFS= read -r command; do
		echo "> $command"
		ask "$1" "$command"
	done <<-'END'
		get_server_list
		get_server_list extra
		get_server_status 1
		get_client_list
		get_client_list 1
		get_device_client_list
		get_device_client_list 1
		get_device_client_list x
		device_query
		ps
		ps x
		ps -p 1
		start_server
		start_server -uid
		start_server -uid x
		shutdown_server
		shutdown_server 1
		shutdown_server x
		terminate_client
		terminate_client 1 2
		set_default_active_thread_percentage 50
		get_default_active_thread_percentage
		set_default_active_thread_percentage 0
		set_default_active_thread_percentage x
		set_default_active_thread_percentage
		set_default_active_thread_percentage 101
		set_default_active_thread_percentage 33.3
		get_active_thread_percentage
		get_active_thread_percentage 1
		set_active_thread_percentage 1 20
		get_default_client_priority
		set_default_client_priority 1
		get_default_client_priority
		set_default_client_priority 2
		get_default_device_pinned_mem_limit 0
		set_default_device_pinned_mem_limit 0 1G
		get_default_device_pinned_mem_limit 0
		get_device_pinned_mem_limit 1 0
		set_device_pinned_mem_limit 1 0 1G
		bogus

		help
		get_server_listx
		GET_SERVER_LIST
	END
	eventually 5 idle
	log_since_ready
	stop
}

@test "every command: answers, statuses and log" {
	alike commands_scenario
}

session_scenario() {
	launch_ready "$1"
	ask "$1" get_server_list bogus get_default_active_thread_percentage " get_default_client_priority"
	printf '' | with "$1" nvidia-cuda-mps-control
	echo "empty input: $?"
	printf get_default_client_priority | with "$1" nvidia-cuda-mps-control
	echo "no newline: $?"
	eventually 5 idle
	log_since_ready
	stop
}

@test "one front end: several commands, no input, no newline" {
	alike session_scenario
}

unprivileged_scenario() {
	local rc=0
	launch_ready "$1"
	chmod 0711 "$WORK/run"
	for command in quit "set_default_active_thread_percentage 40" get_server_list; do
		rc=0
		echo "$command" | with "$1" setpriv --reuid 65534 --regid 65534 --clear-groups \
			nvidia-cuda-mps-control 2>&1 || rc=$?
		echo "status $rc"
	done
	ask "$1" get_default_active_thread_percentage
	stop
}

@test "another user: quit is refused, 535 lets everybody set the default percentage" {
	((EUID == 0)) || skip "needs root"
	alike unprivileged_scenario
}

absent_scenario() {
	ask "$1" get_server_list
	mkdir "$WORK/run/pipe"
	ask "$1" get_server_list
	launch_ready "$1"
	stop
	ask "$1" get_server_list
}

@test "front end without a daemon, and over a stale socket" {
	alike absent_scenario
}

cross_scenario() {
	local other=real
	[[ $1 == real ]] && other=standin
	launch_ready "$1"
	ask "$other" get_server_list
	ask "$other" bogus get_default_active_thread_percentage
	ask "$other" "set_default_active_thread_percentage 25"
	eventually 5 idle
	log_since_ready
	quit "$other"
}

@test "front ends and daemons of each kind understand each other" {
	alike cross_scenario
}

poll_daemon() {
	local i
	for ((i = 0; i < 25; i++)); do
		ask "$1" get_default_active_thread_percentage | tr '\n' ' '
		echo
	done
}

# An answer, an empty answer, or a refusal: never anything else.
overlap_scenario() {
	local cli=$2 i pollers=()
	launch_ready "$1"
	for i in 1 2 3 4; do
		poll_daemon "$cli" >"$WORK/run/poll.$i" 3>&- &
		pollers+=($!)
	done
	wait "${pollers[@]}"
	sort "$WORK"/run/poll.* | uniq -c >&2
	sort -u "$WORK"/run/poll.* | grep -vE \
		'^(100\.0 status 0|status [01]|Cannot send command to MPS control daemon process status 1) $' || true
	eventually 10 answers "$cli"
	gone "$DAEMON" || echo alive
	stop
}

@test "overlapping front ends are answered, refused or get nothing" {
	for daemon in real standin; do
		for cli in real standin; do
			rm -rf "$WORK/run"
			mkdir "$WORK/run" "$WORK/run/log"
			[[ $(overlap_scenario "$daemon" "$cli") == alive ]]
		done
	done
}

open_front_end_scenario() {
	local holder rc=0
	launch_ready "$1"
	mkfifo "$WORK/run/input"
	environment_of "$1"
	"${ENVIRONMENT[@]}" nvidia-cuda-mps-control <"$WORK/run/input" >"$WORK/run/held" 2>&1 3>&- &
	holder=$!
	STARTED+=("$holder")
	exec {input}>"$WORK/run/input"
	echo get_default_client_priority >&"$input"
	eventually 5 grep -q 'Cmd:get_default_client_priority' "$WORK/run/out"
	ask "$1" get_default_active_thread_percentage | sed 's/^Cannot.*/refused/; s/^status .*/refused/' | sort -u
	exec {input}>&-
	eventually 5 gone "$holder"
	wait "$holder" || rc=$?
	echo "holder $rc"
	cat "$WORK/run/held"
	eventually 5 answers "$1"
	stop
}

@test "a front end left open keeps the others out" {
	alike open_front_end_scenario
}

silent_scenario() {
	local silent
	launch_ready "$1"
	environment_of standin
	"${ENVIRONMENT[@]}" cuda-client silent >"$WORK/run/silent" 3>&- &
	silent=$!
	STARTED+=("$silent")
	eventually 5 grep -q connected "$WORK/run/silent"
	with "$1" timeout 0.5 nvidia-cuda-mps-control <<<get_server_list 2>&1 || echo "deaf: $?"
	kill "$silent"
	eventually 5 answers "$1"
	eventually 5 idle
	log_since_ready | sed -n '1,2p'
	stop
}

@test "a connection that says nothing makes the daemon deaf until it closes" {
	alike silent_scenario
}

quit_scenario() {
	launch_ready "$1"
	quit "$1"
	files "$WORK/run/pipe"
	log_since_ready
	cat "$WORK/run/err"
}

@test "quit: status, files that stay, last line" {
	alike quit_scenario
}

signal_scenario() {
	launch_ready "$2"
	kill "-$1" "$DAEMON"
	end_status "$DAEMON"
	files "$WORK/run/pipe"
	log_since_ready
}

@test "SIGTERM: 143, the files stay" {
	alike signal_scenario TERM
}

@test "SIGKILL: the files stay" {
	alike signal_scenario KILL
}

# A pipe directory of exactly this many bytes.
path_scenario() {
	local length=$1 kind=$2 path=$WORK/run/
	while ((${#path} < length)); do
		path+=p
	done
	PIPE=$path
	if ((length > 87)); then
		launch "$kind"
		end_status "$DAEMON"
		# What it comes to say before it ends is a race inside the real one.
		cat "$WORK/run/out" "$WORK/run/err" |
			grep -v -e 'Starting control daemon' -e 'To connect CUDA applications' || true
	else
		launch_ready "$kind"
		stop
	fi
	files "$path"
	unset PIPE
}

@test "a pipe directory of 87 bytes works" {
	alike path_scenario 87
}

@test "a pipe directory of 88 bytes: status 1, no word, lock and log left" {
	alike path_scenario 88
}

@test "a pipe directory of 89 bytes: the same" {
	alike path_scenario 89
}

second_scenario() {
	local first rc=0
	launch_ready "$1"
	first=$DAEMON
	with "$1" timeout 10 nvidia-cuda-mps-control -f >"$WORK/run/second" 2>"$WORK/run/second.err" || rc=$?
	echo "second -f: $rc"
	cat "$WORK/run/second"
	echo "stderr:"
	cat "$WORK/run/second.err"
	rc=0
	with "$1" timeout 10 nvidia-cuda-mps-control -d 2>&1 || rc=$?
	echo "second -d: $rc"
	answers "$1" && echo "the first answers"
	DAEMON=$first
	stop
}

@test "a second daemon on the same directory is refused" {
	alike second_scenario
}

stale_scenario() {
	launch_ready "$1"
	stop
	: >"$WORK/run/out"
	launch_ready "$1"
	files "$WORK/run/pipe"
	ask "$1" get_server_list
	stop
}

@test "a daemon starts over the files of a killed one" {
	alike stale_scenario
}

directories_scenario() {
	PIPE=$WORK/run/missing/pipe launch "$1"
	end_status "$DAEMON"
	sed "s,$WORK,W," "$WORK/run/out"
	echo "stderr:"
	sed "s,$WORK,W," "$WORK/run/err"
	rmdir "$WORK/run/log"
	touch "$WORK/run/log"
	launch_ready "$1"
	plain "$WORK/run/out" "$WORK/run/err" | sed '/Accepting/,$d'
	echo "stderr:"
	cat "$WORK/run/err"
	stop
}

@test "missing parent of the pipe directory; log directory that is none" {
	alike directories_scenario
}

background_scenario() {
	local rc=0 pid
	with "$1" nvidia-cuda-mps-control -d 3>&- || rc=$?
	echo "-d: $rc"
	answers "$1" && echo "answers at once"
	ask "$1" get_server_list
	pid=$(sed -nE 's/^\[.* Control +([0-9]+)\].*/\1/p' "$WORK/run/log/control.log" | head -n 1)
	STARTED+=("$pid")
	ask "$1" quit >/dev/null
	eventually 5 gone "$pid"
	plain "$WORK/run/log/control.log"
	stat -c '%A %n' "$WORK/run/log/control.log"
}

@test "-d: in the background, lines in control.log" {
	alike background_scenario
}

attempts_have_failed() {
	(($(grep -c 'exited with status 1' "$WORK/run/out") >= $1))
}

failing_scenario() {
	launch_ready "$1"
	ask "$1" "start_server -uid 0"
	eventually 10 attempts_have_failed 1
	ask "$1" get_server_list
	quit "$1"
	# The server may end before or after its front end has gone.
	log_since_ready | grep -vE 'Server encountered a fatal exception|UI closed'
}

@test "start_server that fails: one attempt, and quit has its status" {
	alike failing_scenario
}

# A client that waits is worth six attempts; then it is dropped.
failing_client_scenario() {
	launch_ready "$1"
	with standin cuda-client init || echo "client $?"
	eventually 10 attempts_have_failed 6
	ask "$1" get_server_list
	eventually 5 idle
	grep -cE 'Starting new server' "$WORK/run/out"
	plain "$WORK/run/out" | grep -E 'NEW CLIENT|credentials' | sed 's/CLIENT [0-9]*/CLIENT N/'
	stop
}

@test "a client without a server: six attempts, then 805" {
	alike failing_client_scenario
}
