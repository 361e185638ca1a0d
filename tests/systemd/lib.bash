# SPDX-License-Identifier: MIT
#
# What the tests below a real systemd share. They run in a sandbox (see there), with the programs and
# units installed as on a node; stand-ins play NVIDIA's programs and its driver. Most functions are
# those of the integration tests.
#
# shellcheck shell=bash
# shellcheck disable=SC2034 # variables are for the tests, and for the integration tests' functions
# shellcheck disable=SC2016 # those are of jq
# shellcheck disable=SC2120 # arguments come from the tests

load ../integration/lib

UNIT=mps-supervisor.service
SOCKET_UNIT=mps-supervisor.socket
DROP_INS=/run/systemd/system/$UNIT.d

# What every test begins with: the driver is loaded, one GPU, a quick configuration, nothing runs.
prepare_node() {
	WORK=$(mktemp -d /tmp/mps-it.XXXXXX)
	chmod 0755 "$WORK"
	BIN=/usr/bin RUN=/run/mps-supervisor SOCKET=$RUN/socket
	CONF=/etc/mps-supervisor/mps-supervisor.conf LOG=$WORK/log
	REAL_DIR=$MPS_REAL_DIR
	ENVIRONMENT=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "MPS_TEST=$WORK/")
	STARTED=()
	SINCE=@$EPOCHREALTIME
	driver_loaded
	gpus 1
	configure_node
}

# With a limit: a socket that systemd serves takes connections when nobody answers them.
ctl() {
	with timeout 20 mpsctl "$@"
}

# configure_node LINE...: the default directories and short times; START and STOP are two of them.
configure_node() {
	printf '%s\n' \
		"timeouts = { start = ${START:-5.0}; query = 0.5; stop = ${STOP:-5.0}; };" \
		'health = { interval = 0.2; idle_interval = 0.2; misses = 2; };' \
		'restart = { backoff_min = 0.05; };' "$@" >"$CONF"
}

clean_node() {
	if [[ -z ${BATS_TEST_COMPLETED:-} ]]; then
		echo "--- the journal:"
		journal --output=short-precise | tail -n 60
		systemctl status --no-pager --lines=0 "$UNIT" "$SOCKET_UNIT" || true
	fi
	kill_started
	systemctl kill --signal=KILL "$UNIT" 2>/dev/null || true
	systemctl stop "$SOCKET_UNIT" "$UNIT" 2>/dev/null || true
	systemctl kill --signal=KILL "$UNIT" 2>/dev/null || true
	systemctl reset-failed
	[[ ! -e /usr/sbin/.kept ]] || mv /usr/sbin/.kept /usr/sbin/mps-supervisord
	rm -rf "$DROP_INS" "$RUN" /var/lib/mps-supervisor "$BIN/standin.knobs" "$WORK"
	systemctl daemon-reload
}

# ---------------------------------------------------------------- the node

driver_loaded() {
	mountpoint -q /proc/driver || mount -t tmpfs driver /proc/driver
	mkdir -p /proc/driver/nvidia
	echo "NVRM version: a stand-in" >/proc/driver/nvidia/version
}

driver_missing() {
	rm -rf /proc/driver/nvidia
}

# drop_in LINE...: more for the [Service] section.
drop_in() {
	mkdir -p "$DROP_INS"
	printf '%s\n' '[Service]' "$@" >"$DROP_INS/test.conf"
	systemctl daemon-reload
}

# ---------------------------------------------------------------- the unit

start_unit() {
	systemctl start "$UNIT"
	eventually 15 all_ready
}

property() {
	systemctl show --property="$1" --value "${2:-$UNIT}"
}

property_is() {
	[[ $(property "$1" "${3:-}") == "$2" ]]
}

property_says() {
	property "$1" | grep -qE -e "$2"
}

# Processes of the unit: the supervisor, control daemons, servers.
unit_pids() {
	local group
	group=$(property ControlGroup)
	[[ -z $group || ! -e /sys/fs/cgroup$group ]] || cat "/sys/fs/cgroup$group/cgroup.procs"
}

no_unit_pids() {
	[[ -z $(unit_pids) ]]
}

# ready_anew PID: another supervisor than PID serves, and the instance is ready.
ready_anew() {
	local pid
	pid=$(property MainPID)
	[[ $pid != 0 && $pid != "$1" ]] && property_is SubState running && all_ready
}

# journal [OPTION...]: of the unit, since the test began.
journal() {
	journalctl --quiet --no-pager --output=cat --since="$SINCE" --unit="$UNIT" "$@"
}

journal_says() {
	local words=$1
	shift
	journal "$@" | grep -qE -e "$words"
}

# ---------------------------------------------------------------- jobs over a restart

# remember NAME: what must be the same afterwards.
remember() {
	JOB=$PID
	MAIN=$(property MainPID)
	CONTROL=$(control_pid) SERVER=$(server_pid) GENERATION=$(generation)
	LEASE=$(lease_of "$1" .id) PIPE_DIRECTORY=$(lease_of "$1" .pipe_directory)
}

# undisturbed NAME: another supervisor has the same daemons; the job runs on, attached, and has its lease.
undisturbed() {
	[[ $(control_pid) == "$CONTROL" ]]
	kill -0 "$CONTROL"
	eventually 5 server_is "$SERVER"
	[[ $(generation) == "$GENERATION" ]]
	run ! gone "$JOB"
	run ! says "$WORK/$1.out" '^error'
	[[ $(lease_of "$1" .id) == "$LEASE" && $(lease_of "$1" .pipe_directory) == "$PIPE_DIRECTORY" ]]
	[[ -S $PIPE_DIRECTORY/control ]]
	eventually 5 attached "$1" "$JOB"
}

server_is() {
	[[ $(server_pid) == "$1" ]]
}

# lease_of NAME FILTER: of the lease with that name.
lease_of() {
	leases_json --arg name "$1" ".leases[] | select(.name == \$name) | $2"
}

# attached NAME PID: MPS has it as a client, and it was matched to that lease.
attached() {
	[[ $(lease_of "$1" ".attached | index($2) != null") == true ]]
}
