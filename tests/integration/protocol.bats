#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# The protocol as bytes on the socket: calls, errors, rubbish. After each test the supervisor still
# serves others and has no descriptor more than before.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # those are of jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load lib

setup() {
	prepare
	start_supervisor
	# The server that the first lease brings is there for good.
	ctl lease -- cuda-client init
	eventually 5 no_leases
	eventually 5 n_ours 3
	BEFORE=$(descriptors)
}

teardown() {
	if [[ -n $SUPERVISOR ]]; then
		kill_started
		ctl lease -- true
		eventually 5 no_leases
		eventually 5 n_descriptors "$BEFORE"
	fi
	clean_up
}

# raw [OPTION…]: standard input to the socket; what comes back, and whether the peer closed.
raw() {
	run -0 --separate-stderr with timeout 20 rawsock "$@"
	echo "$output $stderr"
}

# fails ERROR PARAMETERS METHOD [PARAMETERS [MORE]]: that error with exactly these parameters.
fails() {
	local error=$1 wanted=$2 answer
	[[ $error == *.* ]] || error=io.mps-supervisor.$error
	shift 2
	answer=$(call "$@")
	echo "$* -> $answer"
	jq -e --arg error "$error" --argjson wanted "$wanted" \
		'.error == $error and (.parameters // {}) == $wanted and (.continues | not)' <<<"$answer"
}

# invalid FIELD PARAMETERS: AcquireLease with a value that makes no sense.
invalid() {
	local answer
	answer=$(call AcquireLease "$2")
	echo "$2 -> $answer"
	jq -e --arg field "$1" '.error == "io.mps-supervisor.InvalidRequest" and .parameters.field == $field
		and (.parameters.reason | length > 0)' <<<"$answer"
}

wrong_parameter() {
	fails org.varlink.service.InvalidParameter "{\"parameter\":\"$1\"}" "${@:2}"
}

@test "GetInfo, and the interfaces as they are in the tree" {
	call org.varlink.service.GetInfo | jq -e '.parameters | (.interfaces | sort) ==
		["io.mps-supervisor", "org.varlink.service"] and .product == "mps-supervisord"
		and (keys == ["interfaces", "product", "url", "vendor", "version"])'
	call org.varlink.service.GetInterfaceDescription '{"interface":"io.mps-supervisor"}' |
		jq -j .parameters.description | diff - "$INTERFACE"
	call org.varlink.service.GetInterfaceDescription '{"interface":"org.varlink.service"}' |
		jq -e '.parameters.description | test("interface org.varlink.service")'
	fails org.varlink.service.InterfaceNotFound '{"interface":"org.example"}' \
		org.varlink.service.GetInterfaceDescription '{"interface":"org.example"}'
	[[ $(call org.varlink.service.GetInfo | jq -r .parameters.version) == "$(status_json .version)" ]]
}

@test "unknown methods and interfaces" {
	fails org.varlink.service.MethodNotFound '{"method":"io.mps-supervisor.Frobnicate"}' Frobnicate
	fails org.varlink.service.MethodNotFound '{"method":"org.varlink.service.Get"}' org.varlink.service.Get
	fails org.varlink.service.InterfaceNotFound '{"interface":"org.example"}' org.example.Do
}

@test "missing, unknown and mistyped parameters" {
	wrong_parameter id ReleaseLease '{}'
	wrong_parameter id ReleaseLease '{"id":null}'
	wrong_parameter id ReleaseLease '{"id":7}'
	wrong_parameter interface org.varlink.service.GetInterfaceDescription '{}'
	wrong_parameter colour ListLeases '{"colour":1}'
	wrong_parameter colour GetStatus '{"colour":1}'
	wrong_parameter colour AcquireLease '{"colour":null}'
	wrong_parameter colour Monitor '{"colour":1}' '"more":true'
	wrong_parameter colour ReleaseLease '{"id":"x","colour":1}'
	local pair
	for pair in count:'"1"' count:1.5 devices:'"all"' devices:'[0]' threads_percent:true memory_bytes:'"1G"' \
		clients:'[]' exclusive:1 exclusive:'"yes"' name:5 wait_ms:'"0"' bind:'"forever"' bind:1 pid:'"1"' uid:'{}'; do
		wrong_parameter "${pair%%:*}" AcquireLease "{\"${pair%%:*}\":${pair#*:}}"
	done
	no_leases
}

