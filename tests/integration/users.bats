#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# Several users on one GPU: one after the other, each with a server of their own and a wait that can be
# seen, or all at once where that is configured. And what becomes of a server that nobody uses.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell, or jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load lib

setup() {
	need_root
	prepare
	quick
}

teardown() {
	clean_up
}

# A user's job: says first whether the process $1 (a server of somebody else) is there, then attaches.
prepare_job() {
	cat >"$WORK/job" <<-'END'
		state=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null)
		case $state in
		'' | [ZX]*) echo "server $1 gone" ;;
		*) echo "server $1 there" ;;
		esac
		shift
		exec timeout 15 cuda-client "$@"
	END
}

# Which servers of the control daemon are there at a time: every line has the users of one moment.
watch_servers() {
	cat >"$WORK/watch" <<-'END'
		echo begun
		while :; do
			users=
			for pid in $(cat "/proc/$1/task/$1/children"); do
				user=$(stat -c %u "/proc/$pid" 2>/dev/null)
				[ "${user:-0}" = 0 ] || users="$users $user"
			done
			[ -z "$users" ] || echo "users$users"
			read -rt 0.005 <> <(:)
		done
	END
	background watch bash "$WORK/watch" "$(control_pid)"
	eventually 5 says "$WORK/watch.out" begun
}

only_one_user_at_a_time() {
	sort "$WORK/watch.out" | uniq -c
	run ! says "$WORK/watch.out" '^users [0-9]+ .'
}

saw_server_of() {
	says "$WORK/watch.out" "^users $1$"
}

waits_because() {
	leases_are --arg name "$1" --arg reason "$2" '.leases[] | select(.name == $name) | .state == "queued" and .reason == $reason'
}

instance_directory() {
	find "$RUN/instance" -mindepth 1 -maxdepth 1
}

# reaches USER [PATH]: the control socket of the instance.
reaches() {
	AS=$1 with test -S "${2:-$(instance_directory)}/control"
}

# ---------------------------------------------------------------- one user at a time

@test "the second user waits and is told of every change; the first one's server goes before the grant" {
	prepare_job
	start_supervisor
	watch_servers
	AS=1000 hold_attached a1
	a1=$PID
	AS=1000 hold a2
	a2=$PID
	server=$(server_pid)
	[[ $(stat -c %u "/proc/$server") == 1000 ]]
	status_is '.instances[0] | .uid == 1000 and (.servers | map(.uid)) == [1000]'
	AS=1001 background b mpsctl lease --name b -- sh "$WORK/job" "$server" hold 600
	b=$PID
	eventually 2 waits_because b 'GPU in use by uid 1000, 2 leases'
	leases_are --argjson pid "$b" '.leases[] | select(.name == "b") | .uid == 1001 and .pid == $pid and .position == 1'
	eventually 2 says "$WORK/b.err" "GPU in use by uid 1000$NAMED, 2 leases"
	status_is '.instances[0] | .waiting == 1 and .leases == 2'
	run -0 ctl leases
	[[ $output =~ position\ 1:\ GPU\ in\ use\ by\ uid\ 1000$NAMED,\ 2\ leases ]]
	kill -TERM "$a2"
	eventually 2 waits_because b 'GPU in use by uid 1000, 1 lease'
	eventually 2 says "$WORK/b.err" "GPU in use by uid 1000$NAMED, 1 lease"
	# While A has a lease the server is A's.
	[[ $(server_pid) == "$server" && ! -s $WORK/b.out ]]
	kill -TERM "$a1"
	eventually 5 says "$WORK/b.out" '^mps server='
	cat "$WORK/b.out"
	# It was gone when B's job began, so before that was told of its lease.
	[[ $(head -n 1 "$WORK/b.out") == "server $server gone" ]]
	run ! says "$WORK/b.out" "^mps server=$server "
	new=$(sed -nE 's/^mps server=([0-9]+) .*/\1/p' "$WORK/b.out")
	[[ $(stat -c %u "/proc/$new") == 1001 ]]
	status_is --argjson pid "$new" '.instances[0] | .uid == 1001 and (.servers | map([.pid, .uid])) == [[$pid, 1001]]'
	# Nothing was lost by that: nobody is told, and it is the same daemon.
	status_is '.instances[0] | .generation == 1 and .deaths == [] and .restarts == 0'
	# And back.
	kill -TERM "$b"
	AS=1000 run -0 ctl lease -q -- sh "$WORK/job" "$new" init
	[[ ${lines[0]} == "server $new gone" && ${lines[1]} == "mps server="* ]]
	saw_server_of 1000
	saw_server_of 1001
	only_one_user_at_a_time
}

