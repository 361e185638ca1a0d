# SPDX-License-Identifier: MIT
#
# What the tests of supervisors that take over from another one share.
#
# shellcheck shell=bash
# shellcheck disable=SC2016 # those are of jq
# shellcheck disable=SC2119,SC2120 # arguments come from the tests

load gangs

setup() {
	prepare 2
	short
}

teardown() {
	clean_up
	[[ -z ${CHILD:-} ]] || eventually 5 gone "$CHILD"
}

# short [RECLAIM [LINE…]]: short times; RECLAIM is timeouts.reclaim.
short() {
	configure "timeouts = { start = 1.0; query = 0.3; stop = 2.0; reclaim = ${1:-30.0}; };" \
		'health = { interval = 0.2; idle_interval = 0.2; misses = 2; wedge_grace = 60.0; };' \
		'restart = { backoff_min = 0.05; };' "${@:2}"
}

restart_supervisor() {
	kill_supervisor
	start_supervisor
}

kill_and_wait() {
	kill -KILL "$1"
	eventually 5 gone "$1"
}

# All that must be the same of instances and leases afterwards.
instances() {
	status_json -c '[.instances[] | [.name, .kind, .control_pid, .generation, .restarts, .multi_user, .leases,
		.clients_reserved, .threads_reserved_percent, .memory_reserved_bytes, (.servers | map([.pid, .uid, .state]) | sort),
		(.clients | sort)]]'
}

leases() {
	leases_json -c '[.leases[] | .attached |= sort] | sort_by(.id)'
}

# same_as COMMAND WHAT: it says the same.
same_as() {
	[[ $("$1") == "$2" ]] && return
	diff <(jq . <<<"$2") <("$1" | jq .) >&2
	return 1
}

state_of() {
	leases_json --arg name "$1" '.leases[] | select(.name == $name) | .state'
}

state_of_is() {
	[[ $(state_of "$1") == "$2" ]]
}

# reclaim NAME ID: as stream NAME.
reclaim() {
	stream "$1" ReclaimLease "{\"id\":\"$2\"}"
	eventually 5 said "$1" '.[0].parameters.what == "granted"'
}

# heard NAME WHAT…: these answers and no others.
heard() {
	local name=$1
	shift
	[[ $(answers "$name" '[.[].parameters.what] | join(" ")') == "$*" ]]
}

# in_state_files JQ: changes what was kept of instances, as something else may have left it.
in_state_files() {
	local file
	for file in "$RUN"/state/*.instance; do
		jq -c "$1" "$file" >"$WORK/changed"
		cat "$WORK/changed" >"$file"
	done
}