@test "optional parameters may be null, parameters may be absent" {
	call AcquireLease '{"count":null,"devices":null,"threads_percent":null,"memory_bytes":null,"clients":null,
		"exclusive":null,"name":null,"wait_ms":null,"bind":null,"pid":null,"uid":null}' |
		jq -e '.parameters | .what == "granted" and .lease.clients == 1 and .lease.bind == "connection"
			and .lease.exclusive == false and .lease.threads_percent == null'
	raw -n -c 1 "$SOCKET" 10 <<<'{"method":"io.mps-supervisor.ListLeases"}'
	jq -e '.parameters.leases | type == "array"' <<<"$output"
	raw -n -c 1 "$SOCKET" 10 <<<'{"method":"io.mps-supervisor.AcquireLease","parameters":null}'
	[[ $(jq -r .parameters.what <<<"$output") == granted || $(jq -r .error <<<"$output") == *Invalid* ]]
}

@test "values out of range: InvalidRequest with the field" {
	invalid count '{"count":0}'
	invalid count '{"count":-1}'
	invalid count '{"count":100000}'
	invalid threads_percent '{"threads_percent":0}'
	invalid threads_percent '{"threads_percent":101}'
	invalid memory_bytes '{"memory_bytes":0}'
	invalid memory_bytes '{"memory_bytes":-1}'
	invalid clients '{"clients":0}'
	invalid clients '{"clients":1000000}'
	invalid wait_ms '{"wait_ms":-1}'
	invalid pid '{"bind":"process","pid":0}'
	invalid pid '{"bind":"process","pid":2000000000}'
	invalid pid '{"bind":"connection","pid":1}'
	invalid uid '{"uid":-1}'
	invalid name "{\"name\":\"$(printf '%0200d' 0)\"}"
	invalid name '{"name":"a\u0007b"}'
	# 64 bits are not cut to 32.
	invalid threads_percent '{"threads_percent":4294967346}'
	invalid pid '{"bind":"process","pid":4294967297}'
	invalid uid '{"uid":4294967296}'
	no_leases
}

@test "what can never be had, what cannot be had now, what is not there" {
	fails NoSuchDevice '{"selector":"GPU-ffff"}' AcquireLease '{"devices":["GPU-ffff"]}'
	fails NoSuchDevice '{"selector":"99"}' AcquireLease '{"devices":["0","99"]}'
	fails NoSuchLease '{"id":"nope"}' ReleaseLease '{"id":"nope"}'
	call AcquireLease '{"clients":49}' |
		jq -e '.error == "io.mps-supervisor.Unsatisfiable" and (.parameters.reason | test("49"))'
	call AcquireLease '{"memory_bytes":1099511627776}' | jq -e '.error == "io.mps-supervisor.Unsatisfiable" and
		(.parameters.reason | test("^1TiB of memory asked for, and the largest device has 140.4GiB$"))'
	hold first -x
	call AcquireLease '{"wait_ms":0}' | jq -e --argjson uid "$EUID" '.error == "io.mps-supervisor.Busy" and
		.parameters.uid == $uid and .parameters.leases == 1 and .parameters.position == 1 and
		(.parameters.reason | test("exclusive"))'
	call AcquireLease '{"wait_ms":200}' | jq -e '.error == "io.mps-supervisor.TimedOut" and
		.parameters.waited_ms >= 200 and .parameters.waited_ms < 2000 and (.parameters.reason | test("exclusive"))'
	n_leases 0 queued
}

@test "PermissionDenied says why" {
	need_root
	AS=1000 call AcquireLease '{"uid":0}' | jq -e '.error == "io.mps-supervisor.PermissionDenied" and
		(.parameters.reason | length > 0)'
	AS=1000 call AcquireLease '{"bind":"none"}' | jq -e '.error == "io.mps-supervisor.PermissionDenied"'
	AS=1000 call AcquireLease '{"bind":"process","pid":1}' | jq -e '.error == "io.mps-supervisor.PermissionDenied"'
	AS=1000 call AcquireLease '{"uid":1000}' | jq -e '.parameters.lease.uid == 1000'
}

@test "Monitor and AcquireLease: with and without more" {
	fails org.varlink.service.ExpectedMore '{}' Monitor
	call AcquireLease | jq -e '.parameters.what == "granted" and (.continues | not)'
	call AcquireLease '{}' '"more":true' | jq -e '.parameters.what == "granted" and .continues'
	call AcquireLease | jq .parameters.lease | conforms Lease
}

