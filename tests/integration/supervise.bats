#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# mps-supervisord and its control daemons: how they are started, watched, started again and stopped,
# and what their deaths mean for leases.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # those are of jq
# shellcheck disable=SC2034 # EXTRA is read by lib.bash
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load lib

setup() {
	prepare
}

teardown() {
	clean_up
}

# ---------------------------------------------------------------- starting

@test "descriptors that the supervisor was started with do not reach its daemons" {
	knobs "dump=$WORK/dump"
	: >"$WORK/leaked"
	exec {leaked}<"$WORK/leaked"
	start_supervisor
	exec {leaked}<&-
	eventually 2 dumped
	control_dump | grep '^fd'
	run ! says "$WORK/dump" "^fd .* $WORK/leaked$"
}

@test "one instance for each device, each with a daemon of its own" {
	gpus 2
	start_supervisor
	[[ $(status_json '.instances | map([.name, .kind, .state, .generation, .restarts, .held]) | tostring') == \
		"[[\"$GPU0\",\"gpu\",\"ready\",1,0,false],[\"$GPU1\",\"gpu\",\"ready\",1,0,false]]" ]]
	for i in 0 1; do
		pid=$(control_pid "$i")
		[[ $(tr '\0' ' ' <"/proc/$pid/cmdline") == *nvidia-cuda-mps-control* ]]
		[[ $(sed -nz 's/^CUDA_VISIBLE_DEVICES=//p' "/proc/$pid/environ" | tr -d '\0') == \
			"$(status_json ".instances[$i].name")" ]]
	done
	[[ $(control_pid 0) != "$(control_pid 1)" ]]
}

@test "case 14: a lease asked for at once comes when the daemon is ready, never before" {
	knobs start_delay_ms=700
	start=$(now_ms)
	launch_supervisor
	eventually 5 test -S "$SOCKET"
	eventually 1 state_is starting
	run -1 ctl lease --no-wait
	run -0 ctl lease -q -- cuda-client init
	took=$(($(now_ms) - start))
	echo "took $took ms"
	[[ $output == "mps server="* ]]
	((took >= 700 && took < 4000))
}

@test "case 14: sockets there, but nobody hears: not ready" {
	knobs answer_delay_ms=700
	start=$(now_ms)
	launch_supervisor
	eventually 5 test -S "$SOCKET"
	run -1 --separate-stderr ctl lease --no-wait
	[[ $stderr == *starting* ]]
	run -0 ctl lease -q -- cuda-client init
	(($(now_ms) - start >= 700))
	[[ $output == "mps server="* ]]
}

@test "case 14: a daemon that is not ready in time: the reason is said" {
	configure 'timeouts = { start = 0.3; };' 'restart = { limit = 1; failed_retry = 0.0; };'
	knobs start_delay_ms=30000
	launch_supervisor
	eventually 5 state_is failed
	status_json '.instances[0].reason | test("not ready after 0.3 s")'
	run -1 --separate-stderr ctl lease --no-wait
	echo "$stderr"
	[[ $stderr == *"not ready after 0.3 s"* ]]
	run -125 --separate-stderr ctl lease -q -w 0.2 -- true
	[[ $stderr == *"not ready after 0.3 s"* ]]
}

@test "start failures: backoff, then failed, with the daemon's status; it is tried again later" {
	configure 'restart = { backoff_min = 0.05; backoff_max = 0.2; limit = 3; window = 60.0; failed_retry = 1.0; };'
	knobs exit_at_start=7
	launch_supervisor
	eventually 5 state_is failed
	status_json '.instances[0] | (.reason | test("status 7")) and .control_pid == null
		and (.deaths | length) == 3 and all(.deaths[]; .what == "control" and (.status | test("7")))'
	status_json '.instances[0].deaths[0]' | conforms Death
	n_lines 3 "$LOG" 'started control daemon'
	start=$(now_ms)
	run -1 --separate-stderr ctl lease --no-wait
	echo "$stderr"
	[[ $stderr == *"$GPU0"*failed*"status 7"* ]]
	(($(now_ms) - start < 2000))
	run -0 ctl status
	[[ $output == *failed*"status 7"* ]]
	knobs
	eventually 5 all_ready
	ctl lease -- cuda-client init
}

@test "start failures of one device do not touch the other" {
	gpus 2
	configure 'restart = { backoff_min = 0.05; limit = 2; failed_retry = 0.0; };'
	knobs "[$GPU0]" exit_at_start=7
	launch_supervisor
	eventually 5 state_is failed 0
	eventually 5 state_is ready 1
	run -0 ctl lease -- cuda-client init
	[[ $output == *"device=$GPU1" ]]
}

