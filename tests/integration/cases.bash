# SPDX-License-Identifier: MIT
#
# What the files of cases share: troubles that users of MPS have had, each provoked as it was met and
# held against what is wanted then. GPU 0 suffers; GPU 1 has a client all the while and must not notice.
#
# Where no GPU is needed NVIDIA's own control daemon of release 535 takes part as well. It starts no
# server without one, so nothing is started ahead and its holders have no clients.
#
# shellcheck shell=bash
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # those are of jq, or for another shell
# shellcheck disable=SC2034 # variables are for the tests

load lib

setup() {
	prepare 2
	quick
}

teardown() {
	clean_up
}

both_ready() {
	status_is '.instances | map(.state) == ["ready", "ready"]'
}

# What GPU 0's troubles may not change of GPU 1.
other() {
	status_json -c '.instances[1] | [.state, .control_pid, .generation, .restarts, .servers, .clients, .deaths]'
}

# Both ready, GPU 1 in use.
begin() {
	start_supervisor
	eventually 15 both_ready
	if [[ -n $REAL ]]; then
		hold other --gpu 1
	else
		hold_attached other --gpu 1
		eventually 2 n_clients 1 1
	fi
	OTHER_PID=$PID
	OTHER=$(other)
}

other_untouched() {
	[[ $(other) == "$OTHER" ]]
	run ! says "$WORK/other.err" .
	run ! gone "$OTHER_PID"
}

# At once: nothing waits for GPU 0.
other_grants() {
	local start
	start=$(now_ms)
	ctl lease --gpu 1 --no-wait -- true
	(($(now_ms) - start < 1000))
}

# told NAME GENERATIONS: it was told of these losses, each once.
told() {
	[[ $(answers "$1" -c '[.[].parameters | select(.what == "interrupted") | .event.generation]') == "$2" ]]
}

# refused_on_0 REGEX: who does not wait is refused at once and told why; nothing is granted.
refused_on_0() {
	local start
	start=$(now_ms)
	run -1 --separate-stderr ctl lease --gpu 0 --no-wait
	echo "$stderr"
	(($(now_ms) - start < 2000))
	[[ $stderr =~ $1 ]]
}

# ready_again GENERATION [INDEX]
ready_again() {
	[[ $(status_json ".instances[${2:-0}] | [.state, .generation] | tostring") == "[\"ready\",$1]" ]]
}

reason_is() {
	[[ $(status_json '.instances[0].reason') =~ $1 ]]
}

# counter_above NAME N
counter_above() {
	(($(counter "$1") > $2))
}

pipe_directory() {
	tr '\0' '\n' <"/proc/$(control_pid)/environ" | sed -n 's/^CUDA_MPS_PIPE_DIRECTORY=//p'
}

# ends_within SECONDS: the supervisor, after SIGTERM, whoever is attached; nothing is left.
ends_within() {
	local start took pid=$SUPERVISOR
	start=$(now_ms)
	kill -TERM "$pid"
	eventually 15 gone "$pid"
	took=$(($(now_ms) - start))
	echo "stopped after $took ms"
	wait "$pid"
	SUPERVISOR=
	((took < $1 * 1000))
	kill_started
	nothing_left
}
