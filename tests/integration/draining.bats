#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# A holder that ends, or gives its lease back, while processes of its job are still MPS clients: the
# place stays theirs until they have gone, which has an end, and nobody new gets in.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell, or jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load lib

setup() {
	prepare
	quick max_clients=1
}

teardown() {
	clean_up
	# Children of jobs are nobody's to wait for; they end with their server.
	[[ -z ${CHILD:-} ]] || eventually 5 gone "$CHILD"
}

# job_with_two NAME CLIENT [OPTION…]: a job that has an MPS client and one other child. PID is the
# job's, CHILD the client's and OTHER the other one's.
job_with_two() {
	local name=$1 client=$2
	shift 2
	background "$name" mpsctl lease --name "$name" "$@" -- \
		sh -c "sleep 600 & echo other \$!; cuda-client $client & echo child \$!; exec sleep 600"
	eventually 10 says "$WORK/$name.out" '^mps server='
	CHILD=$(sed -n 's/^child //p' "$WORK/$name.out")
	OTHER=$(sed -n 's/^other //p' "$WORK/$name.out")
	STARTED+=("$OTHER" "$CHILD")
	eventually 2 attached_is "$name" "[$CHILD]"
}

# draining NAME REGEX
draining() {
	[[ $(leases_json --arg name "$1" '.leases[] | select(.name == $name) | .state + " " + .reason') =~ ^draining\ .*$2 ]]
}

# with_environment_of NAME COMMAND…: of a lease, as its job has it.
with_environment_of() {
	through "$(directory_of "$1")" "${@:2}"
}

# Draining in earnest: the place is kept, nobody new gets in, who asks is told.
keeps_its_place() {
	local name=$1
	n_leases 0 granted
	leases_are --arg name "$name" --argjson pid "$CHILD" '.leases[] | select(.name == $name)
		| .attached == [$pid] and .granted_usec != null and .position == null'
	status_is '.instances[0] | .leases == 1 and .clients_reserved == 1 and .state == "ready"'
	run -1 --separate-stderr ctl lease --no-wait
	echo "$stderr"
	[[ -z $output && $stderr == *"full: 1/1"* ]]
	run ! gone "$CHILD"
	# What is started now with the old environment.
	run -0 through "$OLD" cuda-client init
	[[ $output == no-mps ]]
}

# ---------------------------------------------------------------- until they have gone

@test "the holder ends, its child is a client: draining, the place is kept until the child has gone" {
	start_supervisor
	background monitor mpsctl monitor --json
	job_with_two first 'hold 600'
	ctl leases --json | jq '.leases[0]' | conforms Lease
	OLD=$(directory_of first)
	id=$(lease_id first)
	with_environment_of first test -S "$OLD/control"
	kill -KILL "$PID"
	eventually 2 draining first "(^|[^0-9])$CHILD([^0-9]|\$)"
	ctl leases --json | jq '.leases[0]' | conforms Lease
	keeps_its_place first
	run -0 ctl leases
	[[ $output =~ $id.*draining.*$CHILD ]]
	run -0 ctl status
	[[ $output =~ $id.*draining.*$CHILD ]]
	background next mpsctl lease --name next -- timeout 15 cuda-client init
	next=$PID
	eventually 2 queued next
	# It is its process that counts, not what else the job has left.
	run ! gone "$OTHER"
	jq -se --arg id "$id" '[.[] | select(.lease == $id and .kind == "lease-ended")] == []' "$WORK/monitor.out"
	kill -KILL "$CHILD"
	exits_with 0 "$next"
	says "$WORK/next.out" '^mps server='
	eventually 2 no_leases
	run ! gone "$OTHER"
	[[ ! -e $OLD ]]
	# One end, after the last client's, and before the next one's grant.
	eventually 2 ended_once "$id"
	jq -se --arg id "$id" 'map(.lease == $id and .kind == "lease-ended") | index(true)' "$WORK/monitor.out" >"$WORK/ended"
	jq -se --argjson pid "$next" 'map(.pid == $pid and .kind == "lease-granted") | index(true)' "$WORK/monitor.out" >"$WORK/granted"
	(($(<"$WORK/ended") < $(<"$WORK/granted")))
}

