#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# Clients in mount namespaces of their own, as containers are: the lease's directory is mounted
# somewhere else there, and the supervisor's own directories cannot be seen.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell, or jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load lib

setup() {
	need_root
	unshare --mount true || skip "needs mount namespaces"
	prepare 2
	quick
	# contain DIRECTORY PLACE COMMAND…: DIRECTORY is at PLACE, and nothing else of RUN is to be seen.
	cat >"$WORK/contain" <<-END
		set -e
		mount --make-rprivate /
		mount -t tmpfs -o mode=755 tmpfs /mnt
		mkdir /mnt/source
		mount --bind "\$1" /mnt/source
		mount -t tmpfs -o mode=755 tmpfs "$RUN"
		mkdir -p "\$2"
		mount --bind /mnt/source "\$2"
		umount /mnt/source
		[ ! -e "$SOCKET" ]
		export CUDA_MPS_PIPE_DIRECTORY="\$2"
		shift 2
		exec "\$@"
	END
}

teardown() {
	clean_up
}

# contained NAME DIRECTORY PLACE COMMAND…: in the background; PID is that of the command.
contained() {
	local name=$1
	shift
	background "$name" unshare --mount sh "$WORK/contain" "$@"
}

@test "the directory is mounted elsewhere: the client counts to its lease" {
	start_supervisor
	hold first --gpu 0
	hold second --gpu 0
	directory=$(directory_of first)
	contained client "$directory" /mnt/mps env CUDA_VISIBLE_DEVICES="$GPU0" cuda-client hold 600
	client=$PID
	eventually 5 says "$WORK/client.out" '^mps server='
	eventually 2 attached_is first "[$client]"
	attached_is second '[]'
	contained other "$(directory_of second)" /mnt/mps env CUDA_VISIBLE_DEVICES="$GPU0" cuda-client hold 600
	other=$PID
	eventually 5 says "$WORK/other.out" '^mps server='
	eventually 2 attached_is second "[$other]"
	attached_is first "[$client]"
	kill -KILL "$client"
	eventually 2 attached_is first '[]'
}

@test "with a process namespace of its own, as another user, at MPS's own default place" {
	start_supervisor
	AS=1000 hold first --gpu 0
	directory=$(directory_of first)
	background client unshare --mount --pid --fork --mount-proc --kill-child sh "$WORK/contain" "$directory" /mnt/tmp/nvidia-mps \
		setpriv --reuid 1000 --regid 1000 --clear-groups env CUDA_VISIBLE_DEVICES="$GPU0" cuda-client hold 600
	eventually 5 says "$WORK/client.out" '^mps server='
	client=$(cat "/proc/$PID/task/$PID/children")
	client=${client% }
	eventually 2 attached_is first "[$client]"
	status_is --argjson pid "$client" '.instances[0].clients == [$pid]'
}

@test "a loss names the client in a container and its lease" {
	start_supervisor
	stream_lease first "{\"name\":\"first\",\"devices\":[\"$GPU0\"]}"
	eventually 5 answered first '.[-1].parameters.what == "granted"'
	hold second --gpu 0
	contained client "$(directory_of first)" /mnt/mps env CUDA_VISIBLE_DEVICES="$GPU0" cuda-client fault 300
	client=$PID
	eventually 5 says "$WORK/client.out" '^mps server='
	eventually 2 attached_is first "[$client]"
	eventually 5 answered first '.[-1].parameters.what == "interrupted"'
	said first --argjson pid "$client" '.[-1].parameters | .event.cause == "fault" and .event.hit_pids == [$pid]
		and .event.hit_leases == [.lease.id]'
	[[ ! -s $WORK/second.err ]]
}

@test "a client in a container keeps its lease's place, and is ended after straggler_grace" {
	quick max_clients=1 straggler_grace=1.0
	start_supervisor
	hold first --gpu 0
	first=$PID
	contained client "$(directory_of first)" /mnt/mps env CUDA_VISIBLE_DEVICES="$GPU0" cuda-client hold 600
	client=$PID
	eventually 5 says "$WORK/client.out" '^mps server='
	eventually 2 attached_is first "[$client]"
	background bystander sleep 600
	bystander=$PID
	kill -KILL "$first"
	eventually 2 n_leases 1 draining
	run -1 ctl lease --gpu 0 --no-wait
	exits_with 143 "$client"
	eventually 2 no_leases
	run ! gone "$bystander"
}

# Root reaches the daemon's own directory; that is nobody's lease, wherever it is.
@test "the instance's directory mounted somewhere makes nobody a client of a lease" {
	start_supervisor
	hold first --gpu 0
	instance=$(dirname "$(find "$RUN/instance" -samefile "$(directory_of first)/control")")
	contained stranger "$instance" /mnt/mps env CUDA_VISIBLE_DEVICES="$GPU0" cuda-client hold 600
	stranger=$PID
	eventually 5 says "$WORK/stranger.out" '^mps server='
	eventually 2 status_is --argjson pid "$stranger" '.instances[0].clients == [$pid]'
	attached_is first '[]'
}
