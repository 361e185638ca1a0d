#!/bin/bash
# SPDX-License-Identifier: MIT
#
# How many leases a supervisor hands out, and how soon, over 128 stand-in devices: lease_load on one
# core, the supervisor with all that it starts on another. Prints figures; judges nothing.
#
#   leases.sh [SECTION…]      all without an argument:
#     queue    every place is taken: HOLDERS (1000) hold, WAITERS (5000) wait, and are told their positions
#     room     HOLDERS hold, and there is room for as many more
#     health   as room, with the default pause of 10 s between the questions to a control daemon. The
#              programs that ask run on the supervisor's core here, many at once
#
# In the first two, leases are ended and taken again for LOAD_SECONDS (10): by ReleaseLease and by
# closing the connection, as fast as it goes and at RATE (2000) a second; no questions are asked
# meanwhile. In the last, at RATE for HEALTH_SECONDS (30). See lease_load.c for what is measured.
#
# Environment: MPS_BUILD, STANDIN_DIR; USERS (8, and multi_user with it; 0: all is asked for by one, who
# runs this). Needs jq, and root for USERS.
set -euo pipefail

# shellcheck source=tests/bench/lib.bash
. "$(dirname "$0")/lib.bash"
: "${HOLDERS:=1000}" "${WAITERS:=5000}" "${LOAD_SECONDS:=10}" "${HEALTH_SECONDS:=30}" "${RATE:=2000}"
: "${USERS:=$((EUID == 0 ? 8 : 0))}"
readonly DEVICES=128
# Of its descriptors the supervisor keeps so many, and takes a connection for each three of the rest.
readonly DESCRIPTORS_KEPT=1024 DESCRIPTORS_PER_CONNECTION=3 OTHER_CONNECTIONS=16
readonly UNASKED='health = { interval = 3600.0; idle_interval = 3600.0; };'
START_SECONDS=120
ON_LAST=()

# As on a real node, where it is /run, leases have their directories in a tmpfs.
begin_in_tmpfs() {
	local place
	for place in /run /dev/shm; do
		[[ ! -w $place || $(stat -f -c %T "$place") != tmpfs ]] || break
		place=/tmp
	done
	[[ $place != /tmp ]] || echo 'no tmpfs: the directories of leases are in /tmp'
	begin "$place"
	chmod 711 "$WORK" # the users come by here
}

# ---------------------------------------------------------------- a supervisor

# places N: configuration under which the devices have just so many places of one client.
places() {
	local n=$1 each=$((($1 + DEVICES - 1) / DEVICES)) i
	echo "max_clients = $each;"
	echo 'gpus = ('
	for ((i = 0; i < each * DEVICES - n; i++)); do
		printf '%s{ match = "%s"; max_clients = %d; }\n' "$([[ $i == 0 ]] || echo ,)" "$(uuid_of "$i")" $((each - 1))
	done
	echo ');'
}

# start_with PLACES [LINE…]: over all devices, on the first core.
start_with() {
	local n=$1
	local -a lines=('prestart = false;' "${@:2}")
	((USERS == 0)) || lines+=('multi_user = true;')
	start "$DEVICES" "${lines[@]}" "$(places "$n")"
}

# ---------------------------------------------------------------- what the machine allows

# One core each, where there are two.
choose_cores() {
	local cores
	cores=$(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' |
		awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }')
	if (($(wc -l <<<"$cores") < 2)); then
		echo 'one core only: the load is on the same as the supervisor'
		return 0
	fi
	LAUNCHER=(taskset -c "$(head -n 1 <<<"$cores")")
	ON_LAST=(taskset -c "$(tail -n 1 <<<"$cores")")
}

raise_descriptors() {
	local limit most
	limit=$(ulimit -Hn)
	if [[ $limit == unlimited ]]; then
		limit=$(cat /proc/sys/fs/nr_open)
	fi
	ulimit -Sn "$limit"
	most=$(((limit - DESCRIPTORS_KEPT) / DESCRIPTORS_PER_CONNECTION - OTHER_CONNECTIONS - HOLDERS))
	if ((most < WAITERS)); then
		echo "$limit open files at most (ulimit -Hn): $most wait instead of $WAITERS"
		WAITERS=$most
	fi
}

# ---------------------------------------------------------------- sections

# measure WAITERS SECONDS PHASE…
measure() {
	local waiters=$1 seconds=$2
	shift 2
	"${ON_LAST[@]}" "$MPS_BUILD/lease_load" -H "$HOLDERS" -W "$waiters" -s "$seconds" -u "$USERS" -p "$SUPERVISOR" \
		"$WORK/run/socket" "$@"
}

section_queue() {
	start_with "$HOLDERS" "$UNASKED"
	echo "no room, $USERS users:"
	measure "$WAITERS" "$LOAD_SECONDS" "release:$RATE" "close:$RATE" release:0 close:0
	stop
}

section_room() {
	start_with $((2 * HOLDERS)) "$UNASKED"
	echo "room for more, $USERS users:"
	measure 0 "$LOAD_SECONDS" "release:$RATE" "close:$RATE" release:0 close:0
	stop
}

section_health() {
	start_with $((2 * HOLDERS))
	echo "room for more, $USERS users, a question to each daemon every 10 s:"
	measure 0 "$HEALTH_SECONDS" "close:$RATE"
	stop
}

begin_in_tmpfs
choose_cores
raise_descriptors
run_sections 'queue room health' "$@"