@test "a daemon of somebody else on our directory is not ended" {
	start_supervisor
	directory=$(find "$RUN/instance" -mindepth 1 -maxdepth 1)
	stop_supervisor
	mkdir -p "$directory"
	# Not ours: its environment names another path to the directory.
	background foreign env CUDA_MPS_PIPE_DIRECTORY="$directory/." CUDA_VISIBLE_DEVICES="$GPU0" \
		nvidia-cuda-mps-control -f
	eventually 5 test -S "$directory/control"
	configure 'restart = { backoff_min = 0.05; limit = 2; failed_retry = 1.0; };'
	launch_supervisor
	eventually 5 state_is failed
	status_json '.instances[0].reason' | grep -q "$PID"
	run ! gone "$PID"
	kill -KILL "$PID"
	eventually 5 all_ready
}

# ---------------------------------------------------------------- deaths

@test "kill -9 of the control daemon: ready within 0.5 s; the same lease works again; told once" {
	start_supervisor
	hold first
	stream_lease second
	eventually 5 answered second '.[0].parameters.what == "granted"'
	directory=$(leases_json '.leases[] | select(.name == "first") | .pipe_directory')
	old=$(control_pid)
	kill_control 500
	[[ $(control_pid) != "$old" ]]
	generation_is 2
	# Exactly once, with generation, cause, who else.
	eventually 5 answered second 'length == 2'
	answers second '.[1].parameters' >"$WORK/told"
	cat "$WORK/told"
	jq -e '.what == "interrupted" and .event.cause == "control" and .event.generation == 2
		and .lease.state == "granted"' "$WORK/told"
	jq .event "$WORK/told" | conforms Event
	eventually 2 n_lines 1 "$WORK/first.err" 'interrupted.*control daemon.*signal 9'
	# Same leases, same directory, new daemon.
	run -0 through "$directory" cuda-client init
	[[ $output == "mps server="* ]]
	n_leases 2
	leases_json 'all(.leases[]; .generation == 2)'
	status_json '.instances[0] | .restarts == 1 and .deaths[0].what == "control"
		and (.deaths[0].status | test("signal 9"))'
	run ! gone "${STARTED[0]}"
	# And again. Whoever dies often waits a little before the next start.
	kill_control 2000
	eventually 5 answered second 'length == 3'
	n_lines 2 "$WORK/first.err" interrupted
	run -0 through "$directory" cuda-client init
	[[ $output == "mps server="* ]]
}

@test "the daemon's server dies with it: that is one loss, told once" {
	start_supervisor
	stream_lease a
	eventually 5 answered a '.[0].parameters.what == "granted"'
	ctl lease -- cuda-client init
	server=$(server_pid) control=$(control_pid)
	# The supervisor finds both deaths at once.
	kill -STOP "$SUPERVISOR"
	kill -KILL "$control"
	eventually 2 gone "$server"
	kill -CONT "$SUPERVISOR"
	eventually 5 restarted_after 1
	generation_is 2
	answers a 'length == 2 and .[1].parameters.event.cause == "control"'
	status_json '.instances[0].deaths | length == 1'
}

@test "who was hit is told with the interruption" {
	start_supervisor
	stream_lease a
	stream_lease b
	eventually 5 answered a '.[0].parameters.what == "granted"'
	eventually 5 answered b '.[0].parameters.what == "granted"'
	kill -KILL "$(control_pid)"
	eventually 5 answered a 'length == 2'
	ids=$(leases_json -c '[.leases[].id] | sort')
	[[ $(answers a -c '.[1].parameters.event.hit_leases | sort') == "$ids" ]]
}

@test "kill -9 of an idle device's daemon: nobody is told, the other device goes on" {
	gpus 2
	start_supervisor
	hold_attached first --gpu 1
	other=$(control_pid 1)
	kill_control 500
	[[ $(control_pid 1) == "$other" && $(generation 1) == 1 ]]
	run ! says "$WORK/first.err" .
	run ! gone "$PID"
}

# Both holders are told within 5 s, the generation is another one, a new lease works.
server_dies() {
	start_supervisor
	# They go on after the loss.
	background first mpsctl lease -- cuda-client stubborn hold 600
	background second mpsctl lease -- cuda-client stubborn hold 600
	eventually 10 says "$WORK/first.out" '^mps server='
	eventually 10 says "$WORK/second.out" '^mps server='
	server=$(server_pid) control=$(control_pid)
	start=$(now_ms)
	kill -KILL "$server"
	eventually 5 says "$WORK/first.err" 'interrupted'
	eventually 5 says "$WORK/second.err" 'interrupted'
	echo "told after $(($(now_ms) - start)) ms"
	generation_is 2
	status_json '.instances[0] | .deaths[0].what == "server" and (.deaths[0].reason | length > 0)'
	[[ $(control_pid) == "$control" ]]
	run -0 ctl lease -- cuda-client init
	[[ $output == "mps server="* && $output != "mps server=$server "* ]]
	n_lines 1 "$WORK/first.out" '^error 806$'
	n_lines 1 "$WORK/first.err" interrupted
}

