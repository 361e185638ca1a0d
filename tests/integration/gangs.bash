# SPDX-License-Identifier: MIT
#
# What the tests of leases of several devices share.
#
# shellcheck shell=bash
# shellcheck disable=SC2016 # those are of jq

load lib

# gang_of NAME: the instance of the lease of that name.
gang_of() {
	leases_json --arg name "$1" '.leases[] | select(.name == $name) | .instance'
}

# gang_status NAME FILTER: of the instance of that lease.
gang_status() {
	status_json -c --arg gang "$(gang_of "$1")" ".instances[] | select(.name == \$gang) | $2"
}

n_gangs() {
	[[ $(status_json '[.instances[] | select(.kind == "gang")] | length') == "$1" ]]
}

no_gangs() {
	n_gangs 0 && [[ $(find "$RUN/instance" -mindepth 1 -maxdepth 1 | wc -l) == "$(status_json '.instances | length')" ]]
}
