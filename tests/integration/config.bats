#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# The command line and the configuration of mps-supervisord, and what keeps it from starting: one
# message with the thing, the reason and the remedy, exit status 1, and nothing left behind.
#
# shellcheck disable=SC2154 # output and stderr are bats'
# shellcheck disable=SC2016 # for another shell
# shellcheck disable=SC2030,SC2031 # each test is a subshell of its own, and meant to be

load lib

setup() {
	prepare
}

teardown() {
	clean_up
}

supervisord() {
	with timeout 20 mps-supervisord "$@"
}

# rejects LINE REGEX: the file's third line is an error, said with file, line and reason; nothing
# on standard output, one line on standard error.
rejects() {
	configure "$1"
	run -1 --separate-stderr supervisord -n -c "$CONF"
	echo "for $1: $stderr"
	[[ -z $output ]]
	[[ $stderr =~ ^$CONF:3:\ .*($2) ]]
	[[ $stderr != *$'\n'* ]]
}

# refuses_to_start REGEX [SECONDS]: exit 1 with a message, nothing spawned, nothing left.
refuses_to_start() {
	knobs "dump=$WORK/dump" "${KNOBS[@]}"
	run -1 supervisord -c "$CONF"
	echo "$output"
	[[ $output =~ $1 ]]
	[[ ! -e $WORK/dump ]]
	nothing_left
}

@test "-n: every file of a good configuration is OK" {
	mkdir "$WORK/etc/conf.d"
	echo 'multi_user = true;' >"$WORK/etc/conf.d/10-a.conf"
	run -0 --separate-stderr supervisord -n -c "$CONF"
	[[ ${lines[0]} == "$CONF: OK" ]]
	[[ ${lines[1]} == "$WORK/etc/conf.d/10-a.conf: OK" ]]
	[[ -z $stderr ]]
	run -0 supervisord --check-config -c "$CONF"
	[[ ! -e $RUN && ! -e $WORK/state ]]
}

@test "-n: the configuration that is shipped, and every option with its default" {
	run -0 supervisord -n -c "$BATS_TEST_DIRNAME/../../conf/mps-supervisor.conf"
	cat >"$CONF" <<-'END'
		runtime_directory = "/run/mps-supervisor";
		state_directory   = "/var/lib/mps-supervisor";
		mps_control       = "nvidia-cuda-mps-control";   # found in PATH, or absolute
		nvidia_smi        = "nvidia-smi";
		devices           = ["all"];                     # selectors; "!SEL" leaves one out
		multi_user        = false;                       # one server for all users (-multiuser-server)
		compute_mode      = "keep";                      # or "exclusive_process": set, and the previous one given back
		placement         = "spread";                    # or "pack"
		max_clients       = 48;                          # MPS clients at a time for each device
		oversubscribe_threads = true;                    # false: the shares of a device's leases never exceed 100
		prestart          = true;                        # start the server at grant
		idle_server_stop  = 300.0;                       # seconds without a lease; 0 keeps it
		access   = { lease_groups = []; admin_groups = []; max_leases_per_user = 0; };
		timeouts = { start = 10.0; query = 2.0; stop = 20.0; fault_grace = 30.0; reclaim = 30.0; straggler_grace = 60.0; wait = 0.0; };
		health   = { interval = 10.0; idle_interval = 60.0; misses = 3; wedge_grace = 300.0; };   # with leases, without; grace for clients of a daemon that does not answer
		restart  = { backoff_min = 0.5; backoff_max = 30.0; limit = 5; window = 60.0; failed_retry = 600.0; };
		gpus     = ( { match = "GPU-1b52"; max_clients = 16; multi_user = true; } );   # exceptions for single devices
	END
	run -0 supervisord -n -c "$CONF"
	# All of them but gpus are the defaults.
	run -0 supervisord --print-config -c "$CONF"
	shown=$(sed '/^gpus/,$d' <<<"$output")
	: >"$CONF"
	run -0 supervisord --print-config -c "$CONF"
	[[ $(sed '/^gpus/,$d' <<<"$output") == "$shown" ]]
}

@test "-n: unknown keys" {
	rejects 'max_cleints = 4;' 'max_cleints'
	rejects 'timeouts = { strat = 1.0; };' 'strat'
	rejects 'gpus = ( { match = "GPU-1"; color = "red"; } );' 'color'
}

@test "-n: wrong types" {
	rejects 'max_clients = "4";' 'max_clients.*whole number'
	rejects 'max_clients = 4.5;' 'max_clients.*whole number'
	rejects 'max_clients = [ 4 ];' 'max_clients'
	rejects 'multi_user = 1;' 'multi_user.*true or false'
	rejects 'mps_control = true;' 'mps_control.*string'
	rejects 'devices = "all";' 'devices.*strings'
	rejects 'devices = [ 0 ];' 'devices.*string'
	rejects 'timeouts = 3;' 'timeouts.*group'
	rejects 'timeouts = { start = "soon"; };' 'timeouts.start.*seconds'
	rejects 'gpus = { match = "GPU-1"; };' 'gpus.*list'
	rejects 'access = { lease_groups = "users"; };' 'lease_groups.*strings'
}

