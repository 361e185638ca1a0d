#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# The job that `mpsctl lease` becomes: its environment, standard streams and descriptors, its terminal,
# its signals, its exit status, and what a loss does to it. lease.bats has the lease.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load lib

setup() {
	prepare
}

teardown() {
	clean_up
}

@test "the job's environment: exactly the lease's, and the rest untouched" {
	start_supervisor
	env -i PATH="$BIN:/usr/bin:/bin" MPS_SUPERVISOR_SOCKET="$SOCKET" KEEP='a b' CUDA_VISIBLE_DEVICES=2 \
		CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps CUDA_MPS_LOG_DIRECTORY=/tmp/log \
		CUDA_MPS_PROTOCOL_VERSION=3 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=7 \
		CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1M MPS_SUPERVISOR_LEASE=x CUDA_DEVICE_ORDER=PCI_BUS_ID \
		mpsctl lease -- sh -c 'mpsctl leases --json >'"$WORK/leases"'; exec env' >"$WORK/env"
	id=$(jq -r '.leases[0].id' "$WORK/leases")
	sort >"$WORK/wanted" <<-END
		PATH=$BIN:/usr/bin:/bin
		MPS_SUPERVISOR_SOCKET=$SOCKET
		KEEP=a b
		CUDA_DEVICE_ORDER=PCI_BUS_ID
		CUDA_MPS_PIPE_DIRECTORY=$RUN/lease/$id
		CUDA_VISIBLE_DEVICES=$GPU0
		MPS_SUPERVISOR_LEASE=$id
	END
	# sh adds its own.
	diff "$WORK/wanted" <(grep -vE '^(PWD|OLDPWD|SHLVL|_)=' "$WORK/env" | sort)
}

@test "exit status: the command's own" {
	local status
	start_supervisor
	for status in 0 1 2 3 4 5 77 124; do
		run "-$status" --separate-stderr ctl lease -- sh -c "exit $status"
		[[ -z $output$stderr ]]
	done
}

@test "exit status: 128+N, by the same signal" {
	start_supervisor
	run -143 ctl lease -- sh -c 'kill -TERM $$'
	run -137 ctl lease -- sh -c 'kill -KILL $$'
	run -134 ctl lease -- sh -c 'ulimit -c 0; kill -ABRT $$'
	# Its parent sees the signal itself, not a status.
	[[ $(with sh -c 'mpsctl lease -- sh -c "kill -USR1 \$\$"; kill -l $?') == USR1 ]]
	hold job
	kill -TERM "$PID"
	exits_with 143 "$PID"
	eventually 2 no_leases
}

@test "the job keeps process group, parent, standard streams; nothing else is open" {
	start_supervisor
	echo input >"$WORK/in"
	cat >"$WORK/script" <<-'END'
		read -r line
		echo "$line"
		echo err >&2
		echo "pid $$ parent $PPID group $(ps -o pgid= -p $$ | tr -d ' ')"
		ls -l /proc/self/fd
	END
	background job sh -c "exec mpsctl lease -- sh '$WORK/script' <'$WORK/in'"
	exits_with 0 "$PID"
	cat "$WORK/job.out"
	[[ $(head -n 1 "$WORK/job.out") == input ]]
	[[ $(<"$WORK/job.err") == err ]]
	group=$(ps -o pgid= -p "$BASHPID" | tr -d ' ')
	says "$WORK/job.out" "^pid $PID parent $BASHPID group $group$"
	says "$WORK/job.out" " 0 -> $WORK/in$"
	says "$WORK/job.out" " 1 -> $WORK/job.out$"
	says "$WORK/job.out" " 2 -> $WORK/job.err$"
	# As many as without mpsctl (bats has some of its own).
	background plain sh -c "exec sh '$WORK/script' <'$WORK/in'"
	exits_with 0 "$PID"
	n_lines "$(grep -c ' -> ' "$WORK/plain.out")" "$WORK/job.out" ' -> '
}

@test "descriptors that the caller hands on reach the job" {
	start_supervisor
	echo seven >"$WORK/in"
	run -0 ctl lease -- sh -c 'cat <&7' 7<"$WORK/in"
	[[ $output == seven ]]
}

