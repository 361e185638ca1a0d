#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What a lease costs: `mpsctl lease -- true` against `true`, in turn, median of N each, with the
# stand-ins. Prints figures; judges nothing.
#
#   lease-overhead.sh [N]      environment: MPS_BUILD, STANDIN_DIR
set -euo pipefail

# shellcheck source=tests/bench/lib.bash
. "$(dirname "$0")/lib.bash"
readonly N=${1:-50}

microseconds() {
	local start=${EPOCHREALTIME/./}
	"$@"
	echo $((${EPOCHREALTIME/./} - start))
}

median() {
	sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

begin /tmp
start 1
for ((i = 0; i < N; i++)); do
	microseconds /bin/true >>"$WORK/plain"
	microseconds mpsctl lease -- /bin/true >>"$WORK/leased"
	microseconds mpsctl lease -q -- /bin/true >>"$WORK/quiet"
done
plain=$(median <"$WORK/plain") leased=$(median <"$WORK/leased") quiet=$(median <"$WORK/quiet")
echo "median of $N: true $plain us, mpsctl lease -- true $leased us (+$((leased - plain)) us)," \
	"with -q $quiet us (+$((quiet - plain)) us)"
awk '/^VmRSS/ { print "resident: " $2 " KiB" }' "/proc/$SUPERVISOR/status"
