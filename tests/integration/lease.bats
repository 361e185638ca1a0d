#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# `mpsctl lease`, with a command and without: its options, what it prints and refuses, users, and that
# a lease ends when it should. Also `release`, `leases`, `status` and `monitor` as commands.
# lease_job.bats has the job.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell, or jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load lib

setup() {
	prepare
}

teardown() {
	clean_up
}

one_line() {
	[[ -n $1 && $1 != *$'\n'* && $1 == mpsctl:* ]]
}

# refused STATUS REGEX OPTION…: with that status, nothing on standard output, one line that matches.
refused() {
	local status=$1 regex=$2
	shift 2
	run "-$status" --separate-stderr ctl lease "$@"
	echo "lease $*: $stderr"
	[[ -z $output && $stderr =~ $regex ]]
	one_line "$stderr"
}

# ---------------------------------------------------------------- with a command

@test "-t and -m: the variables; with -c, -x and --name all are listed" {
	start_supervisor
	background job mpsctl lease -t 25 -m 512M -c 3 -x --name 'my job' -- sh -c 'env; exec sleep 600'
	eventually 5 says "$WORK/job.out" '^CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25$'
	says "$WORK/job.out" '^CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=512M$'
	leases_json '.leases | length == 1 and (.[0] | .threads_percent == 25 and .memory_bytes == 536870912
		and .clients == 3 and .exclusive and .name == "my job" and .state == "granted"
		and .bind == "process" and .attached == [] and .position == null
		and .granted_usec >= .requested_usec)'
	[[ $(leases_json '.leases[0].pid') == "$PID" ]]
	[[ $(leases_json '.leases[0].uid') == "$EUID" ]]
	[[ $(leases_json '.leases[0].devices[0]') == "$GPU0" ]]
	ctl leases --json | jq '.leases[0]' | conforms Lease
	status_json '.instances[0] | .leases == 1 and .clients_reserved == 3 and .threads_reserved_percent == 25
		and .memory_reserved_bytes == 536870912'
	# The environment in the listing is the job's.
	while IFS= read -r line; do
		grep -qxF -e "$line" "$WORK/job.out"
	done < <(leases_json '.leases[0].environment | to_entries[] | "\(.key)=\(.value)"')
	run -0 ctl leases
	[[ $output == *"my job"*  && $output == *"25%"* && $output == *"512"* ]]
	run -0 ctl status
	[[ $output == *"$GPU0"* && $output == *ready* && $output == *"my job"* ]]
	run -0 ctl status GPU-aaaa
	[[ $output == *"my job"* ]]
}