@test "a reader of the job's output sees its end with the job" {
	start_supervisor
	# What stays behind to tell of interruptions must not hold the pipe.
	run -0 timeout 5 "${ENVIRONMENT[@]}" sh -c 'mpsctl lease -- sh -c "echo over" | cat'
	[[ $output == over ]]
}

@test "the job has the terminal" {
	start_supervisor
	run -0 with timeout 10 script -qec 'mpsctl lease -- sh -c "tty; test -t 0 -a -t 1 -a -t 2 && ps -o stat= -p \$\$"' /dev/null
	echo "$output"
	[[ $output == /dev/pts/* && ${lines[1]} == *+* ]]
}

# A job that writes a line for each signal that it gets.
readonly TRAPS='for s in HUP INT QUIT TERM USR1 USR2 CONT TSTP WINCH; do trap "echo $s" $s; done
	echo "pid $$"; echo ready; while :; do read -rt 0.05 <> <(:); done'

signals_reach() {
	local signal
	eventually 5 says "$WORK/job.out" '^ready$'
	for signal in HUP INT QUIT TERM USR1 USR2 CONT TSTP WINCH; do
		kill "-$signal" "$PID"
		# TSTP stops mpsctl while it waits for the job beside it.
		[[ $signal != TSTP || $1 == exec ]] || eventually 2 says "$WORK/job.out" '^TSTP$'
		[[ $signal != TSTP || $1 == exec ]] || kill -CONT "$PID"
		eventually 5 says "$WORK/job.out" "^$signal$"
	done
	kill -WINCH "$PID"
	eventually 5 n_lines 2 "$WORK/job.out" '^WINCH$'
	cat "$WORK/job.out"
	for signal in HUP INT QUIT TERM USR1 USR2 TSTP; do
		n_lines 1 "$WORK/job.out" "^$signal$"
	done
}

@test "signals to mpsctl's pid reach the job once" {
	start_supervisor
	background job env --default-signal mpsctl lease -- bash -c "$TRAPS"
	signals_reach exec
	n_lines 1 "$WORK/job.out" '^CONT$'
}

@test "signals to mpsctl's pid reach the job once: --on-loss rerun" {
	start_supervisor
	background job env --default-signal mpsctl lease --on-loss rerun -- bash -c "$TRAPS"
	signals_reach rerun
	kill -KILL "$(sed -n 's/^pid //p' "$WORK/job.out")"
	exits_with 137 "$PID"
}

@test "ignored and blocked signals stay so; SIGPIPE is the job's own" {
	start_supervisor
	run -0 with env --ignore-signal=USR1 --block-signal=USR2 mpsctl lease -- grep -E '^Sig(Blk|Ign):' /proc/self/status
	echo "$output"
	job=$output
	run -0 with env --ignore-signal=USR1 --block-signal=USR2 grep -E '^Sig(Blk|Ign):' /proc/self/status
	[[ $job == "$output" ]]
}

@test "--on-loss: notify tells, terminate ends the job, rerun runs it again" {
	start_supervisor
	background told mpsctl lease --name told -- sh -c 'cuda-client hold; echo "client $?"; exec sleep 600'
	background ended mpsctl lease --name ended --on-loss terminate -- cuda-client stubborn hold 600
	background again mpsctl lease --name again --on-loss rerun --reruns 1 -- cuda-client hold 600
	eventually 10 says "$WORK/ended.out" '^mps server='
	eventually 10 says "$WORK/again.out" '^mps server='
	eventually 10 n_leases 3
	ended=${STARTED[1]} again=${STARTED[2]}
	kill -KILL "$(server_pid)"
	eventually 5 n_lines 1 "$WORK/told.err" 'interrupted'
	eventually 5 n_lines 2 "$WORK/again.out" '^mps server='
	granted told
	granted again
	# It ignores SIGTERM, so this is SIGTERM and then SIGKILL.
	says "$WORK/ended.err" 'SIGTERM'
	exits_with 137 "$ended"
	# One rerun is used up. The job ends of error 806 or of the SIGTERM that follows the loss.
	eventually 5 has_server
	kill -KILL "$(server_pid)"
	eventually 15 gone "$again"
	rc=0
	wait "$again" || rc=$?
	[[ $rc == 10 || $rc == 143 ]]
	says "$WORK/again.err" 'reruns 1'
}
