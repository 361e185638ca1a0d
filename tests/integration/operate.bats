#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# What an administrator does with an instance: empty and hold it, so that the GPU can be reset or given
# away, give it back, start its daemons anew. Other GPUs do not notice, and a supervisor that is killed
# or stopped changes nothing of it.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell, or jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load gangs

setup() {
	prepare 2
	quick
}

teardown() {
	clean_up
}

# operate NAME METHOD PARAMETERS: in the background, with all its answers.
operate() {
	stream "$1" "$2" "$3"
}

# answer METHOD PARAMETERS FILTER: of a call that is answered at once, and must say true.
answer() {
	local answer
	answer=$(call "$1" "$2")
	[[ $(jq -r "$3" <<<"$answer") == true ]] || {
		echo "$1: $answer" >&2
		return 1
	}
}

# refused ERROR METHOD PARAMETERS [FILTER]
refused() {
	answer "$2" "$3" ".error == \"io.mps-supervisor.$1\" and (.parameters | ${4:-true})"
}

# The instance of GPU 0 as it is listed: state, held.
is_held() {
	[[ $(status_json ".instances[${1:-0}] | [.state, .held, .control_pid] | tostring") == '["stopped",true,null]' ]]
}

# stays SECONDS COMMAND…: it succeeds all the while.
stays() {
	local end=$((${EPOCHREALTIME/./} + $1 * 1000000))
	shift
	while ((${EPOCHREALTIME/./} < end)); do
		"$@" || return 1
	done
}

# Nothing of MPS is on GPU 0, and GPU 1 leases.
only_gpu_1() {
	local pid
	is_held 0 || return 1
	for pid in $(ours); do
		if grep -qzxF "CUDA_VISIBLE_DEVICES=$GPU0" "/proc/$pid/environ" 2>/dev/null; then
			echo "on $GPU0: $pid $(tr '\0' ' ' <"/proc/$pid/cmdline")" >&2
			return 1
		fi
	done
	ctl lease --gpu 1 --no-wait -q -- cuda-client init >/dev/null
}

drained() {
	said "$1" '.[-1] | (.continues | not) and .parameters.instance.state == "stopped" and .parameters.instance.held'
}

waits() {
	said "$1" '.[-1] | .continues and .parameters.instance.state == "draining" and .parameters.instance.held'
}

# ---------------------------------------------------------------- drain and resume

@test "case 53: drain waits for the lease and names it; then nothing is there, whoever restarts; resume" {
	start_supervisor
	hold_attached first --gpu 0
	first=$PID id=$(lease_id first)
	other=$(control_pid 1)
	background drain mpsctl drain 0
	drain=$PID
	eventually 5 says "$WORK/drain.err" "$id"
	state_is draining 0
	status_is '.instances | map(.held) == [true, false]'
	run -0 ctl status
	[[ $output == *draining* ]]
	# Nobody new; who has it goes on, also with new processes.
	run -1 --separate-stderr ctl lease --gpu 0
	echo "$stderr"
	[[ $stderr == *"$GPU0"* ]]
	refused Held AcquireLease "{\"devices\":[\"$GPU0\"]}" ".instance == \"$GPU0\""
	refused Held AcquireLease '{"count":2}' ".instance == \"$GPU0\""
	for _ in 1 2 3; do
		run -0 ctl lease --no-wait -q -- cuda-client init
		[[ $output == *"device=$GPU1" ]]
	done
	works_through "$(directory_of first)"
	n_lines 1 "$WORK/first.out" .
	run ! gone "$drain"
	kill -TERM "$first"
	exits_with 0 "$drain"
	says "$WORK/drain.out" 'held'
	stays 3 only_gpu_1
	# Killed and started, stopped and started: it stays as it is.
	for how in KILL TERM; do
		if [[ $how == KILL ]]; then
			kill_supervisor
		else
			stop_supervisor
		fi
		launch_supervisor
		eventually 5 state_is ready 1
		stays 1 only_gpu_1
		refused Held AcquireLease "{\"devices\":[\"$GPU0\"]}"
		[[ $how == TERM || $(control_pid 1) == "$other" ]]
	done
	[[ $(ctl resume 0) == "$GPU0 is in use again" ]]
	eventually 5 all_ready
	[[ $(ctl resume 0) == "$GPU0 was not held; it is ready" ]]
	status_is '.instances | map(.held) == [false, false]'
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	kill_supervisor
	start_supervisor
	status_is '.instances | map(.held) == [false, false]'
	ctl lease --gpu 0 -- cuda-client init
}