@test "case 25: the server is killed" {
	server_dies
}

@test "case 25: the server is killed, with the log lines of 535" {
	knobs version=535
	server_dies
}

@test "jobs that die of the loss are told as well, each once" {
	start_supervisor
	for i in {1..8}; do
		hold_attached "job$i"
	done
	kill -KILL "$(server_pid)"
	for pid in "${STARTED[@]}"; do
		exits_with 10 "$pid"
	done
	eventually 2 no_leases
	for i in {1..8}; do
		eventually 2 n_lines 1 "$WORK/job$i.err" interrupted
	done
}

@test "a server that ends when it was asked to is no loss" {
	start_supervisor
	ctl lease -- cuda-client init
	stream_lease a
	eventually 5 answered a '.[0].parameters.what == "granted"'
	server=$(server_pid)
	directory=$(find "$RUN/instance" -mindepth 1 -maxdepth 1)
	echo "shutdown_server $server" | with env CUDA_MPS_PIPE_DIRECTORY="$directory" timeout 5 nvidia-cuda-mps-control
	eventually 5 gone "$server"
	run -0 ctl lease -- cuda-client init
	generation_is 1
	answers a 'length == 1'
}

@test "case 24: the server outlives the control daemon and bars the next: it is ended, nobody else" {
	knobs server_survives_parent=1 "refuse_start_while_server_lives=$WORK/server.pid"
	mkdir "$WORK/other"
	cp "$(command -v sleep)" "$WORK/other/nvidia-cuda-mps-server"
	cp "$(command -v sleep)" "$WORK/other/nvidia-cuda-mps-control"
	background bystander "$WORK/other/nvidia-cuda-mps-server" 600
	background bystander2 "$WORK/other/nvidia-cuda-mps-control" 600
	start_supervisor
	hold_attached first
	server=$(server_pid)
	kill_control 10000
	gone "$server"
	run ! gone "${STARTED[0]}"
	run ! gone "${STARTED[1]}"
	run -0 ctl lease -- cuda-client init
	[[ $output == "mps server="* ]]
}

@test "no process is left as a zombie" {
	start_supervisor
	hold_attached first
	kill_control 500
	kill -KILL "$(control_pid)"
	eventually 10 restarted_after 2
	ctl lease -- cuda-client init
	eventually 5 no_zombies
}

no_zombies() {
	[[ $(ps -o stat= --ppid "$SUPERVISOR") != *Z* ]]
}

@test "many deaths: no descriptor and no process more than before" {
	configure 'restart = { backoff_min = 0.01; backoff_max = 0.02; limit = 32; window = 1.0; };'
	start_supervisor
	hold first
	ctl lease -- cuda-client init
	# supervisor, control, server, the job and its keeper
	eventually 5 n_ours 5
	before=$(descriptors)
	for _ in {1..10}; do
		old=$(generation)
		kill -KILL "$(control_pid)"
		eventually 5 restarted_after "$old"
		ctl lease -- cuda-client init
	done
	eventually 5 n_ours 5
	eventually 5 n_descriptors "$before"
}

# ---------------------------------------------------------------- the supervisor's own end

@test "a second supervisor on the same directory is refused, the first not disturbed" {
	start_supervisor
	hold_attached first
	control=$(control_pid)
	run -1 with timeout 10 mps-supervisord -c "$CONF"
	echo "$output"
	[[ $output == *"$RUN"*"in use"* ]]
	[[ $(control_pid) == "$control" && -S $SOCKET ]]
	ctl lease -- cuda-client init
	run ! gone "$PID"
	run ! says "$WORK/first.err" .
}

