#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# compute_mode = "exclusive_process": GPUs are made exclusive, and get back what they had: at a stop,
# after a crash, for an administrator who drains one.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # those are of jq
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load lib

setup() {
	need_root
	prepare
	RECORD=$WORK/state/compute-modes
	quick 'compute_mode="exclusive_process"'
}

teardown() {
	clean_up
}

# modes_are MODE…: of the GPUs, as nvidia-smi says; not through what tests put in front of it.
modes_are() {
	[[ $(with "$STANDIN_SMI" --query-gpu=compute_mode --format=csv,noheader | paste -sd ' ') == "$*" ]]
}

# set_mode GPU OPTION: as an administrator does.
set_mode() {
	with "$STANDIN_SMI" -i "$1" -c "$2"
}

# recorded JSON: what is to be given back, as it is on disk.
recorded() {
	[[ $(jq -c .modes "$RECORD") == "$1" ]]
}

# What status says of the I-th instance's GPU.
shown() {
	status_is --arg mode "$1" ".instances[${2:-0}].devices[0].compute_mode == \$mode"
}

# Like a crash: nothing of it has time for anything.
crash() {
	kill -KILL "$SUPERVISOR"
	wait "$SUPERVISOR" || true
	SUPERVISOR=
}

# in_front BODY: a script before the stand-in; $* are the arguments, and `set` says whether they
# change a mode.
in_front() {
	[[ -e $BIN/smi ]] || mv "$BIN/nvidia-smi" "$BIN/smi"
	STANDIN_SMI=smi
	printf '%s\n' '#!/bin/bash' 'sets() { [[ $3 == -c ]]; }' "$1" "exec $BIN/smi \"\$@\"" >"$BIN/front"
	chmod 0755 "$BIN/front"
	mv "$BIN/front" "$BIN/nvidia-smi"
}

STANDIN_SMI=nvidia-smi

# ---------------------------------------------------------------- start and stop

@test "case 51: each GPU is exclusive while it is served, and has its own mode back after a stop" {
	gpus 3
	set_mode "$GPU1" PROHIBITED
	set_mode "$GPU2" EXCLUSIVE_PROCESS
	start_supervisor
	modes_are Exclusive_Process Exclusive_Process Exclusive_Process
	for i in 0 1 2; do
		shown Exclusive_Process "$i"
	done
	recorded "{\"$GPU0\":\"Default\",\"$GPU1\":\"Prohibited\"}"
	[[ $(stat -c %a "$RECORD") == 600 ]]
	run -0 ctl lease -q -- cuda-client init
	[[ $output == "mps server="* ]]
	stop_supervisor
	modes_are Default Prohibited Exclusive_Process
	recorded '{}'
	run ! log_says 'cannot|since'
}