@test "more: queued with position and reason, again when that changes, granted, revoked" {
	hold first -x
	stream_lease a
	eventually 5 answered a '.[0].parameters.what == "queued"'
	stream_lease b
	eventually 5 answered b '.[0].parameters | .what == "queued" and .lease.position == 2'
	answers b '.[0] | .continues and .parameters.lease.state == "queued" and (.parameters.lease.reason | length > 0)
		and .parameters.lease.instance == null and .parameters.lease.pipe_directory == null'
	answers b '.[0].parameters.lease' | conforms Lease
	# a, in front, dies: b moves up and is told.
	kill -KILL "${STARTED[1]}"
	eventually 5 answered b '.[-1].parameters | .what == "queued" and .lease.position == 1'
	kill -KILL "${STARTED[0]}"
	eventually 5 answered b '.[-1].parameters | .what == "granted" and .lease.state == "granted"'
	directory=$(answers b '.[-1].parameters.lease.pipe_directory')
	[[ -S $directory/control ]]
	id=$(answers b '.[-1].parameters.lease.id')
	call ReleaseLease "{\"id\":\"$id\"}" | jq -e '.error == null'
	eventually 5 answered b '.[-1] | .parameters.what == "revoked" and (.continues | not)'
	answers b '.[-1].parameters.event' | conforms Event
	[[ ! -e $directory ]]
	# The same said twice would be noise.
	answers b '[.[].parameters | [.what, .lease.position, .lease.reason]] | length == (unique | length)'
}

@test "a lease bound to its connection ends with it; one bound to a process does not" {
	background other sleep 600
	stream_lease a
	eventually 5 n_leases 1
	kill -KILL "${STARTED[1]}"
	eventually 2 no_leases
	call AcquireLease "{\"bind\":\"process\",\"pid\":${STARTED[0]}}" | jq -e .parameters.lease.pid
	n_leases 1
	call AcquireLease "{\"pid\":${STARTED[0]}}" | jq -e '.parameters.lease.bind == "process"'
	n_leases 2
	kill -KILL "${STARTED[0]}"
	eventually 2 no_leases
}

@test "several calls in one write are answered in order" {
	{
		message GetStatus
		printf '\0'
		message Frobnicate
		printf '\0'
		message ListLeases
		printf '\0'
		message AcquireLease '{"name":"p"}'
		printf '\0'
		message ListLeases
		printf '\0'
	} >"$WORK/calls"
	raw -c 5 "$SOCKET" 10 <"$WORK/calls"
	jq -se 'length == 5 and .[0].parameters.version and (.[1].error | test("MethodNotFound")) and
		.[2].parameters.leases == [] and .[3].parameters.what == "granted" and .[4].parameters.leases[0].name == "p"' <<<"$output"
}

@test "the sender may close its direction: what was asked is answered" {
	{
		message GetStatus
		printf '\0'
		message ListLeases
		printf '\0'
	} >"$WORK/calls"
	raw -w "$SOCKET" 10 <"$WORK/calls"
	jq -se 'length == 2' <<<"$output"
	[[ $stderr == closed ]]
}

@test "byte by byte is a message too" {
	message ListLeases | sed 's/./&\n/g' >"$WORK/bytes"
	mkfifo "$WORK/fifo"
	background slow sh -c "exec rawsock -c 1 '$SOCKET' 10 <'$WORK/fifo'"
	exec {fifo}>"$WORK/fifo"
	while IFS= read -r byte; do
		printf '%s' "$byte" >&"$fifo"
	done <"$WORK/bytes"
	printf '\0' >&"$fifo"
	exits_with 0 "$PID"
	exec {fifo}>&-
	answers slow '.[0].parameters.leases == []'
}

@test "oneway: done without an answer" {
	background other sleep 600
	{
		message AcquireLease "{\"name\":\"o\",\"bind\":\"process\",\"pid\":$PID}" '"oneway":true'
		printf '\0'
		message Frobnicate '{}' '"oneway":true'
		printf '\0'
		message ListLeases
		printf '\0'
	} >"$WORK/calls"
	raw "$SOCKET" 0.5 <"$WORK/calls"
	jq -se 'length == 1 and .[0].parameters.leases[0].name == "o"' <<<"$output"
}

# rubbish: what is on standard input gets an error where one can be sent, and the connection's end;
# a bystander's connection goes on.
rubbish() {
	raw "$SOCKET" 5
	[[ $stderr == closed ]]
	[[ -z $output ]] || jq -se 'length == 1 and (.[0].error | length > 0)' <<<"$output"
}