@test "drain again and resume when nothing is to be done: the same answers, nothing changed" {
	start_supervisor
	control=$(control_pid 0)
	answer Resume '{"instance":"0"}' '.parameters.instance | .state == "ready" and .held == false'
	[[ $(control_pid 0) == "$control" ]]
	for _ in 1 2; do
		answer Drain '{"instance":"0"}' '.parameters.instance | .state == "stopped" and .held'
		call Drain '{"instance":"0"}' | jq .parameters.instance | conforms Instance
	done
	gone "$control"
	answer Resume '{"instance":"0"}' '.parameters.instance.held == false'
	eventually 5 all_ready
	ctl lease --gpu 0 -- cuda-client init
}

@test "resume before it is empty: the drain is over, the lease goes on, others get in" {
	start_supervisor
	hold_attached first --gpu 0
	first=$PID before=$(control_pid 0)
	operate drain Drain '{"instance":"0"}'
	eventually 5 waits drain
	answer Resume '{"instance":"0"}' '.parameters.instance | .state == "ready" and .held == false'
	eventually 5 said drain '.[-1] | (.continues | not) and .parameters.instance.held == false'
	ctl lease --gpu 0 --no-wait -- cuda-client init
	[[ $(control_pid 0) == "$before" && $(generation 0) == 1 ]]
	run ! says "$WORK/first.err" .
	# And resumed while its daemon is being stopped.
	kill -KILL "$first"
	eventually 2 no_leases
	knobs command_delay_ms=300
	operate again Drain '{"instance":"0"}'
	eventually 5 state_is stopping 0
	answer Resume '{"instance":"0"}' '.parameters.instance.held == false'
	knobs
	eventually 5 all_ready
	ctl lease --gpu 0 --no-wait -- cuda-client init
}

@test "who waits for held devices alone is refused; who can have another waits on and gets it" {
	start_supervisor
	hold a --gpu 0 -x
	hold b --gpu 1 -x
	b=$PID
	stream_lease only "{\"devices\":[\"$GPU0\"]}"
	stream_lease both '{"count":2}'
	stream_lease any "{\"devices\":[\"$GPU0\",\"$GPU1\"]}"
	eventually 5 said any '.[-1].parameters.what == "queued"'
	operate drain Drain '{"instance":"0"}'
	for name in only both; do
		eventually 5 said "$name" ".[-1] | .error == \"io.mps-supervisor.Held\" and .parameters.instance == \"$GPU0\""
	done
	said any '.[-1].parameters.what == "queued"'
	kill -KILL "$b"
	eventually 5 said any ".[-1].parameters | .what == \"granted\" and .lease.devices == [\"$GPU1\"]"
	waits drain
}

@test "who was promised the place of another user's server does not keep the drain waiting" {
	need_root
	start_supervisor
	AS=1000 hold_attached user --gpu 0
	hold blocker --gpu 1 -x
	blocker=$PID
	kill_started_but "$blocker"
	eventually 5 n_leases 1
	knobs server_ignore_shutdown=1
	stream_lease any
	eventually 5 state_is starting 0
	stream_lease only "{\"devices\":[\"$GPU0\"]}"
	eventually 5 said only '.[-1].parameters.what == "queued"'
	operate drain Drain '{"instance":"0"}'
	eventually 5 said only '.[-1].error == "io.mps-supervisor.Held"'
	eventually 15 drained drain
	kill -KILL "$blocker"
	eventually 5 said any ".[-1].parameters | .what == \"granted\" and .lease.devices == [\"$GPU1\"]"
}

kill_started_but() {
	local pid
	for pid in "${STARTED[@]}"; do
		[[ $pid == "$1" ]] || kill -KILL "$pid"
	done
}