@test "case 51: what it was is on disk before it is changed; one nvidia-smi at a time" {
	gpus 3
	in_front "mkdir '$WORK/busy' || echo overlap >>'$WORK/sets'
		sets \"\$@\" && echo \"\$2 \$4 \$(jq -c .modes '$RECORD')\" >>'$WORK/sets'
		'$BIN/smi' \"\$@\"; status=\$?; rmdir '$WORK/busy'; exit \$status"
	start_supervisor
	cat "$WORK/sets"
	[[ $(<"$WORK/sets") == "$GPU0 EXCLUSIVE_PROCESS {\"$GPU0\":\"Default\"}
$GPU1 EXCLUSIVE_PROCESS {\"$GPU0\":\"Default\",\"$GPU1\":\"Default\"}
$GPU2 EXCLUSIVE_PROCESS {\"$GPU0\":\"Default\",\"$GPU1\":\"Default\",\"$GPU2\":\"Default\"}" ]]
	stop_supervisor
	n_lines 6 "$WORK/sets" .
	says "$WORK/sets" "^$GPU1 DEFAULT .*$GPU1"
	run ! says "$WORK/sets" overlap
}

@test "an instance starts when its GPU's mode is set, and no other waits for that" {
	gpus 2
	set_mode "$GPU0" EXCLUSIVE_PROCESS
	in_front "sets \"\$@\" && while [[ ! -e '$WORK/go' ]]; do sleep 0.02; done"
	launch_supervisor
	eventually 5 state_is ready 0
	state_is stopped 1
	: >"$WORK/go"
	eventually 5 all_ready
}

@test "a GPU has its mode back when no daemon has it any more, its own or one over several" {
	gpus 3
	quick 'compute_mode="exclusive_process"' stop=1.0
	in_front "[[ \$4 == DEFAULT ]] && echo \"\$2:\$(grep -lsF mps-control \$(
		grep -lsz \"^CUDA_VISIBLE_DEVICES=.*\$2\" \$(grep -lsF '$RUN/' /proc/[0-9]*/environ) /dev/null | sed s/environ/cmdline/) /dev/null)\" >>'$WORK/users'"
	start_supervisor
	stream_lease both "{\"count\":2,\"devices\":[\"$GPU1\",\"$GPU2\"]}"
	eventually 5 said both 'last.parameters.what == "granted"'
	eventually 5 status_is '[.instances[] | select(.kind == "gang" and .state == "ready")] | length == 1'
	knobs "[$GPU1,$GPU2]" ignore_quit=1
	start=$(now_ms)
	stop_supervisor
	cat "$WORK/users"
	[[ $(<"$WORK/users") == "$GPU0:
$GPU1:
$GPU2:" ]]
	modes_are Default Default Default
	# Those of several were a while longer there than that of the first.
	(($(now_ms) - start >= 500))
}

@test "\"keep\" changes nothing, and writes nothing" {
	quick
	start_supervisor
	modes_are Default
	stop_supervisor
	[[ ! -e $RECORD ]]
}

@test "MIG instances: the mode is their GPU's, and is left alone" {
	printf '%s\n' "0, $GPU0, 00000000:00:06.0, NVIDIA H200, Default, Enabled, Enabled, 143771" \
		'mig, 1g.10gb, 0, MIG-11111111-0000-0000-0000-000000000000' \
		'mig, 1g.10gb, 1, MIG-22222222-0000-0000-0000-000000000000' >"$BIN/standin.gpus"
	start_supervisor
	modes_are Default
	status_is '.instances | length == 2 and all(.kind == "mig")'
	[[ ! -e $RECORD ]]
}

@test "several GPUs in one lease: exclusive before and after it" {
	gpus 2
	start_supervisor
	run -0 ctl lease -q --gpus 2 -- cuda-client init
	[[ $output == "mps server="* ]]
	modes_are Exclusive_Process Exclusive_Process
	hold_attached both --gpus 2
	kill_started
	stop_supervisor
	modes_are Default Default
}

# ---------------------------------------------------------------- crashes

# original OPTION SHOWN: it is there after a crash, a start and a stop.
original() {
	set_mode "$GPU0" "$1"
	start_supervisor
	crash
	modes_are Exclusive_Process
	recorded "{\"$GPU0\":\"$2\"}"
	start_supervisor
	recorded "{\"$GPU0\":\"$2\"}"
	stop_supervisor
	modes_are "$2"
	recorded '{}'
}

@test "case 51: kill -9, start and stop: the original mode is back (Default)" {
	original DEFAULT Default
}

@test "case 51: kill -9, start and stop: the original mode is back (Prohibited)" {
	original PROHIBITED Prohibited
}

@test "case 51: two crashes, then start and stop" {
	set_mode "$GPU0" PROHIBITED
	for _ in 1 2; do
		start_supervisor
		crash
	done
	start_supervisor
	recorded "{\"$GPU0\":\"Prohibited\"}"
	stop_supervisor
	modes_are Prohibited
}

@test "case 51: a crash between record and change leaves what was recorded" {
	in_front "sets \"\$@\" && { : >'$WORK/reached'; exec sleep 600; }"
	launch_supervisor
	eventually 5 test -e "$WORK/reached"
	crash
	eventually 5 none_of_ours
	modes_are Default
	recorded "{\"$GPU0\":\"Default\"}"
	in_front :
	start_supervisor
	stop_supervisor
	modes_are Default
}

@test "case 51: a crash, and from then on \"keep\": given back at the start" {
	set_mode "$GPU0" PROHIBITED
	start_supervisor
	crash
	quick
	launch_supervisor
	eventually 5 modes_are Prohibited
	eventually 5 all_ready
	eventually 2 recorded '{}'
	shown Prohibited
	stop_supervisor
	modes_are Prohibited
}

@test "case 51: a crash, and the GPU is not served any more: given back at the start" {
	gpus 2
	set_mode "$GPU1" PROHIBITED
	start_supervisor
	crash
	quick 'compute_mode="exclusive_process"' 'devices=["all", "!1"]'
	start_supervisor
	eventually 5 modes_are Exclusive_Process Prohibited
	eventually 2 recorded "{\"$GPU0\":\"Default\"}"
	stop_supervisor
	modes_are Default Prohibited
}

@test "case 51: a crash, and the GPU is gone: the record is kept until it comes back" {
	gpus 2
	set_mode "$GPU1" PROHIBITED
	start_supervisor
	crash
	sed -i "/$GPU1/d" "$BIN/standin.gpus"
	start_supervisor
	log_says "$GPU1.*Prohibited cannot be given back"
	stop_supervisor
	recorded "{\"$GPU1\":\"Prohibited\"}"
	echo "1, $GPU1, 00000000:00:07.0, NVIDIA H200, Exclusive_Process, Disabled, Enabled, 143771" >>"$BIN/standin.gpus"
	start_supervisor
	stop_supervisor
	modes_are Default Prohibited
	recorded '{}'
}

@test "after a crash somebody chose another mode: that one is given back" {
	start_supervisor
	crash
	set_mode "$GPU0" PROHIBITED
	start_supervisor
	modes_are Exclusive_Process
	recorded "{\"$GPU0\":\"Prohibited\"}"
	stop_supervisor
	modes_are Prohibited
}

@test "somebody changed the mode meanwhile: a stop leaves that" {
	start_supervisor
	set_mode "$GPU0" PROHIBITED
	stop_supervisor
	modes_are Prohibited
	recorded '{}'
	log_says 'Prohibited, which somebody has set since: Default is not given back'
}

# ---------------------------------------------------------------- drained

@test "case 51: a drained GPU has its mode back when drain returns; resume makes it exclusive again" {
	gpus 2
	start_supervisor
	hold job --gpu 0
	job=$PID
	background drain mpsctl drain 0
	drain=$PID
	eventually 5 state_is draining
	modes_are Exclusive_Process Exclusive_Process
	in_front 'sets "$@" && sleep 0.3'
	kill -KILL "$job"
	exits_with 0 "$drain"
	modes_are Default Exclusive_Process
	recorded "{\"$GPU1\":\"Default\"}"
	shown Default
	# What the administrator makes of it then is what there is to be given back.
	set_mode "$GPU0" PROHIBITED
	ctl resume 0
	eventually 5 all_ready
	modes_are Exclusive_Process Exclusive_Process
	recorded "{\"$GPU0\":\"Prohibited\",\"$GPU1\":\"Default\"}"
	stop_supervisor
	modes_are Prohibited Default
}

@test "drained under a lease of several GPUs: its mode is back when that is over and drain returns" {
	gpus 3
	start_supervisor
	hold several --gpu 0 --gpu 1 --gpus 2
	job=$PID
	background drain mpsctl drain 0
	drain=$PID
	eventually 5 status_is '.instances[0].held'
	modes_are Exclusive_Process Exclusive_Process Exclusive_Process
	in_front 'sets "$@" && sleep 0.3'
	kill -KILL "$job"
	exits_with 0 "$drain"
	modes_are Default Exclusive_Process Exclusive_Process
}

@test "resume: not started before its mode is set, and not held" {
	start_supervisor
	ctl drain 0
	in_front "sets \"\$@\" && while [[ ! -e '$WORK/go' ]]; do sleep 0.02; done"
	run -0 ctl resume 0
	status_is '.instances[0] | .state == "stopped" and (.held | not) and (.reason | test("compute mode"))'
	background job mpsctl lease -- cuda-client init
	job=$PID
	: >"$WORK/go"
	exits_with 0 "$job"
	modes_are Exclusive_Process
}

@test "resume, and drained again before the mode is set: it stays as it was" {
	start_supervisor
	ctl drain 0
	in_front "sets \"\$@\" && { : >'$WORK/reached'; while [[ ! -e '$WORK/go' ]]; do sleep 0.02; done; }"
	ctl resume 0
	eventually 5 test -e "$WORK/reached"
	ctl drain 0
	: >"$WORK/go"
	eventually 5 recorded '{}'
	modes_are Default
	status_is '.instances[0] | .state == "stopped" and .held'
}

@test "drained, and a crash: it is given back at the start, and the instance stays held" {
	start_supervisor
	in_front "sets \"\$@\" && [[ \$4 == DEFAULT ]] && { : >'$WORK/reached'; exec sleep 600; }"
	background drain mpsctl drain 0
	eventually 5 test -e "$WORK/reached"
	crash
	kill_started
	modes_are Exclusive_Process
	in_front :
	launch_supervisor
	eventually 5 modes_are Default
	eventually 2 recorded '{}'
	status_is '.instances[0] | .state == "stopped" and .held'
}

@test "held with a lease, and supervisor and daemon were killed: started for the lease, exclusive until it ends" {
	set_mode "$GPU0" PROHIBITED
	start_supervisor
	hold job
	job=$PID
	background drain mpsctl drain 0
	eventually 5 state_is draining
	daemon=$(control_pid)
	crash
	kill -KILL "$daemon"
	eventually 5 gone "$daemon"
	# It has to wait for its mode too.
	set_mode "$GPU0" PROHIBITED
	launch_supervisor
	eventually 5 state_is draining
	modes_are Exclusive_Process
	kill -KILL "$job"
	eventually 5 modes_are Prohibited
	eventually 2 recorded '{}'
	status_is '.instances[0] | .state == "stopped" and .held'
}

# ---------------------------------------------------------------- failures

@test "a mode that cannot be set: said with what to do, and the instance starts" {
	in_front 'sets "$@" && { echo "Unable to set the compute mode: Insufficient Permissions"; exit 4; }'
	start_supervisor
	log_says "$GPU0.*cannot make its compute mode Exclusive_Process: .*nvidia-smi exited with status 4: Unable to set the compute mode: Insufficient Permissions.*nvidia-smi -i $GPU0 -c EXCLUSIVE_PROCESS"
	shown Default
	run -0 ctl lease -q -- cuda-client init
	stop_supervisor
	recorded '{}'
	n_lines 1 "$LOG" 'cannot'
}

@test "a mode that cannot be recorded is not changed" {
	: >"$WORK/state"
	start_supervisor
	log_says "$GPU0.*cannot be kept in $RECORD: Not a directory"
	modes_are Default
}

@test "a mode that could not be given back is not changed" {
	sed -i 's/Default/[N\/A]/' "$BIN/standin.gpus"
	start_supervisor
	log_says "$GPU0.*\"\\[N/A\\]\", which could not be given back"
	modes_are '[N/A]'
	[[ ! -e $RECORD ]]
}

@test "a record that is torn: said, and no reason not to start" {
	mkdir "$WORK/state"
	echo '{"modes":{' >"$RECORD"
	start_supervisor
	log_says "cannot read $RECORD"
	recorded "{\"$GPU0\":\"Default\"}"
	stop_supervisor
	modes_are Default
}

@test "nvidia-smi hangs at a stop: that ends in time, and the next start and stop give it back" {
	set_mode "$GPU0" PROHIBITED
	quick 'compute_mode="exclusive_process"' stop=0.5
	start_supervisor
	knobs smi_hang=1
	start=$(now_ms)
	stop_supervisor TERM 10
	took=$(($(now_ms) - start))
	echo "took $took ms"
	((took >= 5000 && took < 7500))
	log_says "$GPU0.*cannot give back its compute mode Prohibited: there was no time left.*$RECORD.*nvidia-smi -i $GPU0 -c PROHIBITED"
	recorded "{\"$GPU0\":\"Prohibited\"}"
	knobs
	modes_are Exclusive_Process
	start_supervisor
	stop_supervisor
	modes_are Prohibited
}

@test "it cannot be given back: said once, and the stop is not held up" {
	start_supervisor
	in_front 'sets "$@" && { echo "GPU is lost"; exit 15; }'
	stop_supervisor
	n_lines 1 "$LOG" "cannot give back its compute mode Default: .*status 15: GPU is lost"
	recorded "{\"$GPU0\":\"Default\"}"
}

@test "\"keep\", and nobody may use the GPU: the log and status say so" {
	quick
	gpus 2
	set_mode "$GPU1" PROHIBITED
	start_supervisor
	n_lines 1 "$LOG" "$GPU1.*compute mode Prohibited.*nvidia-smi -i 1 -c DEFAULT"
	status_is '.instances | .[0].reason == null and (.[1].reason | test("compute mode Prohibited"))'
	run -0 ctl status "$GPU1"
	[[ $output == *"compute mode Prohibited"*"-c DEFAULT"* ]]
}

@test "a stop while modes are being set" {
	gpus 2
	in_front "sets \"\$@\" && [[ \$4 == EXCLUSIVE_PROCESS ]] && { : >'$WORK/reached'; sleep 0.3; }"
	launch_supervisor
	eventually 5 test -e "$WORK/reached"
	stop_supervisor
	modes_are Default Default
	recorded '{}'
}