@test "-n: values out of range" {
	rejects 'max_clients = 0;' 'max_clients.*1 to .*0'
	rejects 'max_clients = -1;' 'max_clients'
	rejects 'max_clients = 5000000000;' '5000000000'
	rejects 'placement = "random";' 'placement.*spread.*pack.*random'
	rejects 'compute_mode = "default";' 'compute_mode.*keep.*exclusive_process'
	rejects 'timeouts = { start = -1.0; };' 'timeouts.start'
	rejects 'health = { misses = 0; };' 'health.misses'
	rejects 'restart = { limit = 0; };' 'restart.limit'
	rejects 'gpus = ( { max_clients = 2; } );' 'match'
	rejects 'gpus = ( { match = "GPU-1"; max_clients = 0; } );' 'max_clients'
}

@test "-n: what is no configuration at all" {
	rejects 'max_clients = ;' '.'
	rejects 'max_clients 4;' '.'
	printf 'multi_user = true;\0' >"$CONF"
	run -1 supervisord -n -c "$CONF"
	[[ $output == "$CONF"* ]]
	run -1 supervisord -n -c "$WORK/etc/none.conf"
	[[ $output == "$WORK/etc/none.conf: "*"No such file"* ]]
	run -1 supervisord -n -c "$WORK/etc"
	[[ $output == "$WORK/etc: "*directory* ]]
}

@test "-n: MPS's default directories are refused" {
	local directory
	for directory in /tmp/nvidia-mps /run/nvidia-mps /tmp/nvidia-mps/below /var/run/nvidia-mps; do
		echo "runtime_directory = \"$directory\";" >"$CONF"
		run -1 supervisord -n -c "$CONF"
		echo "$output"
		[[ $output =~ ^$CONF:1:.*$directory.*default ]]
		run -1 supervisord -c "$CONF"
		[[ $output =~ ^$CONF:1:.*$directory.*default ]]
		echo "state_directory = \"$directory\";" >"$CONF"
		run -1 supervisord -n -c "$CONF"
		[[ $output =~ ^$CONF:1:.*$directory ]]
	done
	echo 'runtime_directory = "/tmp/nvidia-mps2";' >"$CONF"
	run -0 supervisord -n -c "$CONF"
}