@test "case 27: the supervisor is killed: the next one takes over the daemon, its server and the lease" {
	start_supervisor
	hold_attached first
	first=$PID
	old=$(control_pid) server=$(server_pid) directory=$(directory_of first) id=$(lease_id first)
	kill -KILL "$SUPERVISOR"
	eventually 2 gone "$SUPERVISOR"
	wait "$SUPERVISOR" || true
	run ! gone "$old"
	start_supervisor
	[[ $(control_pid) == "$old" && $(server_pid) == "$server" && $(generation) == 1 ]]
	granted first
	[[ $(lease_id first) == "$id" && $(directory_of first) == "$directory" ]]
	leases_are --argjson pid "$first" '.leases[0] | .pid == $pid and .attached == [$pid]'
	run ! gone "$first"
	run ! says "$WORK/first.out" error
	run -0 ctl lease -- cuda-client init
	[[ $output == "mps server=$server "* ]]
	# It is watched as before.
	kill -TERM "$first"
	eventually 2 no_leases
	kill -KILL "$old"
	eventually 10 generation_is 2
	run -0 ctl lease --wait 5 -- cuda-client init
	[[ $output == "mps server="* ]]
}

@test "SIGTERM and SIGINT: holders are told, waiters refused, nothing is left" {
	for signal in TERM INT; do
		start_supervisor
		hold first -x
		background waiter mpsctl lease --name waiter -- true
		waiter=$PID
		eventually 5 queued waiter
		stream_lease s '{"name":"s"}'
		eventually 5 queued s
		kill "-$signal" "$SUPERVISOR"
		eventually 5 n_lines 1 "$WORK/first.err" 'revoked.*stopping'
		exits_with 125 "$waiter"
		tail -n 1 "$WORK/waiter.err" | grep -q 'shutting down'
		eventually 5 answered s '.[-1].error == "io.mps-supervisor.ShuttingDown"'
		kill_started
		stopped_in_order
	done
}

# It was told to already.
stopped_in_order() {
	eventually 10 gone "$SUPERVISOR"
	wait "$SUPERVISOR"
	SUPERVISOR=
	nothing_left
}

@test "SIGTERM with attached clients: bounded, the clients lose the GPU, nothing is left" {
	configure 'timeouts = { stop = 1.0; };'
	start_supervisor
	hold_attached first
	kill -TERM "$SUPERVISOR"
	start=$(now_ms)
	exits_with 10 "$PID"
	stopped_in_order
	echo "stopped after $(($(now_ms) - start)) ms"
	(($(now_ms) - start < 3000))
	says "$WORK/first.err" revoked
}

@test "case 44: quit is never answered, SIGTERM ignored: stopped within the configured time" {
	configure 'timeouts = { stop = 1.0; };'
	knobs ignore_quit=1 ignore_term=1
	start_supervisor
	hold_attached first
	kill -TERM "$SUPERVISOR"
	start=$(now_ms)
	eventually 10 gone "$SUPERVISOR"
	took=$(($(now_ms) - start))
	echo "stopped after $took ms"
	((took < 1000 + 1000))
	stopped_in_order
}

@test "SIGTERM twice is one SIGTERM" {
	knobs command_delay_ms=300
	start_supervisor
	kill -TERM "$SUPERVISOR"
	kill -TERM "$SUPERVISOR"
	stopped_in_order
}

# Of two commands at a time one is refused.
@test "SIGTERM while a command is under way: the daemon ends in order" {
	start_supervisor
	knobs command_delay_ms=500
	run -0 ctl lease -- true
	stop_supervisor
	log_says 'control daemon [0-9]+ exited with status 0'
}

@test "SIGTERM while the daemon starts, and while it waits to start again" {
	configure 'timeouts = { stop = 2.0; };'
	knobs start_delay_ms=30000
	launch_supervisor
	eventually 5 state_is starting
	stop_supervisor TERM 3
	configure 'restart = { backoff_min = 20.0; };'
	knobs exit_at_start=1
	launch_supervisor
	eventually 5 state_is backoff
	stop_supervisor TERM 2
}

# ---------------------------------------------------------------- SIGHUP, service manager, health

@test "SIGHUP: a good file is applied, a bad one is named and the old kept" {
	start_supervisor
	hold_attached first
	control=$(control_pid)
	configure 'access = { max_leases_per_user = 1; };'
	kill -HUP "$SUPERVISOR"
	eventually 5 log_says 'configuration was read again'
	run -125 --separate-stderr ctl lease --no-wait -- true
	[[ $stderr == *1* ]]
	configure '' 'access = { max_leases_per_user = -4; };'
	kill -HUP "$SUPERVISOR"
	eventually 5 log_says "$CONF:4: .*max_leases_per_user"
	run -125 ctl lease --no-wait -- true
	configure
	kill -HUP "$SUPERVISOR"
	eventually 5 takes_a_lease
	# Running instances are not touched.
	[[ $(control_pid) == "$control" ]]
	run ! gone "$PID"
	run ! says "$WORK/first.err" .
}

takes_a_lease() {
	ctl lease --no-wait -- true 2>/dev/null
}

