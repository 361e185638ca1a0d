#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# Servers and control daemons that die: once, together, again and again.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # those are of jq, or for another shell
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load cases

# ---------------------------------------------------------------- 17

# fails_and_recovers REASON: GPU 0's servers are out of order by knob, and a client asks for one.
fails_and_recovers() {
	local control start starts lines
	begin
	control=$(control_pid)
	holder first
	background waiter mpsctl lease --gpu 0 --name waiter -x -- true
	waiter=$PID
	eventually 2 queued waiter
	start=$(now_ms)
	background job env CUDA_MPS_PIPE_DIRECTORY="$(directory_of first)" CUDA_VISIBLE_DEVICES="$GPU0" \
		sh -c "until [ -e $WORK/enough ]; do cuda-client hold 0.3; done"
	job=$PID
	eventually 10 state_is failed
	echo "failed after $(($(now_ms) - start)) ms: $(status_json '.instances[0].reason')"
	reason_is "$1"
	# Who waits is refused too, and so is whoever asks.
	exits_with 125 "$waiter"
	says "$WORK/waiter.err" "failed: .*$1"
	refused_on_0 "failed: .*$1"
	call AcquireLease "{\"devices\":[\"$GPU0\"]}" >"$WORK/refusal"
	[[ $(jq --arg reason "$1" '.error == "io.mps-supervisor.NotReady" and .parameters.state == "failed"
		and (.parameters.reason | test($reason))' "$WORK/refusal") == true ]]
	# Nothing goes round any more.
	status_is '.instances[0] | .control_pid == null and .servers == []'
	gone "$control"
	starts=$(counter server_starts) lines=$(grep -c "$GPU0" "$LOG")
	((starts < 40 && lines < 600))
	eventually 3 past "$(status_json '.instances[0].since_usec')" 1000000
	[[ $(counter server_starts) == "$starts" && $(grep -c "$GPU0" "$LOG") == "$lines" ]]
	other_grants
	other_untouched
	# The cause is gone; the retry comes by itself.
	: >"$WORK/enough"
	knobs
	exits_with 0 "$job"
	eventually 6 state_is ready
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	[[ $output == "mps server="* ]]
	eventually 5 works_through "$(directory_of first)"
	other_untouched
}

@test "case 17: the server ends with status 1 after 50 ms, again and again" {
	quick failed_retry=3.0 prestart=false
	knobs "[$GPU0]" server_exit_after_ms=50 server_tries=0
	fails_and_recovers 'end again and again'
}

@test "case 17: the server cannot start and says why" {
	quick failed_retry=3.0 prestart=false
	knobs "[$GPU0]" 'server_fail_reason=no CUDA-capable device is detected' server_tries=0
	fails_and_recovers 'no CUDA-capable device is detected'
}

@test "case 17: the server becomes ready and ends with status 1, again and again" {
	quick failed_retry=3.0 prestart=false
	knobs "[$GPU0]" server_start_ms=20 server_exit_after_ms=200
	fails_and_recovers 'end again and again'
}

# ---------------------------------------------------------------- 24

# control_killed: twice; each time all holders of GPU 0 are told once.
control_killed() {
	local control i
	begin
	holder first
	hold second --gpu 0
	for i in 2 3; do
		control=$(control_pid)
		kill -KILL "$control"
		eventually 10 ready_again "$i"
		[[ $(control_pid) != "$control" ]]
		eventually 5 works_through "$(directory_of first)"
		eventually 5 works_through "$(directory_of second)"
	done
	told first '[2,3]'
	said first '[.[].parameters | select(.what == "interrupted")]
		| all(.event.cause == "control" and .lease.state == "granted" and (.event.hit_leases | type) == "array")'
	eventually 2 n_lines 2 "$WORK/second.err" "interrupted: control daemon [0-9]+ .*signal 9"
	n_lines 2 "$WORK/second.err" .
	status_is '.instances[0] | .restarts == 2 and (.deaths | map(.what)) == ["control", "control"]
		and all(.deaths[]; .status | test("9"))'
	leases_are --arg gpu "$GPU0" '[.leases[] | select(.instance == $gpu) | .generation] == [3, 3]'
	other_grants
	other_untouched
}

@test "case 24: kill -9 of the control daemon: a new pair, the same leases, each holder told once" {
	control_killed
}

@test "case 24: kill -9 of the real control daemon: the same" {
	real
	control_killed
}

@test "case 24: the server survives and bars the next daemon: it is ended, a namesake is not" {
	knobs "[$GPU0]" server_survives_parent=1 "refuse_start_while_server_lives=$WORK/server.pid"
	mkdir "$WORK/other"
	cp "$(command -v sleep)" "$WORK/other/nvidia-cuda-mps-server"
	background namesake setsid "$WORK/other/nvidia-cuda-mps-server" 600
	namesake=$PID
	begin
	hold_attached first --gpu 0
	eventually 2 n_clients 1
	server=$(server_pid)
	kill -KILL "$(control_pid)"
	eventually 10 ready_again 2
	gone "$server"
	run ! gone "$namesake"
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	[[ $output == "mps server="* ]]
	eventually 2 n_lines 1 "$WORK/first.err" interrupted
	# One spawn was enough: the new daemon was not started against the old server.
	n_lines 3 "$LOG" 'started control daemon'
	other_untouched
}

# ---------------------------------------------------------------- 25

@test "case 25: the server is killed: all told once with who was hit, a new generation, the daemon stays" {
	begin
	holder first
	background second mpsctl lease --gpu 0 --name second -- cuda-client stubborn
	second=$PID
	eventually 5 says "$WORK/second.out" '^mps server='
	hold_attached third --gpu 0
	third=$PID
	eventually 2 n_clients 2
	control=$(control_pid) server=$(server_pid)
	# All leases, with or without a client: the generation is lost to all.
	hit=$(leases_json --arg gpu "$GPU0" -c '[.leases[] | select(.instance == $gpu) | .id] | sort')
	kill -KILL "$server"
	start=$(now_ms)
	eventually 5 told first '[2]'
	eventually 5 n_lines 1 "$WORK/second.err" 'interrupted: MPS server'
	echo "told after $(($(now_ms) - start)) ms"
	answers first -c '.[-1].parameters.event.hit_leases | sort' | grep -xF "$hit"
	said first --argjson pids "[$second,$third]" \
		'.[-1].parameters.event | .cause == "server" and (.hit_pids | sort) == ($pids | sort)'
	# Its job died of the loss, and is told all the same.
	exits_with 10 "$third"
	eventually 2 n_lines 1 "$WORK/third.err" 'interrupted: MPS server'
	ready_again 2
	[[ $(control_pid) == "$control" ]]
	status_is '.instances[0] | .restarts == 0 and .deaths[0].what == "server"'
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	[[ $output == "mps server="* && $output != "mps server=$server "* ]]
	# The old leases go on, to the next loss.
	eventually 2 has_server
	kill -KILL "$(server_pid)"
	eventually 5 told first '[2,3]'
	eventually 5 n_lines 2 "$WORK/second.err" interrupted
	n_lines 1 "$WORK/third.err" .
	other_untouched
}

@test "case 25: jobs that die at once of the loss are told, each in one line" {
	begin
	jobs=()
	for i in {1..5}; do
		hold_attached "job$i" --gpu 0
		jobs+=("$PID")
	done
	eventually 2 n_clients 5
	kill -KILL "$(server_pid)"
	for pid in "${jobs[@]}"; do
		exits_with 10 "$pid"
	done
	for i in {1..5}; do
		eventually 2 n_lines 1 "$WORK/job$i.err" 'interrupted: MPS server'
		n_lines 1 "$WORK/job$i.err" .
	done
	ready_again 2
	other_untouched
}

# However many generations two deaths at once cost: who holds a lease hears of each once.
@test "cases 24 and 25: control and server are killed together" {
	begin
	holder first
	hold second --gpu 0
	for i in 1 2 3; do
		old=$(generation)
		ctl lease --gpu 0 -q -- cuda-client init
		eventually 2 has_server
		victims=("$(server_pid)" "$(control_pid)")
		((i % 2)) || victims=("${victims[1]}" "${victims[0]}")
		kill -KILL "${victims[@]}"
		eventually 10 newer_and_ready "$old"
	done
	last=$(generation)
	((last >= 4))
	eventually 2 told first "$(jq -nc --argjson last "$last" '[range(2; $last + 1)]')"
	eventually 2 n_lines $((last - 1)) "$WORK/second.err" interrupted
	other_untouched
}

newer_and_ready() {
	(($(generation) > $1)) && state_is ready
}
