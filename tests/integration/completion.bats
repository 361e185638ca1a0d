#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# The completion of bash: what is offered behind words.
#
# shellcheck disable=SC2154 # output is bats'
# shellcheck disable=SC2016 # for another shell

load lib

COMPLETION=$BATS_TEST_DIRNAME/../../client/completions/mpsctl.bash

setup() {
	prepare 2
	start_supervisor
}

teardown() {
	clean_up
}

# offers WANTED WORD…: exactly that, in order, for the last of the words.
offers() {
	local wanted=$1
	shift
	run -0 with bash -c 'source "$1"; shift; COMP_WORDS=(mpsctl "$@") COMP_CWORD=$#; _mpsctl; echo "${COMPREPLY[*]}"' \
		_ "$COMPLETION" "$@"
	echo "mpsctl $*: $output"
	[[ $output == "$wanted" ]]
}

@test "completion: commands and options that there are, values of options" {
	offers 'lease release status leases monitor drain resume restart' ''
	offers 'release resume restart' re
	offers '--pid' lease --p
	offers '--gpus --gpu' lease --gpu
	offers 'none time-slicing' lease --fallback ''
	offers 'time-slicing' lease --fallback = t
	offers 'shell env json path' lease --format =
	offers '' lease --wait ''
	offers '' drain --timeout ''
	# All options that are offered are known, and are there.
	for command in lease status leases monitor drain restart; do
		help=$(ctl "$command" --help)
		for option in $(with bash -c 'source "$1"; command=$2 _mpsctl_options' _ "$COMPLETION" "$command"); do
			echo "$command $option"
			[[ $help == *"$option"* && ! $help =~ "$option"\ [^$'\n']*"not available" ]]
		done
	done
}

@test "completion: instances, devices and leases, also of another supervisor's socket" {
	hold a --gpu 0
	id=$(lease_id a)
	offers "all $GPU0 0 $GPU1 1" lease --gpu ''
	offers "$GPU1" lease -c 2 --gpu GPU-b
	offers "all $GPU0 $GPU1" drain --timeout 5 ''
	offers "all $GPU0 $GPU1" restart --force ''
	offers "$id" release ''
	ENVIRONMENT+=(MPS_SUPERVISOR_SOCKET="$WORK/none")
	offers '' release ''
	offers "$id" --socket "$SOCKET" release ''
	offers "$id" --socket = "$SOCKET" release "${id:0:2}"
	ENVIRONMENT+=(MPS_SUPERVISOR_SOCKET="$SOCKET")
	kill -KILL "$PID"
	eventually 2 no_leases
	offers '' release ''
	# A gang cannot be drained.
	hold gang --gpus 2
	gang=$(leases_json '.leases[0].instance')
	offers "all $GPU0 $GPU1" drain ''
	offers "all $GPU0 $GPU1 $gang" restart ''
}
