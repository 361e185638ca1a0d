#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# Leases of several devices in a crowd, and what becomes of them when something breaks.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell, or jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load gangs

setup() {
	prepare 4
	quick
	RANDOM=${SEED:-4711}
}

teardown() {
	clean_up
}

# Every single device is there for whoever comes.
devices_are_back() {
	local device
	eventually 5 no_gangs
	for device in 0 1 2 3; do
		run -0 ctl lease --gpu "$device" --wait 5 -q -- cuda-client init
		[[ $output == "mps server="* ]]
	done
	no_leases
}

# ---------------------------------------------------------------- crowds

# What a job under a lease writes: that lease, as the listing has it.
own_lease() {
	cat >"$WORK/own" <<-'END'
		mpsctl leases --json | jq -c --arg id "$MPS_SUPERVISOR_LEASE" '.leases[] | select(.id == $id)' >>"$1"
		read -rt "0.0$((RANDOM % 4))1" <> <(:)
		exit 0
	END
}

# loop NAME OPTION…: short leases one after the other, until WORK/enough is there.
loop() {
	local name=$1
	shift
	: >"$WORK/$name.leases"
	background "$name" bash -c "until [[ -e $WORK/enough ]]; do
		mpsctl lease -q --name $name $* -- bash $WORK/own $WORK/$name.leases || exit; done"
}

n_had() {
	(($(cat "$WORK"/single*.leases | wc -l) >= $1))
}

@test "a gang is not starved by a stream of single leases, and is passed by none that came later" {
	gpus 2
	own_lease
	start_supervisor
	for i in {1..8}; do
		loop "single$i"
	done
	eventually 10 n_had 20
	background gang mpsctl lease --name gang --gpus 2 --wait 30 -- bash "$WORK/own" "$WORK/gang.leases"
	gang=$PID
	exits_with 0 "$gang"
	# They went on meanwhile, and go on.
	n=$(cat "$WORK"/single*.leases | wc -l)
	eventually 15 n_had $((n + 20))
	: >"$WORK/enough"
	for i in "${STARTED[@]}"; do
		[[ $i == "$gang" ]] || exits_with 0 "$i"
	done
	jq -se --slurpfile gang "$WORK/gang.leases" '$gang[0] as $g
		| map(select(.requested_usec > $g.requested_usec)) as $later
		| ($later | length) >= 8 and all($later[]; .granted_usec > $g.granted_usec)' "$WORK"/single*.leases
	# And those before it were.
	jq -se --slurpfile gang "$WORK/gang.leases" '$gang[0] as $g
		| map(select(.requested_usec < $g.requested_usec)) as $earlier
		| ($earlier | length) >= 8 and all($earlier[]; .granted_usec < $g.granted_usec)' "$WORK"/single*.leases
	eventually 5 no_leases
	devices_are_back_of 2
}

devices_are_back_of() {
	local device
	eventually 5 no_gangs
	for ((device = 0; device < $1; device++)); do
		run -0 ctl lease --gpu "$device" --no-wait -q -- cuda-client init
		[[ $output == "mps server="* ]]
	done
}

# One client of the crowd: leases of random size and place, some of which it gives up waiting for, some
# of which are killed. Writes the devices and the instance of each, and what CUDA says there.
crowd() {
	cat >"$WORK/crowd" <<-'END'
		RANDOM=$1
		until [[ -e $WORK/enough ]]; do
			options=(-q)
			case $((RANDOM % 8)) in
			0 | 1 | 2) ;;
			3 | 4) options+=(--gpu $((RANDOM % 4))) ;;
			5) options+=(--gpus 2) ;;
			6) options+=(--gpus 2 --gpu $((RANDOM % 2)) --gpu $((2 + RANDOM % 2))) ;;
			7) options+=(--gpus 3) ;;
			esac
			((RANDOM % 5)) || options+=(--wait "0.0$((RANDOM % 9))1")
			if ((RANDOM % 6)); then
				mpsctl lease "${options[@]}" -- bash "$WORK/had" "$((RANDOM % 7))"
			else
				timeout -s KILL "0.$((RANDOM % 3))1" mpsctl lease "${options[@]}" -- bash "$WORK/had" 9
			fi
		done
	END
	cat >"$WORK/had" <<-'END'
		echo "lease $MPS_SUPERVISOR_LEASE $CUDA_VISIBLE_DEVICES $(timeout 10 cuda-client init)"
		read -rt "0.0$1" <> <(:)
	END
}

