#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# A supervisor that is killed leaves everything running, and the next one goes on with it: daemons,
# servers, clients and leases are the same ones. What died meanwhile is a loss like any other, told
# once; what nobody can prove is not touched.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell, or jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load adoption

setup() {
	prepare 2
	short
}

teardown() {
	clean_up
	[[ -z ${CHILD:-} ]] || eventually 5 gone "$CHILD"
}

# refused ERROR ID: reclaiming it.
refused() {
	call ReclaimLease "{\"id\":\"$2\"}" | jq -e --arg error "io.mps-supervisor.$1" '.error == $error' >/dev/null
}

# ---------------------------------------------------------------- nothing has happened meanwhile

@test "case 27: daemons, servers, clients, leases of every kind go on, and end as ever" {
	need_root
	gpus 4
	start_supervisor
	AS=1000 hold_attached user --gpu 0 -t 30
	user=$PID
	hold_attached root --gpu 1 -m 1G --clients 3
	root=$PID
	job_with_child draining --gpu 1
	kill_and_wait "$PID"
	eventually 2 state_of_is draining draining
	ctl lease --detach --gpu 1 --uid 0 --name detached
	background gang mpsctl lease --gpus 2 --gpu 2 --gpu 3 --name gang -- cuda-client hold 600
	gang=$PID
	eventually 10 says "$WORK/gang.out" '^mps server='
	eventually 2 attached_is gang "[$gang]"
	eventually 2 attached_is root "[$root]"
	eventually 2 attached_is user "[$user]"
	before=$(instances) leases=$(leases)
	for _ in 1 2; do
		restart_supervisor
		same_as instances "$before"
		same_as leases "$leases"
	done
	# Nobody has noticed, and nothing was started or ended.
	for name in user root gang; do
		run ! says "$WORK/$name.err" '(interrupted|revoked|supervisor)'
		n_lines 1 "$WORK/$name.out" .
	done
	n_lines 5 "$LOG" 'started control daemon'
	# A new one beside each; nobody else's.
	run -0 ctl lease --gpu 1 -q -- cuda-client init
	AS=1000 run -0 ctl lease --gpu 0 -q -- cuda-client init
	run -1 ctl lease --gpu 0 --no-wait
	run -1 ctl lease --gpu 2 --no-wait
	# And each ends as it would have.
	kill -KILL "$CHILD"
	eventually 2 ended draining
	ctl release "$(lease_id detached)"
	eventually 2 ended detached
	kill -KILL "$user"
	eventually 2 ended user
	ctl release "$(lease_id root)"
	eventually 2 state_of_is root draining
	kill -TERM "$root"
	eventually 2 ended root
	kill -KILL "$gang"
	eventually 2 no_leases
	eventually 5 no_gangs
}

@test "a keeper hears of what happens after the restart, and a lease of two users' device goes on" {
	need_root
	short 30.0 'multi_user = true;'
	start_supervisor
	AS=1000 hold_attached a --gpu 0
	hold_attached b --gpu 0
	before=$(instances) leases=$(leases)
	# The next one has another configuration; what runs goes on as it was started.
	short 30.0 'multi_user = false;'
	restart_supervisor
	same_as instances "$before"
	same_as leases "$leases"
	kill -KILL "$(server_pid)"
	for name in a b; do
		eventually 5 n_lines 1 "$WORK/$name.err" interrupted
	done
	run -0 cat "$WORK/a.err" "$WORK/b.err"
	(($(wc -l <<<"$output") == 2))
}

@test "a lease of a connection waits for its holder: reclaimed it goes on, else it ends in time" {
	short 1.0
	start_supervisor
	holder mine
	holder lost
	holder busy
	mine=$(lease_id mine) busy=$(directory_of busy)
	client_through client "$busy" hold 600
	client=$PID
	eventually 2 attached_is busy "[$client]"
	kill_supervisor
	start=$(now_ms)
	start_supervisor
	n_leases 3
	leases_are 'all(.leases[]; .bind == "connection")'
	reclaim again "$mine"
	answers again '.[0].parameters.lease' | conforms Lease
	# Who does not come back has lost it, but not before its time.
	eventually 5 ended lost
	(($(now_ms) - start >= 1000))
	log_says 'its holder did not come back'
	eventually 2 state_of_is busy draining
	run ! gone "$client"
	kill -KILL "$client"
	eventually 2 ended busy
	# The reclaimed one is there still, and ends with its new connection.
	granted mine
	heard again granted
	kill -KILL "${STARTED[-1]}"
	eventually 2 no_leases
}