ended_once() {
	[[ $(jq -s --arg id "$1" '[.[] | select(.lease == $id and .kind == "lease-ended")] | length' "$WORK/monitor.out") == 1 ]]
}

@test "two clients are left: both are named, the last one ends it" {
	quick max_clients=2
	start_supervisor
	background first mpsctl lease --name first -c 2 -- sh -c 'cuda-client hold 600 & echo child $!
		cuda-client hold 600 & echo child $!; exec sleep 600'
	first=$PID
	eventually 10 n_lines 2 "$WORK/first.out" '^mps server='
	mapfile -t children < <(sed -n 's/^child //p' "$WORK/first.out")
	STARTED+=("${children[@]}")
	eventually 2 n_clients 2
	kill -KILL "$first"
	eventually 2 draining first "${children[0]}.*${children[1]}|${children[1]}.*${children[0]}"
	kill -KILL "${children[0]}"
	eventually 2 draining first "${children[1]}"
	run ! draining first "${children[0]}"
	status_is '.instances[0].clients_reserved == 2'
	kill -KILL "${children[1]}"
	eventually 2 no_leases
}

@test "no client is left: the lease ends at once, whatever else the job has left" {
	start_supervisor
	background first mpsctl lease --name first -- sh -c 'cuda-client init; sleep 600 & echo other $!; exec sleep 600'
	first=$PID
	eventually 5 says "$WORK/first.out" '^other '
	OTHER=$(sed -n 's/^other //p' "$WORK/first.out")
	STARTED+=("$OTHER")
	eventually 2 n_clients 0
	kill -KILL "$first"
	run -0 ctl lease --wait 2 -- true
	run ! gone "$OTHER"
	eventually 2 no_leases
}

@test "another user waits for the stragglers too, and is told whose they are" {
	need_root
	quick
	start_supervisor
	AS=1000 job_with_two first 'hold 600'
	kill -KILL "$PID"
	eventually 2 draining first "$CHILD"
	AS=1001 background second mpsctl lease --name second -- timeout 15 cuda-client init
	second=$PID
	eventually 2 says "$WORK/second.err" "GPU in use by uid 1000$NAMED, 1 lease"
	queued second
	kill -KILL "$CHILD"
	exits_with 0 "$second"
	says "$WORK/second.out" '^mps server='
}

@test "the server dies while a lease drains: its client is none any more, the lease ends" {
	start_supervisor
	job_with_two first stubborn
	kill -KILL "$PID"
	eventually 2 draining first "$CHILD"
	kill -KILL "$(server_pid)"
	eventually 5 no_leases
	run ! gone "$CHILD"
	run -0 ctl lease --wait 5 -- timeout 15 cuda-client init
	[[ $output == "mps server="* ]]
	kill -KILL "$CHILD"
}

@test "the control daemon dies while a lease drains: the lease ends, the next one is on the new daemon" {
	start_supervisor
	job_with_two first stubborn
	OLD=$(directory_of first)
	kill -KILL "$PID"
	eventually 2 draining first "$CHILD"
	kill -KILL "$(control_pid)"
	eventually 5 no_leases
	run -0 ctl lease --wait 5 -- timeout 15 cuda-client init
	[[ $output == "mps server="* ]]
	run -0 through "$OLD" cuda-client init
	[[ $output == no-mps ]]
	kill -KILL "$CHILD"
}

@test "the supervisor stops while a lease drains: in order" {
	start_supervisor
	job_with_two first 'hold 600'
	kill -KILL "$PID" "$OTHER"
	eventually 2 draining first "$CHILD"
	stop_supervisor
}

# ---------------------------------------------------------------- released

@test "release of a lease with a client: it drains as well; the holder is told; it ends with the client" {
	start_supervisor
	hold_attached first
	first=$PID CHILD=$PID
	OLD=$(directory_of first)
	id=$(lease_id first)
	ctl release "$id"
	eventually 2 draining first "$first"
	keeps_its_place first
	eventually 2 n_lines 1 "$WORK/first.err" revoked
	# Nothing is left to release.
	run ctl release "$id"
	echo "$status $output"
	draining first "$first"
	kill -TERM "$first"
	eventually 2 no_leases
	run -0 ctl lease --no-wait -- true
}

