# SPDX-License-Identifier: MIT
#
# What the tests of the stand-ins share: stand-ins of two GPUs and a MIG instance in a directory of the
# test's own, the daemon in it, clients. No real program takes part, and no supervisor.
#
#   STANDIN_DIR    directory of the stand-ins
#
# shellcheck shell=bash
# shellcheck disable=SC2034 # variables are for the tests

bats_require_minimum_version 1.5.0

load processes

GPU0=GPU-aaaaaaaa-0000-0000-0000-000000000000
GPU1=GPU-bbbbbbbb-1111-1111-1111-111111111111
MIG0=MIG-cccccccc-2222-2222-2222-222222222222

setup() {
	STANDIN=$(realpath -m "${STANDIN_DIR:-$BATS_TEST_DIRNAME/../../build/standin}")
	[[ -x $STANDIN/nvidia-cuda-mps-control ]] || skip "no stand-ins in $STANDIN"
	WORK=$(mktemp -d /tmp/mps-si.XXXXXX)
	chmod 0755 "$WORK"
	BIN=$WORK/bin
	mkdir "$BIN" "$WORK/log"
	cp "$STANDIN"/{nvidia-smi,nvidia-cuda-mps-control,nvidia-cuda-mps-server,cuda-client} "$BIN/"
	cat >"$BIN/standin.gpus" <<-END
		0, $GPU0, 00000000:00:06.0, NVIDIA H200, Default, Disabled, Enabled, 143771
		1, $GPU1, 00000000:00:07.0, NVIDIA H200, Prohibited, Enabled, Enabled, 143771
		mig, 1g.10gb, 0, $MIG0
	END
	PIPE=$WORK/pipe
	STARTED=()
	COUNT=0
}

teardown() {
	# Servers outlive a killed daemon only when a knob says so; their pids are in the log.
	mapfile -t -O "${#STARTED[@]}" STARTED < <(server_pids 2>/dev/null)
	kill_started
	[[ -z ${WORK:-} ]] || rm -rf "$WORK"
}

server_pids() {
	sed -nE 's/.*Starting new server ([0-9]+) .*/\1/p' "$WORK/out"
}

# ENVIRONMENT becomes the beginning of every command line; VISIBLE is CUDA_VISIBLE_DEVICES, if set.
environment() {
	ENVIRONMENT=(env -i PATH="$BIN:/usr/bin:/bin" CUDA_MPS_PIPE_DIRECTORY="$PIPE"
		CUDA_MPS_LOG_DIRECTORY="$WORK/log" ${VISIBLE+CUDA_VISIBLE_DEVICES="$VISIBLE"})
}

with() {
	environment
	"${ENVIRONMENT[@]}" "$@"
}

ask() {
	printf '%s\n' "$@" | with timeout 10 nvidia-cuda-mps-control 2>&1
}

answers() {
	[[ $(ask get_default_active_thread_percentage) == 100.0 ]]
}

# daemon [OPTION…]: in the foreground, over GPU0 alone unless VISIBLE says otherwise.
daemon() {
	local VISIBLE=${VISIBLE-$GPU0}
	environment
	"${ENVIRONMENT[@]}" nvidia-cuda-mps-control -f "$@" >"$WORK/out" 2>"$WORK/err" 3>&- &
	DAEMON=$!
	STARTED+=("$DAEMON")
}

daemon_ready() {
	daemon "$@"
	eventually 10 answers
}

# client WORD…: in the background, as the user AS; CLIENT is its pid and OUTPUT what it writes.
client() {
	local -a as=()
	[[ -z ${AS:-} ]] || as=(setpriv --reuid "$AS" --clear-groups)
	environment
	OUTPUT=$WORK/client.$((COUNT++))
	"${ENVIRONMENT[@]}" "${as[@]}" cuda-client "$@" >"$OUTPUT" 2>&1 </dev/null 3>&- &
	CLIENT=$!
	STARTED+=("$CLIENT")
}

attached() {
	client "$@"
	eventually 5 says "$OUTPUT" '^mps server='
}

# After at most SECONDS the newest line about it is this one.
logs() {
	eventually "$1" grep -qE "$2" "$WORK/out"
}

server() {
	ask get_server_list
}

status_is() {
	[[ $(ask "get_server_status $(server)") == "$1" ]]
}