@test "sizes: 20G is 20 GiB; long options are the same" {
	start_supervisor
	run -0 ctl lease --gpus 1 --threads 50 --memory 20G --clients 2 --exclusive --name n --wait 5 --quiet -- \
		sh -c 'env; mpsctl leases --json'
	[[ $output == *CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20G* && $output == *ACTIVE_THREAD_PERCENTAGE=50* ]]
	[[ $output =~ \"memory_bytes\":\ 21474836480 && $output =~ \"exclusive\":\ true ]]
}

@test "exit status: 126 and 127, said once" {
	start_supervisor
	refused 127 'no-such-command.*not found' -- no-such-command
	: >"$WORK/plain"
	refused 126 "$WORK/plain.*ermission denied" -- "$WORK/plain"
	refused 126 "$WORK.*" -- "$WORK"
	eventually 2 no_leases
}

@test "exit status: 125 for each refusal, one line with the reason" {
	configure 'max_clients = 4;'
	start_supervisor
	refused 125 'threads' -t 0 -- true
	refused 125 'threads' --threads 101 -- true
	refused 125 'memory' -m lots -- true
	refused 125 'frobnicate' --frobnicate -- true
	refused 125 'wait' -w soon -- true
	refused 125 'GPU-ffff.*status' --gpu GPU-ffff -- true
	refused 125 '7.*status' --gpu 7 -- true
	refused 125 '5 clients.*4.*--clients' -c 5 -- true
	refused 125 '999GiB of memory.*140.4GiB.*--memory' -m 999G -- true
	refused 125 '2 devices.*--gpus' --gpus 2 -- true
	refused 125 '--clients "1025".*1 to 1024' -c 1025 -- true
	refused 125 '--wait and --no-wait' --wait 5 --no-wait -- true
	refused 125 'command' --
	hold first -x
	refused 125 'exclusive' --no-wait -- true
	refused 125 'timed out.*exclusive' -q -w 0.2 -- true
	kill -TERM "$PID"
	exits_with 143 "$PID"
	run -0 ctl lease --no-wait -- true
}

@test "usage: exit status 2 without a command" {
	start_supervisor
	refused 2 'threads' -t 0
	refused 2 'frobnicate' --frobnicate
	refused 2 'true' true
	refused 2 'format' --format xml
	refused 2 '--pid "x"' --pid x
	refused 2 '--memory "20".*20G' -m 20
	refused 2 '--gpus "0".*1 to 64' --gpus 0
	refused 2 '--name.*127' --name "$(printf '%0128d' 0)"
	refused 2 '--wait and --no-wait' --wait 5 --no-wait
	run -2 --separate-stderr ctl
	one_line "$stderr"
	run -2 --separate-stderr ctl frobnicate
	[[ $stderr == *frobnicate* ]]
	run -2 ctl --frobnicate status
	run -2 ctl release
	run -2 ctl status --frobnicate
	run -0 --separate-stderr ctl --help
	[[ $output == *lease*release*status*leases*monitor* && -z $stderr ]]
	run -0 ctl lease --help
	[[ $output == *--no-wait* ]]
	run -0 ctl --version
	no_leases
}

@test "waiting: time-out is 4 without a command, and takes as long as asked" {
	start_supervisor
	hold first -x
	start=$(now_ms)
	refused 4 "timed out.*exclusive use by uid $EUID \\($(id -un)\\)" -q --wait 0.4
	took=$(($(now_ms) - start))
	echo "took $took ms"
	((took >= 400 && took < 2000))
	refused 1 'exclusive' --no-wait
	# Who waits is told why.
	run -125 --separate-stderr ctl lease --wait 0.2 -- true
	[[ $stderr == "mpsctl: waiting for a lease: "*"exclusive"*$'\n'"mpsctl: timed out"* ]]
	n_leases 0 queued
}

@test "the configured wait is the default" {
	configure 'timeouts = { wait = 0.3; };'
	start_supervisor
	hold first -x
	refused 4 'timed out' -q
	refused 125 'timed out' -q -- true
}

@test "--fallback time-slicing: without a supervisor, and without MPS variables" {
	ENVIRONMENT+=(CUDA_MPS_PIPE_DIRECTORY=/x CUDA_MPS_LOG_DIRECTORY=/x CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=5
		CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G MPS_SUPERVISOR_LEASE=x CUDA_VISIBLE_DEVICES=0)
	run -5 --separate-stderr ctl lease --fallback time-slicing -- sh -c 'env; exit 5'
	echo "$output"
	[[ $output != *CUDA_MPS_* && $output != *MPS_SUPERVISOR_LEASE* && $output == *CUDA_VISIBLE_DEVICES=0* ]]
	one_line "$stderr"
	[[ $stderr == *"$SOCKET"*without\ MPS* ]]
	run -125 ctl lease --fallback none -- true
	start_supervisor
	hold first -x
	run -0 --separate-stderr ctl lease --no-wait --fallback time-slicing -- env
	[[ $output != *CUDA_MPS_* && $stderr == *exclusive*without\ MPS* ]]
	# With a lease nothing is said.
	kill -TERM "$PID"
	run -0 --separate-stderr ctl lease --fallback time-slicing -- env
	[[ $output == *CUDA_MPS_PIPE_DIRECTORY=$RUN/lease/* && -z $stderr ]]
	# A wrong request is not a reason to do without.
	run -125 ctl lease --fallback time-slicing -t 0 -- true
}

# ---------------------------------------------------------------- the lease's directory

@test "the lease's directory: mode, owner, the control socket alone; gone with the lease" {
	start_supervisor
	hold first
	directory=$(leases_json '.leases[0].pipe_directory')
	[[ $directory == "$RUN/lease/"* ]]
	[[ $(stat -c '%a %u' "$directory") == "700 $EUID" ]]
	[[ $(ls -A "$directory") == control && -S $directory/control ]]
	[[ $directory/control -ef $(find "$RUN/instance" -name control) ]]
	run -0 through "$directory" cuda-client init
	[[ $output == "mps server="* ]]
	kill -KILL "$PID"
	eventually 2 test ! -e "$directory"
	no_leases
	# What starts later with the old environment reaches nothing.
	run -0 through "$directory" cuda-client init
	[[ $output == no-mps ]]
}

@test "directories: nobody else gets to an instance or a lease" {
	need_root
	start_supervisor
	AS=1000 hold first
	directory=$(leases_json '.leases[0].pipe_directory')
	[[ $(stat -c '%a %u' "$directory") == "700 1000" ]]
	[[ $(stat -c '%a %u' "$RUN" "$RUN/state") == $'755 0\n700 0' ]]
	[[ $(stat -c '%a' "$SOCKET") == 666 ]]
	instance=$(find "$RUN/instance" -mindepth 1 -maxdepth 1)
	AS=1000 run -0 through "$directory" cuda-client init
	[[ $output == "mps server="* ]]
	for path in "$directory" "$instance"; do
		AS=1001 run -0 through "$path" cuda-client init
		[[ $output == no-mps ]]
	done
	AS=1001 run -2 with ls "$directory"
	kill -KILL "$PID"
	eventually 2 no_leases
	AS=1000 run -0 through "$instance" cuda-client init
	[[ $output == no-mps ]]
}

# ---------------------------------------------------------------- without a command

@test "formats: shell, env, path, json" {
	start_supervisor
	run -0 --separate-stderr ctl lease --pid $$ -t 25
	exports=$output
	[[ -z $stderr && $output =~ export\ CUDA_MPS_PIPE_DIRECTORY=\'$RUN/lease/ ]]
	# Every export is of that form.
	run ! grep -qvE "^export [A-Z_]+='[^']*'$" <(grep '^export' <<<"$output")
	(
		CUDA_MPS_LOG_DIRECTORY=/x CUDA_MPS_PROTOCOL_VERSION=3
		export CUDA_MPS_LOG_DIRECTORY CUDA_MPS_PROTOCOL_VERSION
		eval "$exports"
		env | grep -E '^(CUDA_MPS_|CUDA_VISIBLE_DEVICES|MPS_SUPERVISOR_LEASE)' | sort >"$WORK/shell"
	)
	id=$(sed -n 's/^MPS_SUPERVISOR_LEASE=//p' "$WORK/shell")
	leases_json --arg id "$id" '.leases[] | select(.id == $id) | .environment | to_entries[] | "\(.key)=\(.value)"' |
		sort | diff "$WORK/shell" -
	run -0 ctl lease --pid $$ --format shell
	[[ $output == "export "* ]]
	run -0 ctl lease --pid $$ --format env
	[[ $output =~ (^|$'\n')CUDA_VISIBLE_DEVICES=$GPU0($'\n'|$) && $output != *export* ]]
	run -0 ctl lease --pid $$ --format path
	[[ $output == "$RUN/lease/"* && -S $output/control ]]
	run -0 ctl lease --pid $$ --format json --name j
	[[ $(jq -r .pipe_directory <<<"$output") == "$RUN/lease/"* ]]
	conforms Lease <<<"$output"
	# Exactly the lease of the listing.
	leases_json -S '.leases[] | select(.name == "j")' | diff <(jq -S . <<<"$output") -
	for id in $(leases_json '.leases[].id'); do
		ctl release "$id"
	done
	no_leases
}

shell_lease() {
	cat >"$WORK/script" <<-'END'
		eval "$(mpsctl lease --name shell)" || exit
		echo "shell $$"
		cuda-client init
		read -r line <"$1"
	END
	mkfifo "$WORK/fifo"
	background shell "$1" "$WORK/script" "$WORK/fifo"
	eventually 5 says "$WORK/shell.out" '^mps server='
	granted shell
	[[ $(leases_json '.leases[0].pid') == "$PID" && $(leases_json '.leases[0].bind') == process ]]
	echo go >"$WORK/fifo"
	exits_with 0 "$PID"
	eventually 2 no_leases
}

@test "eval in dash: the lease is the shell's" {
	start_supervisor
	shell_lease dash
}

@test "eval in bash: the lease is the shell's" {
	start_supervisor
	shell_lease bash
}

@test "who waits under a lease of its own shell is told so, once" {
	configure 'max_clients = 2;'
	start_supervisor
	cat >"$WORK/script" <<-'END'
		eval "$(mpsctl lease -q -c "$1")"
		echo "$MPS_SUPERVISOR_LEASE"
		sh -c 'mpsctl lease --wait 0.3 -- true; :'
	END
	run -0 --separate-stderr with bash "$WORK/script" 2
	id=$output
	note="this runs under lease $id already, which process [0-9]+ holds; .*\`mpsctl release $id\`"
	[[ ${stderr_lines[0]} == "mpsctl: waiting"* && ${stderr_lines[1]} =~ $note && ${#stderr_lines[@]} == 3 ]]
	# One that gets its lease at once is not told, nor is who runs under no lease that is there.
	run -0 --separate-stderr with bash "$WORK/script" 1
	[[ -z $stderr ]]
	eventually 2 no_leases
	hold first -c 2
	for id in "$(lease_id first)" 00000000; do
		run -125 --separate-stderr with env MPS_SUPERVISOR_LEASE="$id" mpsctl lease --wait 0.2 -- true
		[[ ${#stderr_lines[@]} == 2 && $stderr != *"runs under"* ]]
	done
}

@test "--pid: lives with another process" {
	start_supervisor
	background other sleep 600
	other=$PID
	run -0 ctl lease --pid "$other" --name other
	granted other
	[[ $(leases_json '.leases[0].pid') == "$other" ]]
	kill -KILL "$other"
	eventually 2 no_leases
	refused 1 "--pid $other: there is no such process" --pid "$other"
}

@test "--detach: until it is released; for administrators" {
	start_supervisor
	run -0 ctl lease --detach --name d --format json
	id=$(jq -r .id <<<"$output")
	leases_json '.leases[0] | .bind == "none" and .pid == null'
	if ((EUID == 0)); then
		AS=1000 run -1 --separate-stderr ctl lease --detach
		[[ -z $output && $stderr == *administrators* ]]
		AS=1000 run -1 --separate-stderr ctl lease --uid 1001
		[[ -z $output && $stderr == *administrators* ]]
	fi
	granted d
	ctl release "$id"
	no_leases
}

@test "--uid: an administrator's lease for another user" {
	need_root
	start_supervisor
	run -0 ctl lease --detach --uid 1000 --format json
	[[ $(jq .uid <<<"$output") == 1000 ]]
	directory=$(jq -r .pipe_directory <<<"$output")
	[[ $(stat -c %u "$directory") == 1000 ]]
	AS=1000 run -0 through "$directory" cuda-client init
	[[ $output == "mps server="* ]]
	AS=1000 ctl release "$(leases_json '.leases[0].id')"
	no_leases
}

# ---------------------------------------------------------------- release, users

@test "release: one's own; several; unknown ones are named" {
	start_supervisor
	hold first
	hold second
	run -1 --separate-stderr ctl release "$(lease_id first)" 00000bad
	one_line "$stderr"
	[[ $stderr == *00000bad* ]]
	n_leases 1
	granted second
	# The job is told, once, and runs on.
	eventually 2 n_lines 1 "$WORK/first.err" 'revoked'
	run ! gone "${STARTED[0]}"
	ctl release "$(lease_id second)"
	no_leases
}

@test "release: not another user's, but an administrator any" {
	need_root
	configure 'multi_user = true;'
	start_supervisor
	AS=1000 hold first
	id=$(lease_id first)
	AS=1001 run -1 --separate-stderr ctl release "$id"
	one_line "$stderr"
	[[ $stderr == *"lease $id belongs to another user, uid 1000"*"administrators"*": root (access.admin_groups is empty)" ]]
	granted first
	ctl release "$id"
	no_leases
	AS=1000 hold second
	AS=1000 ctl release "$(lease_id second)"
	no_leases
}

@test "access: lease_groups and admin_groups" {
	need_root
	configure 'access = { lease_groups = [ "users" ]; admin_groups = [ "adm" ]; };'
	start_supervisor
	users=$(getent group users | cut -d: -f3) adm=$(getent group adm | cut -d: -f3)
	AS=1000 run -125 --separate-stderr ctl lease -- true
	[[ $stderr == *"ermission denied: "*" users (access.lease_groups)" ]]
	AS=1000 run -1 --separate-stderr ctl drain 0
	[[ $stderr == *"only administrators may do that: root, members of adm (access.admin_groups)" ]]
	run -0 with setpriv --reuid 1000 --regid 1000 --groups "$users" mpsctl lease -- true
	run -0 with setpriv --reuid 1000 --regid "$adm" --clear-groups mpsctl lease --detach --format path
	# Everybody may look.
	AS=1000 run -0 ctl status --json
	AS=1000 run -0 ctl leases --json
	AS=1001 run -1 ctl release "$(leases_json '.leases[0].id')"
	run -0 with setpriv --reuid 1001 --regid 1001 --groups "$adm" mpsctl release "$(leases_json '.leases[0].id')"
	no_leases
}

@test "access: max_leases_per_user" {
	configure 'access = { max_leases_per_user = 2; };'
	start_supervisor
	hold first
	hold second
	refused 125 "uid $EUID .*has 2 leases and requests, and access.max_leases_per_user is 2" -w 5 -- true
	kill -KILL "$PID"
	eventually 2 n_leases 1
	run -0 ctl lease -w 5 -- true
}

@test "multi_user: several users at a time in one server" {
	need_root
	configure 'multi_user = true;'
	start_supervisor
	AS=1000 hold_attached first
	AS=1001 run -0 ctl lease --no-wait -- cuda-client init
	[[ $output == "mps server=$(server_pid) "* ]]
}

@test "two devices: spread by user, a second user gets the other device" {
	need_root
	gpus 2
	start_supervisor
	AS=1000 hold first
	AS=1001 hold second
	[[ $(leases_json '[.leases[].devices[0]] | unique | length') == 2 ]]
	# A named device that the other user has: waits, is not moved.
	device=$(leases_json '.leases[] | select(.name == "first") | .devices[0]')
	AS=1001 run -125 --separate-stderr ctl lease --gpu "$device" --no-wait -- true
	[[ $stderr == *1000* ]]
	for selector in 0 1 GPU-aaaa 00000000:00:07.0 all; do
		run -125 ctl lease --gpu "$selector" --no-wait -- true
	done
}

# ---------------------------------------------------------------- no supervisor; the other commands

@test "no supervisor: exit 3 or 125, and the socket is named" {
	local command
	for command in status leases monitor "release x" "lease"; do
		# shellcheck disable=SC2086 # words
		run -3 --separate-stderr ctl $command
		echo "$command: $stderr"
		[[ -z $output && $stderr == *"$SOCKET"* ]]
		one_line "$stderr"
	done
	refused 125 "$SOCKET" -- true
	run -3 --separate-stderr ctl --socket "$WORK/other" status
	[[ $stderr == *"$WORK/other"* ]]
	# A socket that nobody serves any more.
	start_supervisor
	kill -KILL "$SUPERVISOR"
	eventually 2 gone "$SUPERVISOR"
	SUPERVISOR=
	run -3 --separate-stderr ctl status
	[[ $stderr == *"$SOCKET"* ]]
	refused 125 "$SOCKET" -- true
}

@test "status --json and leases --json: exactly the supervisor's answers" {
	gpus 2
	start_supervisor
	hold_attached first -t 10 --gpu 1
	background waits mpsctl lease --name waits -x --gpu 1 -- true
	eventually 5 queued waits
	call ListLeases | jq -S .parameters | diff - <(ctl leases --json | jq -S .)
	ctl leases --json | jq '.leases[0]' | conforms Lease
	ctl leases --json | jq '.leases[1]' | conforms Lease
	# Counters move between the two.
	call GetStatus | jq -S '.parameters | del(.counters)' | diff - <(ctl status --json | jq -S 'del(.counters)')
	ctl status --json >"$WORK/status"
	jq -e '(keys == ["counters", "instances", "pid", "started_usec", "version"]) and (.instances | length == 2)
		and (.counters | all(.[]; type == "number"))' "$WORK/status"
	[[ $(jq .pid "$WORK/status") == "$SUPERVISOR" ]]
	for i in 0 1; do
		jq ".instances[$i]" "$WORK/status" | conforms Instance
		jq ".instances[$i].devices[0]" "$WORK/status" | conforms Device
	done
	server=$(jq '[.instances[].servers[]][0]' "$WORK/status")
	conforms Server <<<"$server"
	[[ $(jq -r .state <<<"$server") == ACTIVE && $(jq .uid <<<"$server") == "$EUID" ]]
	run -0 ctl status --json GPU-bbbb
	run -1 --separate-stderr ctl status GPU-ffff
	[[ $stderr == *GPU-ffff* ]]
}

has_events() {
	[[ $(jq -r .kind "$WORK/monitor.out" | sort -u | wc -l) -ge $1 ]]
}

monitored() {
	status_json '.counters.connections_accepted >= 1' >/dev/null && [[ -n $(ctl leases --json) ]] &&
		ctl lease -- true && [[ -s $WORK/monitor.out ]]
}

@test "monitor --json: one event a line, as they happen" {
	start_supervisor
	background monitor mpsctl monitor --json
	monitor=$PID
	eventually 5 monitored
	hold first
	id=$(lease_id first)
	kill -KILL "$PID"
	eventually 2 no_leases
	eventually 2 has_events 2
	while IFS= read -r line; do
		conforms Event <<<"$line"
	done <"$WORK/monitor.out"
	# Granted, then ended, once each.
	jq -se --arg id "$id" '[.[] | select(.lease == $id) | .kind] | length == 2' "$WORK/monitor.out"
	kill -TERM "$monitor"
	exits_with 143 "$monitor"
	run -0 timeout --preserve-status -s INT 0.3 "${ENVIRONMENT[@]}" mpsctl monitor || ((status == 130))
}
