# SPDX-License-Identifier: MIT
#
# What the benchmarks share: a directory with stand-ins, as many of their GPUs as are wanted, and a
# supervisor over them.
#
#   MPS_BUILD      build directory with mps-supervisord, mpsctl and what a benchmark needs (build)
#   STANDIN_DIR    directory of the stand-ins (MPS_BUILD/standin)
#
# shellcheck shell=bash

: "${MPS_BUILD:=build}" "${STANDIN_DIR:=$MPS_BUILD/standin}"
WORK='' BIN='' SUPERVISOR='' STARTED=()
# What starts the supervisor (taskset, say), and how long all may take to be ready.
LAUNCHER=() START_SECONDS=20

# shellcheck source=tests/integration/processes.bash
. "$(dirname "${BASH_SOURCE[0]}")/../integration/processes.bash"

# begin DIRECTORY: WORK is below it, gone at the end with all that was started; mpsctl and the
# stand-ins come first in PATH.
begin() {
	WORK=$(mktemp -d "$1/mps-bench.XXXXXX")
	trap clean_up EXIT
	set -E
	trap 'echo "${BASH_SOURCE[0]##*/}: line $LINENO: $BASH_COMMAND" >&2' ERR
	BIN=$WORK/bin
	mkdir "$BIN"
	cp "$STANDIN_DIR"/{nvidia-smi,nvidia-cuda-mps-control,nvidia-cuda-mps-server,cuda-client} "$MPS_BUILD/mpsctl" "$BIN/"
	export PATH=$BIN:$PATH MPS_SUPERVISOR_SOCKET=$WORK/run/socket
}

clean_up() {
	local status=$?
	((status == 0)) || tail -n 5 "$WORK/log" 2>/dev/null >&2 || true
	kill_started
	stop
	rm -rf "$WORK"
}

uuid_of() {
	printf 'GPU-be4c%04d-0000-4000-8000-000000000000' "$1"
}

# start N [LINE…]: over N GPUs, with these lines in its configuration; all are ready.
start() {
	local n=$1 i
	shift
	for ((i = 0; i < n; i++)); do
		printf '%d, %s, 00000000:%02x:00.0, Bench GPU, Default, Disabled, Enabled, 81920\n' \
			"$i" "$(uuid_of "$i")" $((i + 1))
	done >"$BIN/standin.gpus"
	printf '%s\n' "runtime_directory = \"$WORK/run\";" "state_directory = \"$WORK/state\";" \
		"mps_control = \"$BIN/nvidia-cuda-mps-control\";" "nvidia_smi = \"$BIN/nvidia-smi\";" "$@" >"$WORK/conf"
	"${LAUNCHER[@]}" "$MPS_BUILD/mps-supervisord" -c "$WORK/conf" 2>"$WORK/log" &
	SUPERVISOR=$!
	eventually "$START_SECONDS" all_ready "$n"
}

stop() {
	[[ -n $SUPERVISOR ]] || return 0
	kill "$SUPERVISOR" 2>/dev/null || true
	wait "$SUPERVISOR" 2>/dev/null || true
	SUPERVISOR=''
}

# status FILTER: on what `mpsctl status --json` says.
status() {
	mpsctl status --json 2>/dev/null | jq -r "$@"
}

all_ready() {
	[[ $(status "(.instances | length) == $1 and all(.instances[]; .state == \"ready\")") == true ]]
}

# run_sections 'NAME…' [SECTION…]: the functions section_NAME, all of them when none is asked for.
run_sections() {
	local section
	local -a all
	read -ra all <<<"$1"
	shift
	(($# > 0)) || set -- "${all[@]}"
	for section; do
		if [[ " ${all[*]} " != *" $section "* ]]; then
			echo "${0##*/}: no section \"$section\": ${all[*]}" >&2
			exit 2
		fi
		"section_$section"
	done
}
