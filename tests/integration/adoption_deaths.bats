#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# What died, or came, while no supervisor ran: the next one finds it out, and a loss is told once.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell, or jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load adoption

# The control daemon is killed while nobody watches it.
lose_control_meanwhile() {
	kill_supervisor
	kill_and_wait "$1"
	start_supervisor
}

# It has connected, has asked, and sleeps until there is an answer.
awaits_answer() {
	n_lines 2 /proc/net/unix " $SOCKET\$" && says "/proc/$1/status" '^State:[[:space:]]S'
}

# lost_answer NAME REQUEST OPTION…: mpsctl asks, and the supervisor dies before it answers. REQUEST, asked
# by another, makes the next one think that it had granted that already. ID is the lease's.
lost_answer() {
	local name=$1 request=$2
	shift 2
	eventually 2 n_lines 1 /proc/net/unix " $SOCKET\$"
	kill -STOP "$SUPERVISOR"
	background "$name" mpsctl lease --name "$name" "$@"
	eventually 5 awaits_answer "$PID"
	kill -STOP "$PID"
	kill_supervisor
	start_supervisor
	ID=$(call AcquireLease "${request//PID/$PID}" | jq -r .parameters.lease.id)
	kill -CONT "$PID"
}

@test "a grant whose answer was lost is taken up, not asked for again" {
	start_supervisor
	# Without a keeper, whose connection would be one more.
	lost_answer job '{"name":"job","pid":PID}' -q -- sh -c 'echo "$MPS_SUPERVISOR_LEASE"; exec sleep 600'
	job=$PID
	eventually 5 says "$WORK/job.out" "^$ID\$"
	n_leases 1
	lost_answer shell "{\"name\":\"shell\",\"pid\":$job,\"clients\":2}" --pid "$job" -c 2 --format path
	exits_with 0 "$PID"
	says "$WORK/shell.out" "/$ID\$"
	n_leases 2
	lost_answer detached '{"name":"detached","bind":"none"}' --detach --format path
	exits_with 0 "$PID"
	says "$WORK/detached.out" "/$ID\$"
	n_leases 3
	# What somebody else was granted meanwhile for that process, or before, is not it.
	lost_answer other "{\"name\":\"another\",\"pid\":$job}" --pid "$job" --format path
	exits_with 0 "$PID"
	run ! says "$WORK/other.out" "/$ID\$"
	n_leases 5
}

@test "the control daemon died meanwhile: a new pair, the leases go on, holders are told once" {
	start_supervisor
	hold first --gpu 0
	holder second
	ctl lease --detach --name third --gpu 0
	hold other --gpu 1
	id=$(lease_id second)
	old=$(control_pid 0) other=$(control_pid 1)
	lose_control_meanwhile "$old"
	[[ $(control_pid 0) != "$old" && $(control_pid 1) == "$other" ]]
	[[ $(generation 0) == 2 && $(generation 1) == 1 ]]
	status_is '.instances[0] | .restarts == 1 and (.deaths | length == 1 and .[0].what == "control" and (.[0].hit_leases | length) == 3)'
	eventually 2 n_lines 1 "$WORK/first.err" 'interrupted.*control daemon'
	reclaim again "$id"
	eventually 2 heard again granted interrupted
	said again '.[1].parameters | .event.cause == "control" and .event.generation == 2 and .lease.generation == 2'
	# Neither a second time, nor by yet another supervisor.
	reclaim oncemore "$id"
	restart_supervisor
	reclaim afterwards "$id"
	generation_is 2
	for name in first second third; do
		granted "$name"
		works_through "$(directory_of "$name")"
	done
	heard oncemore granted
	heard afterwards granted
	n_lines 1 "$WORK/first.err" .
	run ! says "$WORK/other.err" .
	# And the next loss is told again.
	kill -KILL "$(control_pid 0)"
	eventually 5 heard afterwards granted interrupted
	eventually 5 n_lines 2 "$WORK/first.err" interrupted
}

@test "a server died meanwhile: its control daemon goes on, the loss is told once" {
	start_supervisor
	background first mpsctl lease --gpu 0 --name first -- cuda-client stubborn hold 600
	eventually 10 says "$WORK/first.out" '^mps server='
	holder second
	id=$(lease_id second)
	control=$(control_pid) server=$(server_pid)
	kill_supervisor
	kill_and_wait "$server"
	start_supervisor
	[[ $(control_pid) == "$control" && $(generation) == 2 ]]
	status_is '.instances[0] | .deaths[0].what == "server" and .restarts == 0 and .clients == []'
	eventually 2 n_lines 1 "$WORK/first.err" interrupted
	reclaim again "$id"
	eventually 2 heard again granted interrupted
	said again '.[1].parameters.event.cause == "server"'
	restart_supervisor
	reclaim afterwards "$id"
	generation_is 2
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	[[ $output == "mps server="* && $output != "mps server=$server "* ]]
	heard afterwards granted
	n_lines 1 "$WORK/first.err" .
}

