# SPDX-License-Identifier: MIT
#
# Waiting for what must happen, the processes that a test or a benchmark starts, and the stand-ins'
# knobs: what needs neither Bats nor a supervisor.
#
#   BIN        directory of the stand-ins
#   STARTED    pids that kill_started ends
#
# shellcheck shell=bash

# eventually SECONDS COMMAND…: until it succeeds, or a failure that names it.
eventually() {
	local limit=$1 end
	shift
	end=$((${EPOCHREALTIME/./} + limit * 1000000))
	until "$@"; do
		if ((${EPOCHREALTIME/./} >= end)); then
			echo "not within $limit s: $*" >&2
			return 1
		fi
		sleep 0.02
	done
}

now_ms() {
	echo $((${EPOCHREALTIME/./} / 1000))
}

# past USEC MORE_USEC: so long after.
past() {
	((${EPOCHREALTIME/./} > $1 + $2))
}

# Up to MS milliseconds, without a process of its own.
a_moment() {
	local ms=$((RANDOM % $1 + 1))
	read -rt "$(printf '0.%03d' "$ms")" <> <(:) || true
}

# No such process any more, or only its zombie.
gone() {
	local line
	read -r line 2>/dev/null <"/proc/$1/stat" || return 0
	[[ ${line##*) } == [ZX]* ]]
}

says() {
	grep -qE -e "$2" "$1"
}

# n_lines N FILE REGEX: exactly so many lines match.
n_lines() {
	[[ $(grep -cE -e "$3" "$2") == "$1" ]]
}

# exits_with STATUS PID: a process that was started in the background.
exits_with() {
	local rc=0
	eventually 15 gone "$2" || return 1
	wait "$2" || rc=$?
	if ((rc != $1)); then
		echo "status $rc, not $1" >&2
		return 1
	fi
}

kill_started() {
	local pid
	for pid in "${STARTED[@]}"; do
		kill -KILL "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	STARTED=()
}

# knobs LINE…: of the stand-ins, replaced at once.
knobs() {
	printf '%s\n' "$@" >"$BIN/standin.knobs.new"
	mv "$BIN/standin.knobs.new" "$BIN/standin.knobs"
}
