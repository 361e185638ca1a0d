#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# A supervisor that is killed leaves everything running, and the next one goes on with it: daemons,
# servers, clients and leases are the same ones, and what was lost before is remembered.
# adoption_deaths.bats has what died meanwhile.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell, or jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load adoption

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
