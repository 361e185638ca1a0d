#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What a lease costs: `mpsctl lease -- true` against `true`, in turn, median of N each, with the
# stand-ins. Prints figures; judges nothing.
#
#   lease-overhead.sh [N]      environment: MPS_BUILD, STANDIN_DIR
set -euo pipefail

: "${MPS_BUILD:=build}" "${STANDIN_DIR:=$MPS_BUILD/standin}"
readonly N=${1:-50}
work=$(mktemp -d /tmp/mps-bench.XXXXXX)
supervisor=''

clean_up() {
	if [[ -n $supervisor ]]; then
		kill "$supervisor" 2>/dev/null || true
		wait "$supervisor" 2>/dev/null || true
	fi
	rm -rf "$work"
}
trap clean_up EXIT

await_ready() {
	local deadline=$((SECONDS + 20))
	until "$MPS_BUILD/mpsctl" status --json 2>/dev/null | jq -e '.instances | length > 0 and all(.state == "ready")' >/dev/null; do
		((SECONDS < deadline)) || return 1
	done
}

microseconds() {
	local start=${EPOCHREALTIME/./}
	"$@"
	echo $((${EPOCHREALTIME/./} - start))
}

median() {
	sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

mkdir "$work/bin"
cp "$STANDIN_DIR"/nvidia-* "$work/bin/" 2>/dev/null
echo "0, GPU-be4c0000-0000-4000-8000-000000000001, 00000000:01:00.0, Bench GPU, Default, Disabled, Enabled, 81920" >"$work/bin/standin.gpus"
cat >"$work/conf" <<EOT
runtime_directory = "$work/run";
state_directory = "$work/state";
mps_control = "$work/bin/nvidia-cuda-mps-control";
nvidia_smi = "$work/bin/nvidia-smi";
EOT
"$MPS_BUILD/mps-supervisord" -c "$work/conf" 2>"$work/log" &
supervisor=$!
export MPS_SUPERVISOR_SOCKET=$work/run/socket
await_ready

for ((i = 0; i < N; i++)); do
	microseconds /bin/true >>"$work/plain"
	microseconds "$MPS_BUILD/mpsctl" lease -- /bin/true >>"$work/leased"
	microseconds "$MPS_BUILD/mpsctl" lease -q -- /bin/true >>"$work/quiet"
done
plain=$(median <"$work/plain") leased=$(median <"$work/leased") quiet=$(median <"$work/quiet")
echo "median of $N: true $plain us, mpsctl lease -- true $leased us (+$((leased - plain)) us)," \
	"with -q $quiet us (+$((quiet - plain)) us)"
awk '/^VmRSS/ { print "resident: " $2 " KiB" }' "/proc/$supervisor/status"
