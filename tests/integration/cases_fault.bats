#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# GPU faults: who was hit is told, who holds on is named and ended.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # those are of jq, or for another shell
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load cases

# ---------------------------------------------------------------- 31

in_state() {
	[[ $(status_json '.instances[0].state') == "$1" ]] && reason_is "$2"
}

# three_and_a_fault KIND: leases a and b stay attached after it, c breaks the GPU and leaves; d has no client.
three_and_a_fault() {
	background a mpsctl lease --gpu 0 --name a -- cuda-client stubborn
	A=$PID
	eventually 5 says "$WORK/a.out" '^mps server='
	holder b
	client_through b_client "$(directory_of b)" stubborn
	B=$PID
	holder d
	background c mpsctl lease --gpu 0 --name c -- cuda-client "$1" 500
	C=$PID
	eventually 5 says "$WORK/c.out" '^mps server='
	HIT=$(leases_json -c '[.leases[] | select(.name == "a" or .name == "b" or .name == "c") | .id] | sort')
	exits_with 10 "$C"
	eventually 3 state_is faulted
}

# Both orders: the table's is not said.
both_pids() {
	reason_is "(^|[^0-9])$1([^0-9]|$)" && reason_is "(^|[^0-9])$2([^0-9]|$)"
}

@test "case 31: a fault by one of three: who was hit is told, who holds on is named, then all is well" {
	begin
	control=$(control_pid)
	three_and_a_fault fault
	eventually 2 both_pids "$A" "$B"
	run ! reason_is "(^|[^0-9])$C([^0-9]|$)"
	refused_on_0 "faulted: .*pids ($A, $B|$B, $A)"
	background waiter mpsctl lease --gpu 0 --name waiter -- cuda-client init
	waiter=$PID
	eventually 2 queued waiter
	other_grants
	# Who was hit.
	status_is --argjson hit "$HIT" --argjson pids "[$A,$B,$C]" '.instances[0].deaths | length == 1 and (.[0]
		| .what == "fault" and (.hit_leases | sort) == $hit and (.hit_pids | sort) == ($pids | sort))'
	told b '[2]'
	said b --argjson hit "$HIT" --argjson pids "[$A,$B,$C]" '.[-1].parameters.event
		| .cause == "fault" and (.hit_leases | sort) == $hit and (.hit_pids | sort) == ($pids | sort)'
	eventually 2 n_lines 1 "$WORK/a.err" 'interrupted: a GPU fault .*also hit: '
	eventually 2 n_lines 1 "$WORK/c.err" 'interrupted: a GPU fault .*also hit: '
	n_lines 1 "$WORK/c.err" .
	# One leaves, the other is still waited for.
	kill -KILL "$A"
	eventually 2 in_state faulted "pids $B to leave"
	queued waiter
	kill -KILL "$B"
	eventually 3 ready_again 2
	exits_with 0 "$waiter"
	says "$WORK/waiter.out" '^mps server='
	[[ $(control_pid) == "$control" ]]
	# Without a client nothing was lost.
	told d '[]'
	eventually 5 works_through "$(directory_of d)"
	eventually 5 works_through "$(directory_of b)"
	status_is '.instances[0] | .restarts == 0 and (.suspects | map([.name, .present, .faults]) | sort)
		== [["a", 1, 1], ["b", 1, 1], ["c", 1, 1]]'
	other_untouched
}

@test "case 31: who is there at every fault stands out" {
	begin
	for i in 1 2 3; do
		background "neighbour$i" mpsctl lease --gpu 0 --name "neighbour$i" -- cuda-client hold 600
		neighbour=$PID
		eventually 5 says "$WORK/neighbour$i.out" '^mps server='
		background "bad$i" mpsctl lease --gpu 0 --name bad -- cuda-client trap 200
		exits_with 10 "$PID"
		exits_with 10 "$neighbour"
		says "$WORK/neighbour$i.out" '^error 719$'
		eventually 3 ready_again $((i + 1))
	done
	status_is '.instances[0].suspects | map(select(.name == "bad")) == [{uid: .[0].uid, name: "bad", present: 3, faults: 3}]
		and (map(select(.present == 1)) | length) == 3'
	other_untouched
}

@test "case 31: fault_grace is over: terminate_client ends a holdout's hold, the daemon stays" {
	quick fault_grace=0.5
	begin
	control=$(control_pid)
	three_and_a_fault fault
	start=$(now_ms)
	eventually 5 ready_again 2
	echo "ready again after $(($(now_ms) - start)) ms"
	log_says "client $A holds .*terminate_client"
	log_says "client $B holds .*terminate_client"
	eventually 2 says "$WORK/a.out" '^error 810$'
	[[ $(control_pid) == "$control" ]]
	run ! log_says SIGKILL
	run -0 ctl lease --gpu 0 -q -- cuda-client init
	[[ $output == "mps server="* ]]
	told b '[2]'
	told d '[]'
	other_untouched
}

# terminate_client is without effect while every command is answered FAULT.
@test "case 31: a holdout that MPS cannot end: SIGTERM, SIGKILL, then MPS recovers and the daemon stays" {
	quick fault_grace=1.0
	begin
	control=$(control_pid)
	background a mpsctl lease --gpu 0 --name a -- cuda-client stubborn
	a=$PID
	eventually 5 says "$WORK/a.out" '^mps server='
	background left mpsctl lease --gpu 0 --name left -- sh -c 'cuda-client ignore-term hold 600; exec sleep 600'
	left=$PID
	eventually 5 says "$WORK/left.out" '^mps server='
	holder d
	background c mpsctl lease --gpu 0 --name c -- cuda-client fault 300
	c=$PID
	eventually 2 in_state faulted "pids .*$a"
	knobs "[$GPU0]" odd_output=FAULT
	exits_with 10 "$c"
	eventually 2 in_state faulted "pids $a to leave"
	eventually 8 gone "$a"
	log_says "client $a .*terminate_client"
	log_says "client $a .*SIGTERM"
	log_says "client $a .*SIGKILL"
	knobs
	eventually 5 ready_again 2
	[[ $(control_pid) == "$control" ]]
	# Only clients are signalled, not the job that has left the server.
	run ! gone "$left"
	n_lines 1 "$WORK/left.err" interrupted
	told d '[]'
	other_untouched
}
