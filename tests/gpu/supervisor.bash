# SPDX-License-Identifier: MIT
#
# The supervisor of the checks on a GPU: started with what a check wants in its configuration, and
# stopped in order.
#
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of check-gpu and lib.bash

readonly stop_seconds=20

# All that it serves are ready, or it has ended.
start_is_over() {
	instances_ready || gone "$supervisor"
}

# start_supervisor UUID,... [LINE...]: for these devices, with these lines in its configuration
start_supervisor() {
	local devices=$1 start

	shift
	{
		printf '%s\n' "runtime_directory = \"$tmp/run\";" "state_directory = \"$tmp/state\";" \
			"devices = [ \"${devices//,/\", \"}\" ];" "$@"
	} >"$tmp/supervisor.conf"
	export MPS_SUPERVISOR_SOCKET=$tmp/run/socket
	start=$(now_usec)
	"$tmp/bin/mps-supervisord" -v -c "$tmp/supervisor.conf" \
		</dev/null >>"$outdir/supervisor.log" 2>&1 &
	supervisor=$!
	await 15 start_is_over
	start_ms=$(ms_since "$start")
	instances_ready
}

# stop_supervisor: gives its exit status; 137 when it had to be killed
stop_supervisor() {
	local pid=$supervisor

	[ -n "$pid" ] || return 0
	end_jobs
	supervisor=
	kill -TERM "$pid" 2>/dev/null
	await "$stop_seconds" gone "$pid" || kill -KILL "$pid"
	wait "$pid"
}

# supervised UUID,... [LINE...]: a new supervisor in place of the one before. When it does not come
# up that is a failed check, and what needs it should be left out.
supervised() {
	stop_supervisor || expect "the supervisor before ended with status 0" "status $?" false
	end_ours
	start_supervisor "$@" && return
	note "status: $(timeout 5 "$mpsctl" status 2>&1 | tr '\n' ';')"
	tail -n 20 "$outdir/supervisor.log" | sed 's/^/# /'
	stop_supervisor
	shift
	expect "a supervisor is ready within 15 s with: ${*:-the defaults}" "not" false
	return 1
}

# What lies in the directories of instances and leases.
remaining_directories() {
	find "$tmp/run/instance" "$tmp/run/lease" -mindepth 1 2>/dev/null
}

check_stop() {
	local start status left

	end_jobs
	start=$(now_usec)
	stop_supervisor
	status=$?
	expect "the supervisor ends on SIGTERM within $stop_seconds s, with exit status 0" \
		"status $status" test "$status" -eq 0
	note "after $(ms_since "$start") ms"
	left=$(our_processes)
	# shellcheck disable=SC2086  # a list of pids
	expect "no control daemon, server or job of ours is left" "$(describe_processes $left)" \
		test -z "$left"
	left=$(remaining_directories)
	expect "no instance or lease directory is left" "$left" test -z "$left"
	left=$(find "$tmp/run" -mindepth 1 -printf '%P ' 2>/dev/null)
	note "left in the runtime directory: ${left:-nothing}"
}