@test "access: the second user reaches the daemon only with a lease, the first one only until its end" {
	start_supervisor
	run ! reaches 1000
	AS=1000 hold a
	directory=$(directory_of a)
	reaches 1000
	reaches 1000 "$directory"
	run ! reaches 1001
	AS=1001 background b mpsctl lease --name b -- cuda-client hold 600
	eventually 2 queued b
	run ! reaches 1001
	run ! reaches 1001 "$directory"
	AS=1001 run -0 with env CUDA_MPS_PIPE_DIRECTORY="$(instance_directory)" cuda-client init
	[[ $output == no-mps ]]
	kill -TERM "${STARTED[0]}"
	eventually 5 says "$WORK/b.out" '^mps server='
	reaches 1001
	run ! reaches 1000
	run ! reaches 1000 "$directory"
	for path in "$directory" "$(directory_of b)" "$(instance_directory)"; do
		AS=1000 run -0 with env CUDA_MPS_PIPE_DIRECTORY="$path" cuda-client init
		[[ $output == no-mps ]]
	done
	kill -TERM "${STARTED[1]}"
	eventually 5 no_leases
	run ! reaches 1000
	run ! reaches 1001
}

# turns_taken: by when they asked, users were served in order.
turns_taken() {
	jq -se '[.[].leases[] | select(.state == "granted") | {id, requested_usec, granted_usec}] | unique_by(.id)
		| length == 24 and ([sort_by(.requested_usec)[].granted_usec] | . == sort)' "$WORK"/seen.*
}

all_attached() {
	[[ $(cat "$WORK"/job*.out | grep -c '^mps server=') == 24 ]]
}

@test "three users in turns: each has a server, in the order in which they asked, one at a time" {
	knobs server_start_ms=20
	start_supervisor
	watch_servers
	AS=1000 hold first -x
	first=$PID
	cat >"$WORK/job" <<-'END'
		mpsctl leases --json >&3
		exec timeout 10 cuda-client hold 0.05
	END
	for i in {1..24}; do
		: >"$WORK/seen.$i"
		chmod 0666 "$WORK/seen.$i"
		AS=$((1000 + RANDOM % 3)) background "job$i" mpsctl lease -q --name "job$i" -- \
			sh -c "exec sh '$WORK/job' 3>'$WORK/seen.$i'"
		jobs[i]=$PID
		eventually 5 queued "job$i"
	done
	kill -TERM "$first"
	eventually 40 all_attached
	for i in "${jobs[@]}"; do
		exits_with 0 "$i"
	done
	turns_taken
	only_one_user_at_a_time
	status_is '.instances[0] | .generation == 1 and .deaths == []'
}

@test "a server that will not go for another user has an end all the same" {
	prepare_job
	quick query=0.3
	knobs server_ignore_shutdown=1
	start_supervisor
	AS=1000 ctl lease -q -- timeout 15 cuda-client init
	eventually 2 has_server
	server=$(server_pid)
	start=$(now_ms)
	AS=1001 run -0 ctl lease -q --wait 15 -- sh "$WORK/job" "$server" init
	echo "$output after $(($(now_ms) - start)) ms"
	[[ ${lines[0]} == "server $server gone" && ${lines[1]} == "mps server="* ]]
}

@test "who gives up while the other's server is ending leaves the GPU to the next" {
	knobs server_ignore_shutdown=1
	start_supervisor
	AS=1000 ctl lease -q -- timeout 15 cuda-client init
	eventually 2 has_server
	AS=1001 background b mpsctl lease -q --name b -- sleep 600
	b=$PID
	eventually 2 queued b
	kill -KILL "$b"
	AS=1000 run -0 ctl lease -q --wait 15 -- timeout 15 cuda-client init
	[[ $output == "mps server="* ]]
	eventually 5 no_leases
}

@test "a server that dies while it is ended for another user: that one is granted" {
	knobs server_ignore_shutdown=1
	start_supervisor
	AS=1000 ctl lease -q -- timeout 15 cuda-client init
	eventually 2 has_server
	server=$(server_pid)
	AS=1001 background b mpsctl lease -q --name b -- timeout 15 cuda-client init
	b=$PID
	eventually 2 queued b
	kill -KILL "$server"
	exits_with 0 "$b"
	says "$WORK/b.out" '^mps server='
}