@test "not JSON, no object, no call: an error, and that connection ends" {
	stream_lease bystander
	eventually 5 n_leases 1
	printf 'GET / HTTP/1.1\r\n\r\n\0' | rubbish_says 'JSON'
	printf '{"method":\0' | rubbish_says 'JSON'
	printf '[1,2]\0' | rubbish_says '.'
	printf '7\0' | rubbish_says '.'
	printf '\0' | rubbish_says '.'
	printf '{}\0' | rubbish_says '.'
	printf '{"method":5}\0' | rubbish_says '.'
	printf '{"method":"io.mps-supervisor.ListLeases","parameters":[]}\0' | rubbish_says '.'
	printf '{"method":"io.mps-supervisor.ListLeases","more":"yes"}\0' | rubbish_says '.'
	printf '{"method":"\xff\xfe"}\0' | rubbish_says '.'
	head -c 30000 /dev/zero | tr '\0' '[' | { cat && printf '\0'; } | rubbish_says '.'
	# What comes behind it is not looked at.
	{ printf 'x\0' && message AcquireLease '{"name":"late","bind":"none"}' && printf '\0'; } | rubbish_says '.'
	n_leases 1
	run ! gone "${STARTED[0]}"
}

rubbish_says() {
	rubbish
	jq -e --arg regex "$1" '(.error | length > 0) and (.parameters.reason // .error | test($regex))' <<<"$output"
}

@test "a message over 64 KiB" {
	stream_lease bystander
	eventually 5 n_leases 1
	{
		printf '{"method":"io.mps-supervisor.ListLeases","parameters":{"x":"'
		head -c 70000 /dev/zero | tr '\0' x
		printf '"}}\0'
	} | rubbish_says '64 KiB'
	# Without an end, much more.
	head -c 5000000 /dev/zero | tr '\0' x | rubbish
	# Just below is fine.
	{
		printf '{"method":"io.mps-supervisor.ListLeases","parameters":{"x":"'
		head -c 65000 /dev/zero | tr '\0' x
		printf '"}}\0'
	} >"$WORK/big"
	raw -c 1 "$SOCKET" 10 <"$WORK/big"
	jq -e '.error == "org.varlink.service.InvalidParameter" and .parameters.parameter == "x"' <<<"$output"
	n_leases 1
}

@test "half a message, then the end" {
	local i
	for i in {1..20}; do
		printf '{"method":"io.mps-supervisor.Acq' | with rawsock "$SOCKET" 0
		printf '{"method":"io.mps-supervisor.Acq' | with rawsock -w "$SOCKET" 2
		with rawsock "$SOCKET" 0 </dev/null
	done
	call AcquireLease | jq -e '.parameters.what == "granted"'
}

@test "many connections at once" {
	local i
	for i in {1..100}; do
		background "idle$i" rawsock "$SOCKET" 600
	done
	eventually 10 n_descriptors_at_least $((BEFORE + 100))
	start=$(now_ms)
	ctl lease -- true
	echo "a lease beside 100 connections: $(($(now_ms) - start)) ms"
	(($(now_ms) - start < 1000))
}

n_descriptors_at_least() {
	(($(descriptors) >= $1))
}

@test "a client that never reads does not hold up the others" {
	{
		for _ in {1..2000}; do
			message GetStatus
			printf '\0'
		done
	} >"$WORK/calls"
	# Whatever it has sent by now, it reads nothing while it is stopped.
	background deaf sh -c "exec rawsock '$SOCKET' 600 <'$WORK/calls'"
	kill -STOP "$PID"
	start=$(now_ms)
	ctl lease -- true
	(($(now_ms) - start < 1000))
	kill -CONT "$PID"
	eventually 20 n_lines 2000 "$WORK/deaf.out" '"version"'
}

# Its connection has the lease and monitors, and cannot be sent anything any more: telling it of the
# end of its lease ends it while its lease is being ended.
@test "a lease ends whose holder monitors and cannot be told of it" {
	{
		message AcquireLease '{"name":"deaf"}'
		printf '\0'
		message Monitor '{}' '"more":true'
		printf '\0'
	} >"$WORK/calls"
	background deaf sh -c "exec rawsock -r '$SOCKET' 600 <'$WORK/calls'"
	eventually 5 says "$WORK/deaf.out" granted
	ctl release "$(lease_id deaf)"
	eventually 5 n_leases 0
	call AcquireLease | jq -e '.parameters.what == "granted"'
}