@test "sd_notify: READY, STATUS, WATCHDOG, STOPPING" {
	background notes rawsock --notify "$WORK/notify"
	notes=$WORK/notes.out
	eventually 5 test -S "$WORK/notify"
	EXTRA=(env NOTIFY_SOCKET="$WORK/notify" WATCHDOG_USEC=300000)
	start_supervisor
	eventually 5 n_lines 1 "$notes" '^READY=1$'
	eventually 5 at_least 3 "$notes" '^WATCHDOG=1$'
	eventually 5 says "$notes" '^STATUS=1 of 1'
	run ! says "$notes" '^STOPPING'
	# Nothing of it reaches the daemons.
	run ! grep -qz NOTIFY_SOCKET "/proc/$(control_pid)/environ"
	kill -TERM "$SUPERVISOR"
	eventually 5 n_lines 1 "$notes" '^STOPPING=1$'
	n_lines 1 "$notes" '^READY=1$'
	kill_started
	stopped_in_order
}

at_least() {
	(($(grep -cE -e "$3" "$2") >= $1))
}

@test "case 45: a stopped daemon is noticed, the other device is not delayed, and it recovers" {
	gpus 2
	configure 'timeouts = { query = 0.3; };' 'health = { interval = 0.2; idle_interval = 0.2; misses = 2; wedge_grace = 60.0; };'
	start_supervisor
	hold first --gpu 0
	stopped=$(control_pid 0)
	kill -STOP "$stopped"
	start=$(now_ms)
	ctl lease --gpu 1 --no-wait -- true
	ctl status >/dev/null
	(($(now_ms) - start < 1000))
	eventually 5 state_is unresponsive 0
	status_json '.instances[0].reason | test("answer")'
	run -1 --separate-stderr ctl lease --gpu 0 --no-wait
	[[ $stderr == *unresponsive*answer* ]]
	kill -CONT "$stopped"
	eventually 5 state_is ready 0
	[[ $(control_pid 0) == "$stopped" && $(generation 0) == 1 ]]
	run ! says "$WORK/first.err" .
}

@test "cases 1, 45: nobody is let in to a daemon that was stopped a moment ago" {
	gpus 2
	start_supervisor
	kill -STOP "$(control_pid 0)"
	run -0 ctl lease --no-wait -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"'
	[[ $output == GPU-bbbbbbbb-* ]]
	state_is unresponsive 0
	run -1 --separate-stderr ctl lease --gpu 0 --no-wait
	[[ $stderr == *unresponsive*"is stopped (kill -CONT $(control_pid 0) "* ]]
	kill -CONT "$(control_pid 0)"
	eventually 5 state_is ready 0
	run -0 ctl lease --gpu 0 --no-wait -- true
}

@test "case 45: status sees at once that a daemon, or its server, is stopped" {
	start_supervisor
	hold_attached first
	for pid in "$(control_pid)" "$(server_pid)"; do
		kill -STOP "$pid"
		state_is unresponsive
		status_json ".instances[0].reason | test(\"process $pid is stopped\")"
		kill -CONT "$pid"
		eventually 5 state_is ready
	done
	run ! says "$WORK/first.err" .
}

@test "case 1: nobody is let in to an idle daemon that does not answer any more" {
	gpus 2
	configure 'timeouts = { query = 0.3; };' 'health = { misses = 2; };'
	start_supervisor
	knobs '[GPU-aaaaaaaa]' 'hang_on=*'
	# A fresh answer is good for a second.
	eventually 3 past "${EPOCHREALTIME/./}" 1000000
	run -0 ctl lease --wait 5 -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"'
	[[ $output == GPU-bbbbbbbb-* ]]
	eventually 5 log_says 'GPU-aaaaaaaa.*unresponsive: does not answer'
}

@test "case 45: a stopped daemon without leases is recycled" {
	configure 'timeouts = { query = 0.2; stop = 1.0; };' 'health = { idle_interval = 0.2; misses = 2; };'
	start_supervisor
	stopped=$(control_pid)
	kill -STOP "$stopped"
	eventually 10 gone "$stopped"
	eventually 5 all_ready
}

@test "a daemon that talks without end: leases go on, memory does not grow" {
	knobs flood_bytes_per_s=2000000
	start_supervisor
	ctl lease -- cuda-client init
	eventually 5 flooded 20000
	before=$(rss)
	eventually 10 flooded 60000
	ctl lease -- cuda-client init
	echo "RSS: $before -> $(rss) kB"
	! memory_is_real || (($(rss) - before < 2000))
}

# flooded LINES
flooded() {
	status_json ".counters.log_lines > $1" >/dev/null
}