@test "ReleaseLease of a connection's lease whose client is attached: revoked, and draining" {
	start_supervisor
	stream_lease holder '{"name":"first"}'
	eventually 5 answered holder '.[-1].parameters.what == "granted"'
	OLD=$(directory_of first)
	background client env CUDA_MPS_PIPE_DIRECTORY="$OLD" CUDA_VISIBLE_DEVICES="$GPU0" cuda-client hold 600
	CHILD=$PID
	eventually 2 attached_is first "[$CHILD]"
	call ReleaseLease "{\"id\":\"$(lease_id first)\"}" | jq '.error == null'
	eventually 2 said holder '.[-1].parameters.what == "revoked"'
	eventually 2 draining first "$CHILD"
	keeps_its_place first
	kill -KILL "$CHILD"
	eventually 2 no_leases
}

@test "a connection that ends while its client is attached: draining" {
	start_supervisor
	stream_lease holder '{"name":"first"}'
	holder=$PID
	eventually 5 answered holder '.[-1].parameters.what == "granted"'
	OLD=$(directory_of first)
	background client env CUDA_MPS_PIPE_DIRECTORY="$OLD" CUDA_VISIBLE_DEVICES="$GPU0" cuda-client hold 600
	CHILD=$PID
	eventually 2 attached_is first "[$CHILD]"
	kill -KILL "$holder"
	eventually 2 draining first "$CHILD"
	keeps_its_place first
	kill -KILL "$CHILD"
	eventually 2 no_leases
}

# ---------------------------------------------------------------- the grace

# An unrelated process of the same user, and the job's own other child, may not be touched.
only_the_client_is_ended() {
	local bystander start
	background bystander sleep 600
	bystander=$PID
	job_with_two first "$1"
	start=$(now_ms)
	kill -KILL "${STARTED[1]}"
	eventually 15 gone "$CHILD"
	took=$(($(now_ms) - start))
	echo "ended after $took ms"
	eventually 2 no_leases
	run ! gone "$OTHER"
	run ! gone "$bystander"
	log_says "$CHILD.*SIGTERM"
	state_is ready
	status_is '.instances[0] | .generation == 1 and .deaths == []'
	run -0 ctl lease --no-wait -- true
}

@test "straggler_grace: a client that is left gets SIGTERM then, and nobody else anything" {
	quick max_clients=1 straggler_grace=0.5
	start_supervisor
	only_the_client_is_ended 'hold 600'
	((took >= 500 && took < 3000))
	run ! log_says "$CHILD.*SIGKILL"
}

@test "straggler_grace: a client that ignores SIGTERM is killed, and nobody else" {
	quick max_clients=1 straggler_grace=0.5
	start_supervisor
	only_the_client_is_ended stubborn
	((took >= 500 && took < 10000))
	log_says "$CHILD.*SIGKILL"
}

@test "straggler_grace: the same for another user than root" {
	need_root
	quick max_clients=1 straggler_grace=0.5
	start_supervisor
	AS=1000 only_the_client_is_ended 'hold 600'
}

@test "straggler_grace: a released holder that is a client has the same grace" {
	quick max_clients=1 straggler_grace=0.5
	start_supervisor
	hold_attached first
	first=$PID
	ctl release "$(lease_id first)"
	exits_with 143 "$first"
	eventually 2 no_leases
}

@test "straggler_grace: who leaves in time is left alone" {
	quick max_clients=1 straggler_grace=2.0
	start_supervisor
	# The child lets go of the GPU by itself.
	job_with_two first 'hold 1.0'
	kill -KILL "$PID"
	eventually 1 draining first "$CHILD"
	eventually 5 no_leases
	hold second
	eventually 5 past "$(leases_json '.leases[0].granted_usec')" 2000000
	run ! log_says 'SIGTERM|SIGKILL'
	granted second
}