@test "ReclaimLease: one's own, and a granted one" {
	start_supervisor
	holder mine
	ctl lease --detach --name detached --gpu 0
	job_with_child draining --gpu 0
	kill_and_wait "$PID"
	eventually 2 state_of_is draining draining
	background waiter mpsctl lease --gpu 0 -x --name waiter -- true
	eventually 5 queued waiter
	for _ in 1 2; do
		id=$(lease_id mine)
		refused NoSuchLease 00000000
		refused NoSuchLease "../state"
		refused InvalidRequest "$(lease_id draining)"
		if ((EUID == 0)); then
			AS=1000 refused PermissionDenied "$id"
			AS=1000 refused PermissionDenied "$(lease_id detached)"
		fi
		granted mine
		restart_supervisor
	done
	eventually 5 queued waiter
	refused InvalidRequest "$(lease_id waiter)"
	# Two that come back: the later one has it, the earlier is told.
	reclaim first "$id"
	first=$PID
	reclaim second "$id"
	eventually 2 heard first granted revoked
	eventually 2 said first '.[1].continues != true'
	kill_and_wait "$first"
	granted mine
	heard second granted
	ctl release "$id"
	eventually 2 heard second granted revoked
}

# ---------------------------------------------------------------- what was lost before

losses() {
	status_json -c '[.instances[] | [.name, .generation, .restarts, .deaths, .suspects]]'
}

# Two losses of GPU 0: a fault that hit one lease of two, and its server.
lose_twice() {
	background victim mpsctl lease --gpu 0 --name "víctim" -- cuda-client stubborn fault 1
	victim=$PID
	hold other --gpu 0
	eventually 10 state_is faulted
	eventually 2 n_lines 1 "$WORK/victim.err" 'interrupted.*GPU fault'
	kill -KILL "$victim"
	eventually 5 state_is ready
	hold_attached first --gpu 0
	eventually 2 n_clients 1
	kill -KILL "$(server_pid)"
	eventually 5 generation_is 3
	eventually 5 state_is ready
	exits_with 10 "$PID"
	eventually 2 n_leases 1
}

@test "what was lost before is remembered: whom it hit, what MPS wrote, who was there at faults" {
	start_supervisor
	lose_twice
	status_is --argjson pid "$victim" '.instances[0] | (.deaths | map(.what)) == ["server", "fault"]
		and (.deaths[0] | (.hit_pids | length) == 1 and (.hit_leases | length) == 2)
		and .deaths[1].hit_pids == [$pid] and (.deaths[1].reason | test("\n.*fatal GPU error"))
		and (.suspects | map([.name, .present, .faults])) == [["víctim", 1, 1]]'
	before=$(losses)
	for _ in 1 2; do
		restart_supervisor
		same_as losses "$before"
	done
	# Also by one that finds the control daemon gone, and adds that.
	background late mpsctl lease --gpu 0 --name late -- cuda-client stubborn hold 600
	late=$PID
	eventually 5 attached_is late "[$late]"
	kill_supervisor
	kill_and_wait "$(jq -s '.[] | select(.deaths != []) | .control.pid' "$RUN"/state/*.instance)"
	start_supervisor
	status_is --argjson before "$before" --argjson pid "$late" '.instances[0] | .generation == 4 and .restarts == 1
		and .deaths[1:] == $before[0][3] and .suspects == $before[0][4]
		and (.deaths[0] | .what == "control" and .hit_pids == [$pid])'
	status_is --arg a "$(lease_id other)" --arg b "$(lease_id late)" '.instances[0].deaths[0].hit_leases | sort == ([$a, $b] | sort)'
	eventually 2 n_lines 2 "$WORK/other.err" .
	before=$(losses)
	restart_supervisor
	same_as losses "$before"
}

@test "a state file that says nothing of losses, or nonsense, is taken up all the same" {
	start_supervisor
	hold_attached first --gpu 0
	before=$(instances) leases=$(leases)
	for change in 'del(.deaths, .faults, .ending)' '.deaths = "no" | .faults = {}' \
		'.deaths = [1, {what: "mistake"}, {what: "server", at_usec: "x", hit_pids: ["a", -1, 99999999999], hit_leases: [1, "x", "0123456789abcdef"], lines: [null, 1]}]
			| .faults = [3, [{uid: "x"}, {name: ("n" * 500)}]]' \
		'.deaths = [range(20) | {what: "wedge", reason: ("r" * 9999), hit_pids: [range(300)], lines: [range(30) | ("l" * 999)]}]'; do
		kill_supervisor
		in_state_files "$change"
		start_supervisor
		same_as instances "$before"
		same_as leases "$leases"
		call GetStatus '{}' >"$WORK/status"
		restart_supervisor
		same_as instances "$before"
	done
	status_is '.instances[0].deaths | length == 8 and all(.what == "wedge" and (.hit_pids | length) == 256)'
	# It stays a small file.
	(($(cat "$RUN"/state/*.instance | wc -c) < 150000))
}

@test "a control daemon that ends as ordered while nobody ran is no loss" {
	short 30.0
	knobs "[$GPU0]" ignore_quit=1
	start_supervisor
	old=$(control_pid)
	background drain mpsctl drain "$GPU0"
	eventually 2 state_is stopping
	kill_supervisor
	kill_and_wait "$old"
	launch_supervisor
	eventually 5 state_is stopped
	status_is '.instances[0] | .deaths == [] and .restarts == 0 and .generation == 1 and .held'
	run ! log_says 'ended while no supervisor ran'
}

# ---------------------------------------------------------------- what died meanwhile

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