@test "drain with a time: leases that are left by then are revoked, and it ends" {
	for wait in 0 500; do
		start_supervisor
		background first mpsctl lease --gpu 0 --name first -- cuda-client stubborn hold 600
		eventually 10 says "$WORK/first.out" '^mps server='
		stream_lease second "{\"devices\":[\"$GPU0\"]}"
		ctl lease --detach --gpu 0
		hold other --gpu 1
		eventually 5 n_leases 4
		start=$(now_ms)
		operate drain Drain "{\"instance\":\"0\",\"wait_ms\":$wait}"
		eventually 10 drained drain
		took=$(($(now_ms) - start))
		echo "# drained $took ms after the call with wait_ms $wait" >&3
		((took >= wait && took < wait + 5000))
		eventually 2 n_lines 1 "$WORK/first.err" 'revoked.*drained'
		said second '.[-1] | .parameters.what == "revoked" and (.parameters.event.message | test("drained"))'
		eventually 2 n_leases 1
		run ! says "$WORK/other.err" .
		only_gpu_1 || eventually 2 says "$WORK/first.out" '^error'
		kill_started
		ctl resume 0
		eventually 5 all_ready
		stop_supervisor
	done
}

gang_is_ready() {
	[[ $(gang_status "$1" .state) == ready ]]
}

@test "drain under a lease of several GPUs waits for it; it cannot be held itself" {
	gpus 3
	start_supervisor
	background g mpsctl lease --gpus 2 --gpu 0 --gpu 1 --name g -- cuda-client hold 600
	g=$PID
	eventually 10 says "$WORK/g.out" '^mps server='
	gang=$(gang_of g)
	refused InvalidRequest Drain "{\"instance\":\"$gang\"}"
	operate drain Drain '{"instance":"0"}'
	eventually 5 said drain '.[-1] | .continues and .parameters.instance.held'
	refused Held AcquireLease "{\"devices\":[\"$GPU0\"]}"
	ctl lease --gpu 2 --no-wait -- cuda-client init
	for _ in 1 2; do
		eventually 5 gang_is_ready g
		run ! said drain '.[-1].continues | not'
		kill_supervisor
		launch_supervisor
		eventually 5 state_is ready 2
		eventually 5 granted g
		operate drain Drain '{"instance":"0"}'
		eventually 5 said drain '.[-1] | .continues and .parameters.instance.held'
	done
	run ! says "$WORK/g.err" '(interrupted|revoked)'
	kill -KILL "$g"
	eventually 5 drained drain
	log_says "$gang: stopping: nobody needs it any more"
	eventually 5 n_gangs 0
	is_held 0
	ctl lease --gpu 1 --no-wait -- cuda-client init
	# A time ends it as well.
	ctl resume 0
	eventually 5 all_ready
	background h mpsctl lease --gpus 2 --gpu 0 --gpu 1 --name h -- sleep 600
	eventually 10 granted h
	operate timed Drain '{"instance":"1","wait_ms":300}'
	eventually 10 drained timed
	eventually 2 n_lines 1 "$WORK/h.err" 'revoked.*drained'
	eventually 5 n_gangs 0
}

@test "drain of an instance that failed, or waits to be started again: at once, and it is not tried any more" {
	quick limit=2 failed_retry=0.2 backoff_min=0.05
	knobs "[$GPU0]" exit_at_start=7
	launch_supervisor
	eventually 5 state_is failed 0
	answer Drain '{"instance":"0"}' '.parameters.instance | .state == "stopped" and .held'
	n=$(grep -c "$GPU0: started control daemon" "$LOG")
	stays 1 only_gpu_1
	n_lines "$n" "$LOG" "$GPU0: started control daemon"
	knobs
	answer Resume '{"instance":"0"}' '.parameters.instance.held == false'
	eventually 5 all_ready
	stop_supervisor
	quick backoff_min=20.0
	knobs "[$GPU0]" exit_at_start=7
	launch_supervisor
	eventually 5 state_is backoff 0
	answer Drain '{"instance":"0"}' '.parameters.instance | .state == "stopped" and .held'
	knobs
	answer Resume '{"instance":"0"}' '.parameters.instance.held == false'
	eventually 5 all_ready
}