# never_both FILE: from the events, one after the other, no device is in two instances at once. What a
# gang's devices are is known from its name, which is the same for the same devices.
never_both() {
	jq -se --slurpfile gangs "$WORK/gangs" '
		(reduce $gangs[] as $g ({}; .[$g.name] = $g.devices)) as $devices
		| map(select(.lease != null and (.kind == "lease-granted" or .kind == "lease-ended")))
		| reduce .[] as $e ({busy: {}, had: {}, singles: 0, gangs: 0, wrong: []};
			if $e.kind == "lease-granted" then
				($devices[$e.instance] // [$e.instance]) as $wanted
				| if ($wanted | length) > 1 then .gangs += 1 else .singles += 1 end
				| .had[$e.lease] = $e.instance
				| reduce $wanted[] as $d (.; if ((.busy[$d] // {}) | keys | . - [$e.instance] | length) > 0
					then .wrong += [[$e, .busy[$d]]] else . end
					| .busy[$d][$e.instance] += 1)
			elif .had[$e.lease] then
				.had[$e.lease] as $instance
				| reduce ($devices[$instance] // [$instance])[] as $d (.; .busy[$d][$instance] -= 1
					| if .busy[$d][$instance] == 0 then del(.busy[$d][$instance]) else . end)
				| del(.had[$e.lease])
			else . end)
		| debug | .wrong == [] and .had == {} and .gangs >= 10 and .singles >= 30' "$1"
}

# The devices of every gang there can be, by its name: the same devices have the same name again.
know_gangs() {
	local set option
	local -a options
	for set in 01 02 03 12 13 23 012 013 023 123 0123; do
		options=()
		for option in $(fold -w 1 <<<"$set"); do
			options+=(--gpu "$option")
		done
		ctl lease -q --gpus "${#set}" "${options[@]}" --wait 10 -- mpsctl status --json |
			jq -c '.instances[] | select(.kind == "gang") | {name, devices: [.devices[].uuid]}'
	done >"$WORK/gangs"
	[[ $(jq -r .name "$WORK/gangs" | sort -u | wc -l) == 11 ]]
	[[ -z $(jq -r 'select(.kind == "lease-granted") | .instance | select(startswith("gang-"))' "$1" |
		sort -u | comm -23 - <(jq -r .name "$WORK/gangs" | sort -u)) ]]
}

monitoring() {
	ctl lease -q -- true && [[ -s $WORK/monitor.out ]]
}

crowded_for_seconds() {
	local i
	local -a members=()
	crowd
	start_supervisor
	background monitor mpsctl monitor --json
	eventually 5 monitoring
	eventually 5 no_leases
	for i in {1..10}; do
		background "crowd$i" env WORK="$WORK" bash "$WORK/crowd" "$((SEED_OF + i))"
		members+=("$PID")
	done
	from=${EPOCHREALTIME/./}
	eventually 30 past "$from" $(($1 * 1000000))
	: >"$WORK/enough"
	for i in "${members[@]}"; do
		eventually 20 gone "$i"
	done
	eventually 5 no_leases
	# Nobody who had a lease was without MPS, or on another device than its first.
	cat "$WORK"/crowd*.out | grep '^lease ' >"$WORK/had.all"
	run ! grep -vE '^lease [0-9a-f]{8} (GPU-[-0-9a-f]+)(,[-,GPU0-9a-f]+)? mps server=[0-9]+ device=\1$' "$WORK/had.all"
	(($(wc -l <"$WORK/had.all") > 30))
	cp "$WORK/monitor.out" "$WORK/events"
	know_gangs "$WORK/events"
	never_both "$WORK/events"
	devices_are_back
	status_is '.instances | all(.state == "ready" and .generation == 1 and .deaths == [] and .leases == 0 and .waiting == 0)'
}

@test "gangs and single leases in a crowd for seconds: no device is ever in both" {
	knobs server_start_ms=20
	SEED_OF=${SEED:-100}
	crowded_for_seconds 8
}

# ---------------------------------------------------------------- a daemon that does not start

# What a section of the knobs applies to: the daemon of this gang alone.
GANG01="[$GPU0,$GPU1]"

@test "the gang's daemon cannot start: the requester gets NotReady, the devices come back" {
	quick limit=2 backoff_min=0.05
	knobs "$GANG01" exit_at_start=3
	start_supervisor
	ctl lease --gpu 0 -q -- cuda-client init
	call AcquireLease '{"count":2,"devices":["0","1"]}' >"$WORK/answer"
	cat "$WORK/answer"
	[[ $(jq '.error == "io.mps-supervisor.NotReady" and .parameters.state == "failed" and (.parameters.instance | startswith("gang-"))
		and (.parameters.reason | test("3"))' "$WORK/answer") == true ]]
	devices_are_back
	run -1 --separate-stderr ctl lease --gpus 2 --gpu 0 --gpu 1
	echo "$stderr"
	[[ -z $output && $stderr == *gang-* ]]
	run -125 ctl lease --gpus 2 --gpu 0 --gpu 1 -- true
	# Other gangs are none the worse for it, and this one is not when it can start again.
	run -0 ctl lease --gpus 2 --gpu 2 --gpu 1 -q -- cuda-client init
	[[ $output == "mps server="* ]]
	knobs
	run -0 ctl lease --gpus 2 --gpu 0 --gpu 1 -q --wait 10 -- cuda-client init
	[[ $output == "mps server="* ]]
	devices_are_back
}

@test "the gang's daemon is not ready in time: NotReady says so, the devices come back" {
	quick start=0.5 limit=2 backoff_min=0.05
	knobs "$GANG01" start_delay_ms=30000
	start_supervisor
	background early mpsctl lease --gpus 2 --gpu 0 --gpu 1 -- true
	early=$PID
	background single mpsctl lease --gpu 0 --name single -- cuda-client init
	single=$PID
	exits_with 125 "$early"
	cat "$WORK/early.err"
	says "$WORK/early.err" 'gang-.*not ready after 0.5 s'
	exits_with 0 "$single"
	devices_are_back
}

@test "a device below has failed: refused, and the other devices are not tied up" {
	quick limit=2 backoff_min=0.05
	knobs "[$GPU0]" exit_at_start=3
	launch_supervisor
	eventually 10 state_is failed 0
	eventually 5 state_is ready 1
	call AcquireLease '{"count":2,"devices":["0","1"]}' >"$WORK/answer"
	cat "$WORK/answer"
	[[ $(jq -r .error "$WORK/answer") == io.mps-supervisor.NotReady ]]
	run -0 ctl lease --gpu 1 --no-wait -q -- cuda-client init
	# Any three: those that work.
	run -0 ctl lease --gpus 3 --wait 10 -q -- sh -c 'echo "$CUDA_VISIBLE_DEVICES"'
	[[ $output == "$GPU1,$GPU2,$GPU3" ]]
	eventually 5 no_gangs
}

# ---------------------------------------------------------------- who gives up

gang_is() {
	[[ $(status_json '.instances[] | select(.kind == "gang") | .state') == "$1" ]]
}

gang_pid() {
	status_json '.instances[] | select(.kind == "gang") | .control_pid'
}

@test "the waiter gives up while the gang starts: killed, timed out, released; the devices come back" {
	knobs "$GANG01" start_delay_ms=3000
	start_supervisor
	for how in killed timed-out released; do
		wait=60
		[[ $how != timed-out ]] || wait=0.5
		background waiter mpsctl lease --gpus 2 --gpu 0 --gpu 1 --name "$how" --wait "$wait" -- true
		waiter=$PID
		eventually 2 gang_is starting
		queued "$how"
		control=$(gang_pid)
		case $how in
		killed) kill -KILL "$waiter" ;;
		released) ctl release "$(lease_id "$how")" ;;
		esac
		start=$(now_ms)
		eventually 5 gone "$waiter"
		run -0 ctl lease --gpu 0 --wait 5 -q -- cuda-client init
		echo "$how: GPU 0 was there again after $(($(now_ms) - start)) ms"
		eventually 5 no_gangs
		gone "$control"
		no_leases
	done
	devices_are_back
}

@test "the waiter gives up while a server below is ending: no gang is started, the device goes on" {
	quick start=2
	knobs server_ignore_shutdown=1
	start_supervisor
	ctl lease --gpu 0 -q -- cuda-client init
	eventually 2 has_server 0
	background waiter mpsctl lease --gpus 2 --gpu 0 --gpu 1 --name waiter -- true
	eventually 2 queued waiter
	kill -KILL "$PID"
	eventually 5 no_leases
	knobs
	devices_are_back
	run ! log_says 'gang-.*started control daemon'
}

@test "a server below that will not go has an end, and the gang is granted" {
	quick query=0.3
	knobs server_ignore_shutdown=1
	start_supervisor
	ctl lease --gpu 0 -q -- cuda-client init
	eventually 2 has_server 0
	server=$(server_pid 0)
	run -0 ctl lease --gpus 2 --gpu 0 --gpu 1 --wait 15 -q -- cuda-client init
	[[ $output == "mps server="* ]]
	gone "$server"
	devices_are_back
}

# The instances below end when the gang that starts has ended already, and do not start it again.
@test "the supervisor stops while the gang starts, and while it is in use: nothing is left" {
	knobs "[$GPU1]" ignore_quit=1 "$GANG01" start_delay_ms=2000 ignore_quit=0
	start_supervisor
	background waiter mpsctl lease --gpus 2 --gpu 0 --gpu 1 --name waiter -- true
	waiter=$PID
	hold_attached used --gpus 2 --gpu 2 --gpu 3
	eventually 2 gang_is_among starting
	kill "$SUPERVISOR"
	eventually 10 gone "$SUPERVISOR"
	wait "$SUPERVISOR"
	SUPERVISOR=
	exits_with 125 "$waiter"
	kill_started
	nothing_left
}

gang_is_among() {
	status_is --arg state "$1" '[.instances[] | select(.kind == "gang") | .state] | index($state) != null'
}

@test "the supervisor is killed, then the last holder of a gang: the next supervisor leaves nothing of it" {
	start_supervisor
	hold_attached g --gpus 2 --gpu 0 --gpu 1
	g=$PID
	control=$(gang_status g .control_pid)
	kill -KILL "$SUPERVISOR"
	eventually 2 gone "$SUPERVISOR"
	wait "$SUPERVISOR" || true
	kill -KILL "$g"
	eventually 2 gone "$g"
	start_supervisor
	eventually 5 gone "$control"
	devices_are_back
}

# ---------------------------------------------------------------- deaths

@test "kill -9 of the gang's control daemon: its holders are told once, the lease goes on" {
	start_supervisor
	stream_lease g1 '{"count":2,"devices":["0","1"],"name":"g1"}'
	eventually 10 answered g1 '.[-1].parameters.what == "granted"'
	hold g2 --gpus 2 --gpu 0 --gpu 1
	hold_attached g3 --gpus 2 --gpu 0 --gpu 1
	g3=$PID
	hold other --gpu 2
	gang=$(gang_of g1) old=$(gang_status g1 .control_pid)
	kill -KILL "$old"
	eventually 10 status_is --arg gang "$gang" '.instances[] | select(.name == $gang) | .state == "ready" and .generation == 2'
	eventually 2 said g1 --arg gang "$gang" '[.[].parameters | select(.what == "interrupted")] | length == 1
		and (.[0].event | .cause == "control" and .instance == $gang and .generation == 2) and .[0].lease.state == "granted"'
	eventually 2 n_lines 1 "$WORK/g2.err" 'interrupted: control daemon'
	exits_with 10 "$g3"
	eventually 2 n_lines 1 "$WORK/g3.err" 'interrupted: control daemon'
	run ! says "$WORK/other.err" interrupted
	granted g2
	[[ $(gang_status g1 .control_pid) != "$old" ]]
	# Its next process is on the new one, with the same devices.
	for gpu in "$GPU0" "$GPU1"; do
		DEVICE=$gpu run -0 through "$(directory_of g1)" cuda-client init
		[[ $output == "mps server="*" device=$gpu" ]]
	done
	run -1 ctl lease --gpu 0 --no-wait
	# The instances below have nothing to do with it.
	status_is '.instances | map(select(.kind == "gpu")) | length == 4 and all(.generation == 1 and .deaths == [])'
	kill_started
	devices_are_back
}

@test "the gang's daemon dies and does not come back: failed, the lease stays; then the devices come back" {
	quick limit=2 backoff_min=0.05
	start_supervisor
	hold g1 --gpus 2 --gpu 0 --gpu 1
	g1=$PID
	gang=$(gang_of g1)
	knobs "$GANG01" exit_at_start=3
	kill -KILL "$(gang_status g1 .control_pid)"
	eventually 5 gang_is failed
	granted g1
	run -1 --separate-stderr ctl lease --gpus 2 --gpu 0 --gpu 1 --no-wait
	echo "$stderr"
	[[ -z $output ]]
	run -1 ctl lease --gpu 0 --no-wait
	# Who waits for these devices gets a try of its own when they are free, and its answer then.
	background g2 mpsctl lease --gpus 2 --gpu 0 --gpu 1 --name g2 -- true
	g2=$PID
	kill -KILL "$g1"
	exits_with 125 "$g2"
	says "$WORK/g2.err" "$gang"
	devices_are_back
}

@test "several wait for a gang that cannot start: each is refused with the reason, none is left waiting" {
	quick limit=2 backoff_min=0.05
	knobs "$GANG01" exit_at_start=3
	start_supervisor
	for i in 1 2 3; do
		background "w$i" mpsctl lease --gpus 2 --gpu 0 --gpu 1 --name "w$i" -- true
		waiters[i]=$PID
	done
	background single mpsctl lease --gpu 1 --name single -- cuda-client init
	single=$PID
	for i in 1 2 3; do
		exits_with 125 "${waiters[i]}"
		says "$WORK/w$i.err" 'gang-.* failed: .*status 3'
	done
	exits_with 0 "$single"
	devices_are_back
}

@test "the gang has failed under a lease: who waits is told so, and has it when it works again" {
	quick limit=2 backoff_min=0.05
	start_supervisor
	hold g1 --gpus 2 --gpu 0 --gpu 1
	gang=$(gang_of g1)
	# The one that waits already when it fails.
	knobs "$GANG01" start_delay_ms=30000
	kill -KILL "$(gang_status g1 .control_pid)"
	eventually 5 gang_is starting
	background early mpsctl lease --gpus 2 --gpu 0 --gpu 1 --name early -- cuda-client init
	early=$PID
	eventually 2 queued early
	knobs "$GANG01" exit_at_start=3
	kill -KILL "$(gang_status g1 .control_pid)"
	eventually 5 gang_is failed
	# Those who come later.
	background late mpsctl lease --gpus 2 --gpu 0 --gpu 1 --name late -- cuda-client init
	late=$PID
	eventually 2 queued late
	for name in early late; do
		eventually 2 waits_because "$name" "$gang is failed: .*control daemon"
	done
	run -4 --separate-stderr ctl lease --gpus 2 --gpu 0 --gpu 1 --wait 0.2
	[[ -z $output && $stderr == *"$gang is failed"* ]]
	call AcquireLease '{"count":2,"devices":["0","1"],"wait_ms":0}' >"$WORK/answer"
	[[ $(jq -r '.parameters.reason' "$WORK/answer") == "$gang is failed"* ]]
	granted g1
	# It is tried again, and those who waited have it, beside the one whose lease has gone on.
	knobs
	ctl restart "$gang" --force
	exits_with 0 "$early"
	exits_with 0 "$late"
	granted g1
	says "$WORK/early.out" '^mps server='
	kill_started
	devices_are_back
}

waits_because() {
	[[ $(leases_json --arg name "$1" '.leases[] | select(.name == $name) | .reason') =~ $2 ]]
}

@test "a server of the gang is killed: told as on one device" {
	start_supervisor
	hold g1 --gpus 2 --gpu 0 --gpu 1
	hold_attached g2 --gpus 2 --gpu 0 --gpu 1
	g2=$PID
	kill -KILL "$(gang_status g1 '.servers[0].pid')"
	exits_with 10 "$g2"
	eventually 2 n_lines 1 "$WORK/g1.err" 'interrupted: MPS server'
	eventually 2 n_lines 1 "$WORK/g2.err" 'interrupted: MPS server'
	eventually 5 gang_is ready
	run -0 ctl lease --gpus 2 --gpu 0 --gpu 1 -q --wait 5 -- cuda-client init
	[[ $output == "mps server="* ]]
}

@test "a control daemon below dies: the gang does not notice" {
	start_supervisor
	hold_attached g --gpus 2 --gpu 0 --gpu 1
	g=$PID
	old=$(control_pid 0)
	kill -KILL "$old"
	eventually 5 status_is '.instances[0] | .state == "ready" and .generation == 2'
	[[ $(gang_status g .generation) == 1 ]]
	run ! gone "$g"
	run ! says "$WORK/g.err" interrupted
	run -1 ctl lease --gpu 0 --no-wait
	kill -KILL "$g"
	devices_are_back
}

@test "a client of the gang is left behind: it keeps both devices until it has gone" {
	start_supervisor
	job_with_child g --gpus 2 --gpu 0 --gpu 1
	g=$PID
	gang_has_clients 1
	kill -KILL "$g"
	eventually 2 n_leases 1 draining
	run -1 ctl lease --gpu 0 --no-wait
	run -1 ctl lease --gpu 1 --no-wait
	run -0 ctl lease --gpu 2 --no-wait -- true
	kill -KILL "$CHILD"
	devices_are_back
}

gang_has_clients() {
	[[ $(status_json '.instances[] | select(.kind == "gang") | .clients | length') == "$1" ]]
}