# ---------------------------------------------------------------- several at a time

@test "multi_user: two users at once in one server of root; each reaches it as long as its lease" {
	quick multi_user=true
	start_supervisor
	AS=1000 hold_attached a
	a=$PID
	AS=1001 hold_attached b
	b=$PID
	server=$(server_pid)
	[[ $(stat -c %u "/proc/$server") == 0 ]]
	says "$WORK/a.out" "^mps server=$server "
	says "$WORK/b.out" "^mps server=$server "
	eventually 2 n_clients 2
	status_is '.instances[0] | .uid == null and .multi_user and .leases == 2 and (.servers | length) == 1'
	leases_are --argjson a "$a" --argjson b "$b" '.leases | map([.uid, .attached]) | sort == [[1000, [$a]], [1001, [$b]]]'
	reaches 1000
	reaches 1001
	run ! reaches 1001 "$(directory_of a)"
	kill -TERM "$a"
	eventually 2 n_leases 1
	run ! reaches 1000
	reaches 1001
	# The other has noticed nothing, and the server stays for the next.
	run ! gone "$b"
	run ! says "$WORK/b.out" error
	AS=1000 run -0 ctl lease --no-wait -q -- timeout 15 cuda-client init
	[[ $output == "mps server=$server "* ]]
}

# ---------------------------------------------------------------- nobody

server_is() {
	[[ $(server_pid) == "$1" ]]
}

# ended_after PID MS: how many milliseconds from then until the process is gone.
ended_after() {
	eventually 5 gone "$1"
	took=$(($(now_ms) - $2))
	echo "gone after $took ms"
}

@test "idle_server_stop: a server ends so long after the last lease, and nothing else" {
	quick idle_server_stop=0.5
	start_supervisor
	control=$(control_pid)
	AS=1000 run -0 ctl lease -q -- timeout 15 cuda-client init
	end=$(now_ms)
	server=$(sed -nE 's/^mps server=([0-9]+) .*/\1/p' <<<"$output")
	ended_after "$server" "$end"
	# The lease ended a little before its command was seen to.
	((took >= 400 && took < 2500))
	eventually 1 status_is '.instances[0].servers == []'
	status_is '.instances[0] | .state == "ready" and .generation == 1 and .deaths == [] and .restarts == 0'
	[[ $(control_pid) == "$control" ]]
	AS=1000 run -0 ctl lease --no-wait -q -- timeout 15 cuda-client init
	[[ $output == "mps server="* ]]
}

@test "idle_server_stop: not while there is a lease, with or without a client; it counts from the end" {
	quick idle_server_stop=0.5
	start_supervisor
	AS=1000 hold a
	eventually 2 has_server
	server=$(server_pid)
	eventually 5 past "$(leases_json '.leases[0].granted_usec')" 1500000
	server_is "$server"
	AS=1000 ctl lease -q -- timeout 15 cuda-client init
	eventually 5 past "$(leases_json '.leases[0].granted_usec')" 2300000
	server_is "$server"
	end=$(now_ms)
	kill -TERM "$PID"
	ended_after "$server" "$end"
	((took >= 500))
}

@test "idle_server_stop: 0 keeps the server" {
	quick idle_server_stop=0.0
	start_supervisor
	AS=1000 ctl lease -q -- timeout 15 cuda-client init
	eventually 1 has_server
	server=$(server_pid)
	from=${EPOCHREALTIME/./}
	eventually 5 past "$from" 1500000
	server_is "$server"
}

@test "idle_server_stop: a client that came past the leases keeps its server" {
	quick idle_server_stop=0.5
	start_supervisor
	ctl lease -q -- timeout 15 cuda-client init
	background stranger env CUDA_MPS_PIPE_DIRECTORY="$(instance_directory)" cuda-client hold 600
	stranger=$PID
	eventually 2 says "$WORK/stranger.out" '^mps server='
	server=$(server_pid)
	from=${EPOCHREALTIME/./}
	eventually 5 past "$from" 1500000
	server_is "$server"
	run ! gone "$stranger"
	state_is ready
	kill -KILL "$stranger"
	eventually 5 gone "$server"
}