@test "a directory that is too long: path, length and limit are said, nothing is spawned" {
	local long
	long=$(printf '/tmp/%0115d' 0)
	((${#long} == 120))
	knobs "dump=$WORK/dump"
	echo "runtime_directory = \"$long\";" >"$CONF"
	for option in -n -v; do
		run -1 supervisord "$option" -c "$CONF"
		echo "$output"
		[[ $output =~ ^$CONF:1:.*$long.*120.*88|^$CONF:1:.*$long.*120.*87 ]]
	done
	[[ ! -e $WORK/dump && ! -e $long ]]
	none_of_ours
}

@test "the longest runtime directory that is accepted gives leases that work" {
	local limit
	configure
	for ((limit = 90; limit > ${#WORK}; limit--)); do
		RUN=$WORK/$(printf "%0$((limit - ${#WORK} - 1))d" 0)
		configure
		if supervisord -n -c "$CONF" >/dev/null 2>&1; then break; fi
	done
	echo "longest: $limit"
	((limit >= 60))
	SOCKET=$RUN/socket
	ENVIRONMENT+=("MPS_SUPERVISOR_SOCKET=$SOCKET")
	start_supervisor
	run -0 ctl lease -- cuda-client init
	[[ $output == "mps server="* ]]
	# A pipe directory never exceeds 88 bytes.
	run -0 ctl lease -- sh -c 'echo "$CUDA_MPS_PIPE_DIRECTORY"'
	((${#output} <= 88))
	(($(find "$RUN/instance" -mindepth 1 -maxdepth 1 -printf '%p\n' | awk '{ print length }') <= 88))
}

@test "--print-config: parses back, and prints the same again" {
	configure 'max_clients = 7;' 'devices = [ "0", "!GPU-\"x\\y" ];' 'multi_user = true;' 'placement = "pack";' \
		'timeouts = { start = 1.25; stop = 3; };' 'access = { lease_groups = [ "users", "adm" ]; };' \
		'gpus = ( { match = "GPU-1"; max_clients = 3; }, { match = "1"; multi_user = false; } );'
	supervisord --print-config -c "$CONF" >"$WORK/first"
	supervisord -n -c "$WORK/first"
	supervisord --print-config -c "$WORK/first" >"$WORK/second"
	diff "$WORK/first" "$WORK/second"
	says "$WORK/first" '^max_clients = 7;$'
	says "$WORK/first" 'start = 1\.25'
	says "$WORK/first" '"users", "adm"'
	says "$WORK/first" "^runtime_directory = \"$RUN\";$"
	# Every option is in it.
	local option
	for option in runtime_directory state_directory mps_control nvidia_smi devices multi_user compute_mode \
		placement max_clients oversubscribe_threads prestart idle_server_stop lease_groups admin_groups \
		max_leases_per_user start query stop fault_grace reclaim straggler_grace wait interval \
		idle_interval misses wedge_grace backoff_min backoff_max limit window failed_retry gpus; do
		says "$WORK/first" "^[[:space:]]*$option = "
	done
}

@test "conf.d: later names win, other files are ignored, errors name their file" {
	local d=$WORK/etc/conf.d
	mkdir "$d"
	configure 'max_clients = 1;' 'placement = "pack";' 'timeouts = { start = 1.0; query = 1.0; };'
	printf '\nmax_clients = 3;\n' >"$d/20-b.conf"
	printf 'max_clients = 2;\ntimeouts = { start = 2.0; };\n' >"$d/10-a.conf"
	echo 'max_clients = 9;' >"$d/30-c.conf.bak"
	run -0 supervisord --print-config -c "$CONF"
	[[ $output == *$'\nmax_clients = 3;'* && $output == *$'\nplacement = "pack";'* ]]
	[[ $output =~ start\ =\ 2\.0 && $output =~ query\ =\ 1\.0 ]]
	printf '\n\nmax_clients = 0;\n' >"$d/20-b.conf"
	run -1 supervisord -n -c "$CONF"
	[[ $output == "$d/20-b.conf:3: "* ]]
}

@test "usage: exit status 2 for what it does not know" {
	run -2 --separate-stderr supervisord --frobnicate
	[[ -z $output && $stderr == *frobnicate*--help* ]]
	run -2 supervisord -c
	run -2 --separate-stderr supervisord -c "$CONF" extra
	[[ $stderr == *extra* ]]
	run -0 --separate-stderr supervisord --help
	[[ $output == *"-c"*"-n"*"-v"*--print-config*--version*--help* && -z $stderr ]]
	run -0 supervisord --version
	[[ $output =~ [0-9]+\.[0-9]+\.[0-9]+ ]]
}

@test "no start: the configuration is wrong" {
	configure 'max_clients = 0;'
	KNOBS=()
	refuses_to_start "^$CONF:3: .*max_clients"
	[[ ! -e $RUN ]]
}

@test "no start: a program is missing" {
	KNOBS=()
	configure 'mps_control = "no-such-mps-control";'
	refuses_to_start 'mps_control.*no-such-mps-control.*PATH'
	configure "mps_control = \"$WORK/none\";"
	refuses_to_start "mps_control.*$WORK/none.*No such file"
	configure "mps_control = \"$CONF\";"
	refuses_to_start "mps_control.*$CONF.*(ermission|executable)"
	configure 'nvidia_smi = "no-such-smi";'
	refuses_to_start 'nvidia_smi.*no-such-smi.*PATH'
}

@test "no start: nvidia-smi fails" {
	KNOBS=(smi_exit=9 'smi_error=NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.')
	refuses_to_start 'nvidia-smi.*status 9.*could not communicate with the NVIDIA driver'
}

@test "no start: nvidia-smi says something odd" {
	KNOBS=('smi_garbage=Segmentation fault?')
	refuses_to_start 'nvidia-smi.*Segmentation fault'
}

@test "no start: nvidia-smi hangs" {
	configure 'timeouts = { start = 0.2; };'
	KNOBS=(smi_hang=1)
	refuses_to_start 'nvidia-smi.*did not answer'
}

@test "no start: no devices" {
	KNOBS=()
	gpus 0
	refuses_to_start 'no device.*(driver|nvidia-smi -L)'
	gpus 1
	configure 'devices = [ "all", "!0" ];'
	refuses_to_start 'no device.*devices'
	configure 'devices = [ "GPU-ffff" ];'
	refuses_to_start 'GPU-ffff.*nvidia-smi'
}

@test "no start: the runtime directory cannot be made" {
	KNOBS=()
	configure
	RUN=$WORK/none/run
	configure
	refuses_to_start "$RUN.*No such file"
	RUN=$CONF/run
	configure
	refuses_to_start "$RUN.*ot a directory"
}

@test "devices: selectors choose" {
	gpus 2
	configure 'devices = [ "all", "!GPU-aaaa" ];'
	start_supervisor
	[[ $(status_json '[.instances[].name] | join(" ")') == "$GPU1" ]]
	stop_supervisor
	configure 'devices = [ "00000000:00:06.0" ];'
	start_supervisor
	[[ $(status_json '[.instances[].name] | join(" ")') == "$GPU0" ]]
}

@test "gpus: exceptions for single devices" {
	gpus 2
	configure 'max_clients = 5;' 'gpus = ( { match = "GPU-bbbb"; max_clients = 2; multi_user = true; } );'
	start_supervisor
	[[ $(status_json -c '[.instances[] | [.max_clients, .multi_user]]') == '[[5,false],[2,true]]' ]]
	# The daemon was started so.
	[[ $(tr '\0' ' ' <"/proc/$(control_pid 0)/cmdline") != *multiuser* ]]
	[[ $(tr '\0' ' ' <"/proc/$(control_pid 1)/cmdline") == *" -multiuser-server "* ]]
}

@test "SIGTERM while nvidia-smi does not answer: ended at once, nothing left" {
	knobs smi_hang=1
	launch_supervisor
	eventually 5 test -e "$RUN/lock"
	stop_supervisor TERM 2
}