@test "clients and holders that ended meanwhile: what they had is free, a child keeps its place" {
	short 30.0 'max_clients = 4;'
	start_supervisor
	hold_attached gone --gpu 0
	ended=$PID
	hold idle --gpu 0
	idle=$PID
	job_with_child stays --gpu 0
	job=$PID
	ctl lease --detach --gpu 0 --name detached
	client_through client "$(directory_of detached)" hold 600
	client=$PID
	eventually 2 attached_is detached "[$client]"
	kill_supervisor
	for pid in "$ended" "$idle" "$job" "$client"; do
		kill_and_wait "$pid"
	done
	start_supervisor
	ended gone
	ended idle
	attached_is detached '[]'
	state_of_is stays draining
	attached_is stays "[$CHILD]"
	n_clients 1
	status_is '.instances[0] | .clients_reserved == 2 and .generation == 1'
	run ! gone "$CHILD"
	[[ $(lease_directories | wc -l) == 2 ]]
	ctl lease --clients 2 --gpu 0 --no-wait -- cuda-client init
	kill -KILL "$CHILD"
	eventually 2 ended stays
}

@test "who attached while nobody ran is known afterwards, with the server that was started for it" {
	short 30.0 'prestart = false;'
	start_supervisor
	hold a --gpu 0
	job=$PID
	directory=$(directory_of a)
	kill_supervisor
	client_through client "$directory" hold 600
	client=$PID
	start_supervisor
	has_server
	says "$WORK/client.out" "^mps server=$(server_pid) "
	attached_is a "[$client]"
	# As such it is a loss's victim and a straggler.
	kill_and_wait "$job"
	eventually 2 state_of_is a draining
	kill -KILL "$(server_pid)"
	eventually 5 generation_is 2
	status_is --argjson pid "$client" '.instances[0].deaths[0].hit_pids == [$pid]'
}

@test "who attached while nobody ran keeps the place of a holder that ended while nobody ran" {
	start_supervisor
	hold a --gpu 0
	job=$PID
	directory=$(directory_of a)
	kill_supervisor
	client_through client "$directory" hold 600
	client=$PID
	kill_and_wait "$job"
	start_supervisor
	state_of_is a draining
	attached_is a "[$client]"
	kill -KILL "$client"
	eventually 2 no_leases
}

# The supervisor was killed between reading of them and writing that down.
@test "servers and clients that are in no file are found by asking, and are as good as others" {
	start_supervisor
	hold_attached first --gpu 0
	first=$PID server=$(server_pid)
	job_with_child second --gpu 0
	before=$(instances) leases=$(leases)
	for change in '.clients = []' '.clients = [] | .servers = []' '.clients |= .[:1] | .servers |= map(.ready = false)'; do
		kill_supervisor
		in_state_files "$change"
		start_supervisor
		eventually 2 n_clients 2
		same_as instances "$before"
		same_as leases "$leases"
	done
	# One that has left meanwhile is not there because a file says nothing.
	kill_supervisor
	in_state_files '.clients = [] | .servers = []'
	kill_and_wait "$first"
	start_supervisor
	eventually 2 n_clients 1
	attached_is second "[$CHILD]"
	kill_and_wait "$PID"
	eventually 2 state_of_is second draining
	kill -KILL "$server"
	eventually 5 generation_is 2
	status_is --argjson pid "$CHILD" '.instances[0].deaths[0] | .what == "server" and .hit_pids == [$pid]'
}

@test "servers that are in no file are found when the daemon answers again" {
	start_supervisor
	hold_attached first --gpu 0
	control=$(control_pid) server=$(server_pid)
	kill_supervisor
	in_state_files '.clients = [] | .servers = []'
	kill -STOP "$control"
	launch_supervisor
	eventually 5 state_is unresponsive 0
	kill -CONT "$control"
	eventually 5 n_clients 1
	attached_is first "[$PID]"
	[[ $(server_pid) == "$server" && $(generation) == 1 ]]
}

@test "a release that does not name its clients is not asked for them" {
	knobs version=535
	start_supervisor
	hold first --gpu 0
	client_through client "$(directory_of first)" hold 600
	restart_supervisor
	eventually 5 asked_twice
	status_is '.instances[0] | (.servers | length) == 1 and .clients == []'
}