@test "drain of an instance that hangs: its lease is waited for, then it is ended all the same" {
	start_supervisor
	hold first --gpu 0
	first=$PID
	kill -STOP "$(control_pid 0)"
	eventually 5 state_is unresponsive 0
	operate drain Drain '{"instance":"0"}'
	eventually 5 said drain '.[-1] | .continues and .parameters.instance.held'
	kill -KILL "$first"
	eventually 10 drained drain
	stays 1 only_gpu_1
}

@test "the daemon dies under a drain: the lease goes on with a new one, through its old directory" {
	start_supervisor
	hold first --gpu 0
	first=$PID directory=$(directory_of first) old=$(control_pid 0)
	operate drain Drain '{"instance":"0"}'
	eventually 5 waits drain
	kill -KILL "$old"
	eventually 5 generation_is 2
	eventually 5 state_is draining 0
	eventually 2 n_lines 1 "$WORK/first.err" interrupted
	works_through "$directory"
	refused Held AcquireLease "{\"devices\":[\"$GPU0\"]}"
	# And with a supervisor that was not there when it died.
	old=$(control_pid 0)
	kill_supervisor
	kill -KILL "$old"
	eventually 5 gone "$old"
	launch_supervisor
	eventually 5 state_is ready 1
	granted first
	eventually 5 state_is draining 0
	eventually 2 n_lines 2 "$WORK/first.err" interrupted
	works_through "$directory"
	kill -KILL "$first"
	eventually 5 is_held 0
}

@test "the supervisor is killed under a drain: the lease goes on, and the drain with it" {
	start_supervisor
	hold_attached first --gpu 0
	first=$PID control=$(control_pid 0)
	background drain mpsctl drain 0
	drain=$PID
	eventually 5 says "$WORK/drain.err" "$(lease_id first)"
	kill_supervisor
	launch_supervisor
	eventually 5 state_is ready 1
	eventually 5 state_is draining 0
	[[ $(control_pid 0) == "$control" && $(generation 0) == 1 ]]
	granted first
	works_through "$(directory_of first)"
	refused Held AcquireLease "{\"devices\":[\"$GPU0\"]}"
	run ! gone "$drain"
	kill -KILL "$first"
	eventually 5 is_held 0
	exits_with 0 "$drain"
}

# ---------------------------------------------------------------- what is kept

@test "a torn file of held instances is said and not believed" {
	start_supervisor
	answer Drain '{"instance":"0"}' '.parameters.instance.held'
	for damage in 's/.$//' 's/"version":[0-9]+/"version":99/'; do
		stop_supervisor
		sed -i -E "$damage" "$WORK/state/held"
		start_supervisor
		status_is '.instances | map(.held) == [false, false]'
		log_says "cannot read $WORK/state/held: .*nothing is held"
		answer Drain '{"instance":"0"}' '.parameters.instance.held'
		: >"$LOG"
	done
	stop_supervisor
	launch_supervisor
	eventually 5 state_is ready 1
	is_held 0
}

@test "the state directory cannot be written: the error names the file, nothing is changed" {
	: >"$WORK/state"
	start_supervisor
	control=$(control_pid 0)
	hold first --gpu 0
	refused NotReady Drain '{"instance":"0"}' "(.reason | test(\"$WORK/state/held\"))"
	run -1 --separate-stderr ctl drain 0
	[[ $stderr == *"$WORK/state/held"* ]]
	status_is '.instances[0] | .state == "ready" and .held == false'
	ctl lease --gpu 0 --no-wait -- cuda-client init
	[[ $(control_pid 0) == "$control" ]]
	# Nor is what is held given back.
	rm "$WORK/state"
	kill -KILL "$PID"
	eventually 2 no_leases
	answer Drain '{"instance":"0"}' '.parameters.instance.held'
	rm -r "$WORK/state"
	: >"$WORK/state"
	refused NotReady Resume '{"instance":"0"}' "(.reason | test(\"$WORK/state/held\"))"
	is_held 0
	rm "$WORK/state"
	ctl resume 0
	eventually 5 all_ready
}

