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

: "${MPS_BUILD:=build}" "${STANDIN_DIR:=$MPS_BUILD/standin}"
: "${HOLDERS:=1000}" "${WAITERS:=5000}" "${LOAD_SECONDS:=10}" "${HEALTH_SECONDS:=30}" "${RATE:=2000}"
: "${USERS:=$((EUID == 0 ? 8 : 0))}"
readonly DEVICES=128 START_SECONDS=120
# Of its descriptors the supervisor keeps so many, and takes a connection for each three of the rest.
readonly DESCRIPTORS_KEPT=1024 DESCRIPTORS_PER_CONNECTION=3 OTHER_CONNECTIONS=16
readonly UNASKED='health = { interval = 3600.0; idle_interval = 3600.0; };'
supervisor='' on_first=() on_last=()

# As on a real node, where it is /run, leases have their directories in a tmpfs.
choose_place() {
	local place
	for place in /run /dev/shm; do
		[[ ! -w $place || $(stat -f -c %T "$place") != tmpfs ]] || break
		place=/tmp
	done
	[[ $place != /tmp ]] || echo 'no tmpfs: the directories of leases are in /tmp'
	work=$(mktemp -d "$place/mps-bench.XXXXXX")
}

clean_up() {
	stop
	rm -rf "$work"
}
choose_place
trap clean_up EXIT
set -E
trap 'echo "leases.sh: line $LINENO: $BASH_COMMAND" >&2' ERR

# ---------------------------------------------------------------- a supervisor

uuid_of() {
	printf 'GPU-be4c%04d-0000-4000-8000-000000000000' "$1"
}

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

make_devices() {
	local i
	for ((i = 0; i < DEVICES; i++)); do
		printf '%d, %s, 00000000:%02x:00.0, Bench GPU, Default, Disabled, Enabled, 81920\n' "$i" "$(uuid_of "$i")" $((i + 1))
	done >"$work/bin/standin.gpus"
}

# start PLACES [LINE…]: over all devices, on the first core, with these lines in its configuration;
# all are ready.
start() {
	local n=$1
	shift
	{
		printf '%s\n' "runtime_directory = \"$work/run\";" "state_directory = \"$work/state\";" \
			"mps_control = \"$work/bin/nvidia-cuda-mps-control\";" \
			"nvidia_smi = \"$work/bin/nvidia-smi\";" 'prestart = false;' "$@"
		((USERS == 0)) || echo 'multi_user = true;'
		places "$n"
	} >"$work/conf"
	"${on_first[@]}" "$MPS_BUILD/mps-supervisord" -c "$work/conf" 2>"$work/log" &
	supervisor=$!
	await "$START_SECONDS" all_ready
}

stop() {
	[[ -n $supervisor ]] || return 0
	kill "$supervisor" 2>/dev/null || true
	wait "$supervisor" 2>/dev/null || true
	supervisor=''
}

await() {
	local limit=$1 end
	shift
	end=$((SECONDS + limit + 1))
	until "$@"; do
		if ((SECONDS >= end)); then
			echo "not within $limit s: $*" >&2
			return 1
		fi
		sleep 0.1
	done
}

all_ready() {
	[[ $("$MPS_BUILD/mpsctl" status --json 2>/dev/null |
		jq "(.instances | length) == $DEVICES and all(.instances[]; .state == \"ready\")") == true ]]
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
	on_first=(taskset -c "$(head -n 1 <<<"$cores")")
	on_last=(taskset -c "$(tail -n 1 <<<"$cores")")
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
	"${on_last[@]}" "$MPS_BUILD/lease_load" -H "$HOLDERS" -W "$waiters" -s "$seconds" -u "$USERS" -p "$supervisor" \
		"$work/run/socket" "$@"
}

section_queue() {
	start "$HOLDERS" "$UNASKED"
	echo "no room, $USERS users:"
	measure "$WAITERS" "$LOAD_SECONDS" "release:$RATE" "close:$RATE" release:0 close:0
	stop
}

section_room() {
	start $((2 * HOLDERS)) "$UNASKED"
	echo "room for more, $USERS users:"
	measure 0 "$LOAD_SECONDS" "release:$RATE" "close:$RATE" release:0 close:0
	stop
}

section_health() {
	start $((2 * HOLDERS))
	echo "room for more, $USERS users, a question to each daemon every 10 s:"
	measure 0 "$HEALTH_SECONDS" "close:$RATE"
	stop
}

# ---------------------------------------------------------------- all

chmod 711 "$work" # the users come by here
mkdir "$work/bin"
cp "$STANDIN_DIR"/{nvidia-smi,nvidia-cuda-mps-control,nvidia-cuda-mps-server} "$work/bin/"
make_devices
export MPS_SUPERVISOR_SOCKET=$work/run/socket
choose_cores
raise_descriptors
if (($# == 0)); then
	set -- queue room health
fi
for section; do
	case $section in
	queue | room | health) "section_$section" ;;
	*)
		echo "leases.sh: no section \"$section\": queue, room, health" >&2
		exit 2
		;;
	esac
done