asked_twice() {
	(($(counter control_commands) >= 6))
}

@test "a GPU fault meanwhile: told once to whom it hit, and waited for" {
	start_supervisor
	background victim mpsctl lease --gpu 0 --name victim -- cuda-client stubborn hold 600
	victim=$PID
	eventually 10 says "$WORK/victim.out" '^mps server='
	hold idle --gpu 0
	eventually 2 attached_is victim "[$victim]"
	control=$(control_pid) directory=$(directory_of idle)
	kill_supervisor
	client_through culprit "$directory" stubborn fault 1
	culprit=$PID
	eventually 5 says "$WORK/victim.out" '^error 700'
	launch_supervisor
	eventually 5 state_is faulted
	status_is --argjson a "$victim" --argjson b "$culprit" '.instances[0] | .generation == 2 and .deaths[0].what == "fault"
		and (.deaths[0].hit_pids | sort) == ([$a, $b] | sort) and (.reason | test("\($a)"))'
	for name in victim idle; do
		eventually 2 n_lines 1 "$WORK/$name.err" 'interrupted.*GPU fault'
	done
	kill -KILL "$culprit" "$victim"
	eventually 5 state_is ready
	[[ $(control_pid) == "$control" && $(generation) == 2 ]]
	n_lines 1 "$WORK/idle.err" .
}

# The supervisor before read all of it and was killed before it told anybody.
@test "a GPU fault of which no line is left: all who are on that GPU were hit, and are told" {
	start_supervisor
	background victim mpsctl lease --gpu 0 --name victim -- cuda-client stubborn fault 1000
	victim=$PID
	eventually 10 says "$WORK/victim.out" '^mps server='
	hold idle --gpu 0
	background neighbour mpsctl lease --gpu 1 --name neighbour -- cuda-client stubborn hold 600
	eventually 2 attached_is victim "[$victim]"
	eventually 10 says "$WORK/neighbour.out" '^mps server='
	kill_supervisor
	eventually 5 says "$WORK/victim.out" '^error 700'
	for fifo in "$RUN"/state/*.output; do
		run -124 timeout 0.2 cat "$fifo"
		[[ $output != *"fatal GPU error"* ]] || read=yes
	done
	[[ $read == yes ]]
	launch_supervisor
	eventually 5 state_is faulted
	eventually 2 n_lines 1 "$WORK/victim.err" 'interrupted.*GPU fault'
	status_is --argjson pid "$victim" '.instances[0] | .generation == 2 and .deaths[0].what == "fault" and .deaths[0].hit_pids == [$pid]'
	run ! says "$WORK/idle.err" .
	run ! says "$WORK/neighbour.err" .
	kill -KILL "$victim"
	eventually 5 state_is ready
	generation_is 2
}

@test "a GPU fault whose victims hold the server: told before or after the restart, it is one loss" {
	start_supervisor
	background victim mpsctl lease --gpu 0 --name victim -- cuda-client stubborn fault 1
	victim=$PID
	holder bystander
	id=$(lease_id bystander)
	eventually 10 state_is faulted
	eventually 2 n_lines 1 "$WORK/victim.err" 'interrupted.*GPU fault'
	generation_is 2
	kill_supervisor
	launch_supervisor
	eventually 5 state_is faulted
	status_is --argjson a "$victim" '.instances[0] | .generation == 2 and (.reason | test("\($a)"))'
	# Whom it did not hit is not told of it.
	reclaim again "$id"
	kill -KILL "$victim"
	eventually 5 state_is ready
	generation_is 2
	n_lines 1 "$WORK/victim.err" .
	heard again granted
}

@test "the control daemon hangs: unresponsive, its client is left alone, and ready when it goes on" {
	start_supervisor
	hold_attached first --gpu 0
	control=$(control_pid)
	kill_supervisor
	kill -STOP "$control"
	launch_supervisor
	eventually 5 state_is unresponsive 0
	ctl lease --gpu 1 --no-wait -- cuda-client init
	run -1 --separate-stderr ctl lease --gpu 0 --no-wait
	[[ $stderr == *unresponsive* ]]
	granted first
	attached_is first "[$PID]"
	# Killed and started once more it is no worse.
	kill_supervisor
	launch_supervisor
	eventually 5 state_is unresponsive 0
	kill -CONT "$control"
	eventually 5 state_is ready 0
	[[ $(control_pid) == "$control" && $(generation) == 1 ]]
	run ! says "$WORK/first.err" .
	n_lines 1 "$WORK/first.out" .
	run -0 ctl lease --gpu 0 -q -- cuda-client init
}