# ---------------------------------------------------------------- restart, and who may

@test "restart: refused under leases, unless forced; then they are told and go on" {
	start_supervisor
	old=$(control_pid 0)
	answer Restart '{"instance":"0"}' '.parameters.instance | .state == "ready" and .held == false'
	gone "$old"
	old=$(control_pid 0) other=$(control_pid 1)
	hold_attached first --gpu 0
	hold second --gpu 0
	generation=$(generation 0)
	refused Busy Restart '{"instance":"0"}' '.leases == 2 and .uid == 0 and .position == null'
	refused Busy Restart '{"instance":"0","force":false}'
	run -1 --separate-stderr ctl restart 0
	[[ $stderr == "mpsctl: $GPU0: not restarted: it has 2 leases; "*"\`mpsctl drain\`"*--force* ]]
	[[ $(control_pid 0) == "$old" && $(generation 0) == "$generation" ]]
	run ! says "$WORK/first.err" .
	answer Restart '{"instance":"0","force":true}' '.parameters.instance.state == "ready"'
	[[ $(control_pid 0) != "$old" && $(generation 0) == "$((generation + 1))" && $(control_pid 1) == "$other" ]]
	gone "$old"
	for name in first second; do
		eventually 2 n_lines 1 "$WORK/$name.err" 'interrupted'
		granted "$name" || [[ $name == first ]]
	done
	works_through "$(directory_of second)"
	# What is held stays so; what has failed is tried again.
	answer Drain '{"instance":"1"}' '.parameters.instance.held'
	refused Held Restart '{"instance":"1"}' ".instance == \"$GPU1\""
	refused Held Restart '{"instance":"1","force":true}'
}

@test "restart: of the lines that MPS wrote before, those that our own commands caused are not remembered" {
	start_supervisor
	background busy mpsctl lease --gpu 0 --name busy -- cuda-client stubborn hold 600
	eventually 5 says "$WORK/busy.out" '^mps server='
	ctl restart 0 --force
	eventually 10 state_is ready
	status_json -r '.instances[0].deaths[0].reason' >"$WORK/reason"
	cat "$WORK/reason"
	says "$WORK/reason" '^Created anonymous shared memory'
	says "$WORK/reason" '^Client \{PID: .*connected'
	run ! says "$WORK/reason" '(notified to shutdown|unable to shutdown|[Tt]ry shutting down|will not shutdown|NEW UI|Cmd:)'
}

@test "restart of an instance that failed tries it at once" {
	quick limit=2 failed_retry=600.0 backoff_min=0.05
	knobs "[$GPU0]" exit_at_start=7
	launch_supervisor
	eventually 5 state_is failed 0
	answer Restart '{"instance":"0"}' '.parameters.instance.state | IN("failed", "backoff")'
	eventually 5 state_is failed 0
	knobs
	answer Restart '{"instance":"0"}' '.parameters.instance.state == "ready"'
	ctl lease --gpu 0 --no-wait -- cuda-client init
}

@test "operating is for administrators; what they name must be there" {
	need_root
	start_supervisor
	before=$(status_json -c '.instances | map([.state, .held, .control_pid])')
	for method in Drain Resume Restart; do
		AS=1000 refused PermissionDenied "$method" '{"instance":"0"}'
		for name in 7 nonsense all GPU- gang-00000000; do
			refused NoSuchInstance "$method" "{\"instance\":\"$name\"}" ".instance == \"$name\""
		done
		answer "$method" '{}' '.error == "org.varlink.service.InvalidParameter" and .parameters.parameter == "instance"'
	done
	refused InvalidRequest Drain '{"instance":"0","wait_ms":-1}' '.field == "wait_ms"'
	for command in drain resume restart; do
		AS=1000 run -1 --separate-stderr ctl "$command" 0
		[[ -n $stderr ]]
	done
	[[ $(status_json -c '.instances | map([.state, .held, .control_pid])') == "$before" ]]
}
