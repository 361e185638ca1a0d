#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# Holders that are killed at any moment, also between request and reply: the lease, its directory and
# everything that was kept for it go with them.
#
# shellcheck disable=SC2016 # those are of jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load lib

setup() {
	prepare 2
	# Reproducible where it can be: the moments are.
	RANDOM=${SEED:-4711}
}

teardown() {
	clean_up
}

# Before the first holder, when all that stays is there.
warm_up() {
	start_supervisor
	ctl lease --gpu 0 -- cuda-client init
	ctl lease --gpu 1 -- cuda-client init
	eventually 5 no_leases
	# supervisor, two control daemons, two servers
	eventually 5 n_ours 5
	message AcquireLease >"$WORK/call"
	printf '\0' >>"$WORK/call"
	message AcquireLease '{}' '"more":true' >"$WORK/stream"
	printf '\0' >>"$WORK/stream"
	BEFORE=$(descriptors) RSS=$(rss)
}

# One of the ways to hold a lease, in the background.
any_holder() {
	case $((RANDOM % 5)) in
	0) background h mpsctl lease -- sleep 600 ;;
	1) background h mpsctl lease -- cuda-client hold 600 ;;
	2) background h sh -c "exec rawsock '$SOCKET' 600 <'$WORK/call'" ;;
	3) background h sh -c "exec rawsock '$SOCKET' 600 <'$WORK/stream'" ;;
	4) background h mpsctl lease --on-loss terminate -t 10 -- sleep 600 ;;
	esac
}

all_gone() {
	no_leases && n_descriptors "$BEFORE" && n_ours 5
}

# gone_within SECONDS
gone_within() {
	local start
	start=$(now_ms)
	if ! eventually "$1" all_gone; then
		ctl leases
		echo "descriptors $BEFORE -> $(descriptors), processes 5 -> $(ours | wc -l)"
		lease_directories
		return 1
	fi
	echo "# everything gone $(($(now_ms) - start)) ms after the last kill" >&3
	status_json '.instances | all(.state == "ready" and .leases == 0 and .waiting == 0 and .clients_reserved == 0
		and .uid == null and .generation == 1)'
}

kill_last() {
	kill -KILL "$PID"
	wait "$PID" 2>/dev/null || true
}

# kill_one N: the N-th of those that were started.
kill_one() {
	local pid=${STARTED[$1]}
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null || true
	STARTED=("${STARTED[@]:0:$1}" "${STARTED[@]:$1 + 1}")
}

# Two devices with room for 16: some of them wait, and some have not even asked.
@test "case 35: 200 holders, each killed at a random moment: nothing of them is left" {
	local last most=0 n
	configure 'max_clients = 8;'
	warm_up
	for _ in {1..200}; do
		any_holder
		a_moment 20
		last=$((${#STARTED[@]} - 1))
		# The youngest every third time, also between its request and the reply.
		((RANDOM % 3)) || kill_one "$last"
		((last < 23)) || kill_one $((RANDOM % last))
		((RANDOM % 20)) || n=$(leases_json '[.leases[] | select(.state == "granted")] | length')
		((${n:-0} <= most)) || most=$n
	done
	echo "at most $most granted at a time"
	((most > 8 && most <= 16))
	while ((${#STARTED[@]} > 0)); do
		kill_one $((RANDOM % ${#STARTED[@]}))
	done
	gone_within 5
}

@test "between request and reply: 50 that are killed as soon as they have asked" {
	warm_up
	for _ in {1..50}; do
		# Without a pause the reply meets a closed socket.
		with rawsock "$SOCKET" 0 <"$WORK/call" >/dev/null
		with rawsock "$SOCKET" 0 <"$WORK/stream" >/dev/null
	done
	gone_within 2
}

@test "case 35: 200 holders at once, granted and waiting, killed in any order" {
	local pid
	configure 'max_clients = 40;'
	warm_up
	for _ in {1..200}; do
		any_holder
	done
	eventually 30 all_asked
	n_leases 80
	for pid in $(shuf -e "${STARTED[@]}" --random-source="$BIN/mpsctl"); do
		kill -KILL "$pid"
	done
	for pid in "${STARTED[@]}"; do
		wait "$pid" 2>/dev/null || true
	done
	STARTED=()
	gone_within 5
	echo "RSS $RSS -> $(rss) kB"
	# What 200 leases took is no more than this, and is used again by the next.
	! memory_is_real || (($(rss) - RSS < 4000))
}

all_asked() {
	[[ $(leases_json '.leases | length') == 200 ]]
}

@test "a holder whose parent reaps late: a zombie holds no lease" {
	warm_up
	background parent sh -c 'mpsctl lease -- sleep 600 & echo $!; exec sleep 600'
	eventually 5 n_leases 1
	holder=$(<"$WORK/parent.out")
	kill -KILL "$holder"
	eventually 2 no_leases
	[[ -d /proc/$holder ]]
}

@test "a job's children do not hold its lease" {
	warm_up
	background job mpsctl lease -- sh -c 'sleep 600 & echo $!; exec sleep 600'
	eventually 5 n_leases 1
	eventually 5 says "$WORK/job.out" '^[0-9]+$'
	kill_last
	eventually 2 no_leases
	child=$(<"$WORK/job.out")
	run ! gone "$child"
	kill -KILL "$child"
}

@test "a holder that is only stopped keeps its lease" {
	warm_up
	background job mpsctl lease --name s -- sleep 600
	eventually 5 granted s
	kill -STOP "$PID"
	ctl lease -- true
	granted s
	kill -KILL "$PID"
	eventually 2 no_leases
}

@test "the keeper of a lease ends with its job, and may be killed" {
	warm_up
	background job mpsctl lease --name k -- sleep 600
	eventually 5 granted k
	eventually 5 keeper
	keeper=$(keepers)
	kill -KILL "$keeper"
	eventually 2 gone "$keeper"
	ctl lease -- true
	granted k
	kill_last
	STARTED=()
	gone_within 2
}

keepers() {
	local pid
	for pid in $(ours); do
		[[ $(cat "/proc/$pid/comm" 2>/dev/null) != mpsctl-keeper ]] || echo "$pid"
	done
}

keeper() {
	[[ -n $(keepers) ]]
}
