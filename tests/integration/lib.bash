# SPDX-License-Identifier: MIT
#
# What the integration tests of mps-supervisord and mpsctl share: a private directory with programs,
# GPUs and configuration, a supervisor in it, and proof afterwards that nothing of it is left.
#
#   MPS_BUILD      build directory with mps-supervisord, mpsctl, rawsock
#   STANDIN_DIR    directory of the stand-ins (MPS_BUILD/standin)
#   MPS_REAL_DIR   directory of NVIDIA's real 535 programs
#   LOG_LINES      how much of the supervisor's log a failed test shows (60)
#
# shellcheck shell=bash
# shellcheck disable=SC2034 # variables are for the tests
# shellcheck disable=SC2016 # those are of jq
# shellcheck disable=SC2119,SC2120 # arguments come from the tests

bats_require_minimum_version 1.5.0

# shellcheck source=/dev/null
. "${BASH_SOURCE[0]%/*}/processes.bash"

GPU0=GPU-aaaaaaaa-0000-0000-0000-000000000000
GPU1=GPU-bbbbbbbb-1111-1111-1111-111111111111
GPU2=GPU-cccccccc-2222-2222-2222-222222222222
GPU3=GPU-dddddddd-3333-3333-3333-333333333333

# Behind a uid in what mpsctl says: its user, if there is one.
NAMED='( \([^)]*\))?'

# What every test begins with: WORK, and in it bin/ with N (1, at most 4) stand-in GPUs.
prepare() {
	local root=$BATS_TEST_DIRNAME/../..
	BUILD=$(realpath -m "${MPS_BUILD:-$root/build}")
	STANDIN=$(realpath -m "${STANDIN_DIR:-$BUILD/standin}")
	REAL_DIR=$(realpath -m "${MPS_REAL_DIR:-$root/build/nvidia/535}")
	INTERFACE=$root/common/io.mps-supervisor.varlink
	# Short: what lies below may have 88 bytes.
	WORK=$(mktemp -d /tmp/mps-it.XXXXXX)
	chmod 0755 "$WORK"
	BIN=$WORK/bin RUN=$WORK/run SOCKET=$WORK/run/socket CONF=$WORK/etc/mps.conf LOG=$WORK/log
	mkdir "$BIN" "$WORK/etc"
	: >"$LOG"
	cp "$BUILD"/{mps-supervisord,mpsctl,rawsock} "$BIN/"
	cp "$STANDIN"/{nvidia-smi,nvidia-cuda-mps-control,nvidia-cuda-mps-server,cuda-client} "$BIN/"
	ENVIRONMENT=(env -i PATH="$BIN:/usr/sbin:/usr/bin:/sbin:/bin" MPS_SUPERVISOR_SOCKET="$SOCKET")
	STARTED=() EXTRA=()
	SUPERVISOR=
	REAL='' PROBE='cuda-client init' ANSWER='^mps server='
	gpus "${1:-1}"
	configure
}

# The end of every test: what it started is killed; a supervisor that still runs is stopped in order
# and must leave nothing.
clean_up() {
	local rc=0
	[[ -n ${WORK:-} ]] || return 0
	kill_started
	if [[ -n $SUPERVISOR ]]; then
		stop_supervisor || rc=$?
	fi
	if [[ -z ${BATS_TEST_COMPLETED:-} ]] || ((rc != 0)); then
		echo "--- the supervisor said:"
		tail -n "${LOG_LINES:-60}" "$LOG"
	fi
	kill_ours
	rm -rf "$WORK"
	return "$rc"
}

gpus() {
	local i
	local -a uuids=("$GPU0" "$GPU1" "$GPU2" "$GPU3")
	: >"$BIN/standin.gpus"
	for ((i = 0; i < $1; i++)); do
		echo "$i, ${uuids[i]}, 00000000:00:0$((6 + i)).0, NVIDIA H200, Default, Disabled, Enabled, 143771" \
			>>"$BIN/standin.gpus"
	done
}

# configure LINE…: the configuration file, with directories below WORK.
configure() {
	printf '%s\n' "runtime_directory = \"$RUN\";" "state_directory = \"$WORK/state\";" "$@" >"$CONF"
}

# quick [NAME=VALUE…]: a configuration with short times; other names are options of their own.
quick() {
	local setting name
	local -a options=() timeouts=()
	local -A v=([start]=5.0 [query]=0.5 [stop]=2.0 [fault_grace]=30.0 [interval]=0.2 [idle_interval]=0.2
		[misses]=2 [wedge_grace]=60.0 [backoff_min]=0.05 [limit]=5 [window]=60.0 [failed_retry]=600.0 [prestart]=true)
	[[ -z ${REAL:-} ]] || v[prestart]=false
	for setting; do
		name=${setting%%=*}
		case $name in
		attach_grace | straggler_grace) timeouts+=("$name = ${setting#*=};") ;;
		*) [[ -n ${v[$name]:-} ]] || options+=("$name = ${setting#*=};") ;;
		esac
		v[$name]=${setting#*=}
	done
	configure "prestart = ${v[prestart]};" \
		"timeouts = { start = ${v[start]}; query = ${v[query]}; stop = ${v[stop]}; fault_grace = ${v[fault_grace]}; ${timeouts[*]} };" \
		"health = { interval = ${v[interval]}; idle_interval = ${v[idle_interval]}; misses = ${v[misses]}; wedge_grace = ${v[wedge_grace]}; };" \
		"restart = { backoff_min = ${v[backoff_min]}; limit = ${v[limit]}; window = ${v[window]}; failed_retry = ${v[failed_retry]}; };" \
		"${options[@]}"
}

# real [NAME=VALUE…]: from here on NVIDIA's own daemon.
real() {
	[[ -x $REAL_DIR/nvidia-cuda-mps-control ]] ||
		skip "no real control daemon in $REAL_DIR (tools/fetch-nvidia-mps)"
	cp "$REAL_DIR"/nvidia-cuda-mps-{control,server} "$BIN/"
	REAL=yes
	PROBE='echo get_default_active_thread_percentage | nvidia-cuda-mps-control'
	ANSWER='^100\.0$'
	quick "$@"
}

# jq 1.6 takes no input at all for success, -e or not.
jq() {
	local text rc=0
	text=$(command jq "$@") || rc=$?
	[[ -n $text ]] || return $((rc ? rc : 4))
	printf '%s\n' "$text"
	return "$rc"
}

# ---------------------------------------------------------------- programs

# With the tests' environment and PATH, as the user AS.
with() {
	local -a as=()
	[[ -z ${AS:-} ]] || as=(setpriv --reuid "$AS" --regid "$AS" --clear-groups)
	"${ENVIRONMENT[@]}" "${as[@]}" "$@"
}

ctl() {
	with mpsctl "$@"
}

# background NAME COMMAND…: PID is the command itself; it writes WORK/NAME.out and NAME.err.
background() {
	local name=$1
	local -a as=()
	shift
	[[ -z ${AS:-} ]] || as=(setpriv --reuid "$AS" --regid "$AS" --clear-groups)
	: >"$WORK/$name.out"
	: >"$WORK/$name.err"
	"${ENVIRONMENT[@]}" "${as[@]}" "$@" >"$WORK/$name.out" 2>"$WORK/$name.err" </dev/null 3>&- &
	PID=$!
	STARTED+=("$PID")
}

# Every process with a path below WORK in its environment, but zombies.
ours() {
	{ grep -lsF -e "$WORK/" /proc/[0-9]*/environ || true; } | sed -E 's,/proc/([0-9]+)/.*,\1,'
}

# n_ours N: supervisor, control daemons, servers, jobs, their keepers, commands on their way.
n_ours() {
	[[ $(ours | wc -l) == "$1" ]]
}

none_of_ours() {
	[[ -z $(ours) ]]
}

kill_ours() {
	local pid
	for pid in $(ours); do
		kill -KILL "$pid" 2>/dev/null || true
	done
	eventually 5 none_of_ours
}

need_root() {
	((EUID == 0)) || skip "needs root, to be several users"
}

# ---------------------------------------------------------------- the supervisor

# launch_supervisor [OPTION…]: SUPERVISOR is its pid; does not wait. EXTRA holds more variables for it.
launch_supervisor() {
	"${ENVIRONMENT[@]}" "${EXTRA[@]}" mps-supervisord -c "$CONF" "$@" >>"$LOG" 2>&1 </dev/null 3>&- &
	SUPERVISOR=$!
}

start_supervisor() {
	launch_supervisor "$@"
	eventually 15 all_ready
}

status_json() {
	ctl status --json 2>/dev/null | jq -er "$@"
}

# A filter that must say true: jq 1.6 is content with no input at all.
status_is() {
	[[ $(status_json "$@") == true ]]
}

counter() {
	status_json ".counters.$1"
}

all_ready() {
	status_json '.instances | length > 0 and all(.state == "ready")' >/dev/null
}

# state_is STATE [INDEX]
state_is() {
	[[ $(status_json ".instances[${2:-0}].state") == "$1" ]]
}

control_pid() {
	status_json ".instances[${1:-0}].control_pid"
}

server_pid() {
	status_json ".instances[${1:-0}].servers[0].pid"
}

has_server() {
	server_pid "$@" >/dev/null
}

# n_clients N [INDEX]: as MPS reports them.
n_clients() {
	[[ $(status_json ".instances[${2:-0}].clients | length") == "$1" ]]
}

generation() {
	status_json ".instances[${1:-0}].generation"
}

generation_is() {
	[[ $(generation "${2:-0}") == "$1" ]]
}

# restarted_after GENERATION
restarted_after() {
	[[ $(generation) -gt $1 ]] && all_ready
}

# kill_control MAX_MS: kill -9; the next one is ready in time.
kill_control() {
	local old start ready
	old=$(generation)
	start=${EPOCHREALTIME/./}
	kill -KILL "$(control_pid)"
	eventually 10 restarted_after "$old"
	ready=$(status_json '.instances[0].since_usec')
	echo "# ready again $(((ready - start) / 1000)) ms after kill -9 of the control daemon" >&3
	((ready - start < $1 * 1000))
}

# The supervisor's memory, in KiB.
rss() {
	awk '/^VmRSS:/ { print $2 }' "/proc/$SUPERVISOR/status"
}

# Under AddressSanitizer memory that was freed is kept for a while, and says nothing of leaks; but
# then LeakSanitizer does.
memory_is_real() {
	! grep -q __asan_init "$BIN/mps-supervisord"
}

# The lines of the first control daemon in the knob's dump, without other processes'.
control_dump() {
	awk '/^== / { show = $2 == "control" && !seen++; next } show' "$WORK/dump"
}

dumped() {
	[[ -s $WORK/dump ]] && control_dump | grep -q '^fd 2 '
}

log_says() {
	says "$LOG" "$1"
}

descriptors() {
	local -a open=("/proc/${1:-$SUPERVISOR}"/fd/*)
	echo "${#open[@]}"
}

n_descriptors() {
	[[ $(descriptors) == "$1" ]]
}

# Directories of instances or leases, FIFOs, socket: what a supervisor makes.
files_left() {
	[[ ! -e $RUN ]] || find "$RUN" -mindepth 1 -not -path "$RUN/lock" \
		-not -path "$RUN/instance" -not -path "$RUN/lease" -not -path "$RUN/state"
}

lease_directories() {
	find "$RUN/lease" -mindepth 1 -maxdepth 1
}

# As a crash would end it: what it had goes on.
kill_supervisor() {
	kill -KILL "$SUPERVISOR"
	wait "$SUPERVISOR" 2>/dev/null || true
	SUPERVISOR=
}

# stop_supervisor [SIGNAL [SECONDS]]: exit 0 in time, and nothing left.
stop_supervisor() {
	local pid=$SUPERVISOR rc=0
	SUPERVISOR=
	kill "-${1:-TERM}" "$pid"
	if ! eventually "${2:-10}" gone "$pid"; then
		kill -KILL "$pid"
		return 1
	fi
	wait "$pid" || rc=$?
	if ((rc != 0)); then
		echo "mps-supervisord ended with $rc" >&2
		return 1
	fi
	nothing_left
}

nothing_left() {
	# A job may just be ending with its lease; the daemons are gone when the supervisor is.
	if ! eventually 2 none_of_ours; then
		local pid
		for pid in $(ours); do
			echo "left: $pid $(tr '\0' ' ' <"/proc/$pid/cmdline")" >&2
		done
		return 1
	fi
	if [[ -n $(files_left) ]]; then
		echo "left: $(files_left)" >&2
		return 1
	fi
}

# ---------------------------------------------------------------- leases

# leases_json FILTER…: on what `mpsctl leases --json` says.
leases_json() {
	ctl leases --json | jq -er "$@"
}

leases_are() {
	[[ $(leases_json "$@") == true ]]
}

# n_leases N [STATE]
n_leases() {
	[[ $(leases_json "[.leases[] | select(.state == \"${2:-granted}\")] | length") == "$1" ]]
}

no_leases() {
	[[ $(leases_json '.leases | length') == 0 && -z $(lease_directories) ]]
}

# lease_id NAME: of the lease that was taken with --name.
lease_id() {
	leases_json --arg name "$1" '.leases[] | select(.name == $name) | .id'
}

directory_of() {
	leases_json --arg name "$1" '.leases[] | select(.name == $name) | .pipe_directory'
}

# hold NAME [OPTION…]: a job that holds a lease of that name until it is killed; PID is its pid.
hold() {
	local name=$1
	shift
	background "$name" mpsctl lease --name "$name" "$@" -- sleep 600
	eventually 10 granted "$name"
}

granted() {
	[[ $(leases_json --arg name "$1" '.leases[] | select(.name == $name) | .state' 2>/dev/null) == granted ]]
}

queued() {
	[[ $(leases_json --arg name "$1" '.leases[] | select(.name == $name) | .state' 2>/dev/null) == queued ]]
}

# No lease and no request has that name any more.
ended() {
	leases_are --arg name "$1" 'all(.leases[]; .name != $name)'
}

# attached_is NAME '[PID,…]': the clients of that lease.
attached_is() {
	[[ $(leases_json -c --arg name "$1" '.leases[] | select(.name == $name) | .attached') == "$2" ]]
}

# hold_attached NAME [OPTION…]: its job is an MPS client.
hold_attached() {
	local name=$1
	shift
	background "$name" mpsctl lease --name "$name" "$@" -- cuda-client hold 600
	eventually 10 says "$WORK/$name.out" '^mps server='
}

# through DIRECTORY COMMAND…: with a lease's directory, on DEVICE (GPU0).
through() {
	with env CUDA_MPS_PIPE_DIRECTORY="$1" CUDA_VISIBLE_DEVICES="${DEVICE:-$GPU0}" "${@:2}"
}

# Through that directory the daemon of GPU 0 is there.
works_through() {
	[[ $(through "$1" timeout 5 sh -c "$PROBE" 2>/dev/null) =~ $ANSWER ]]
}

# client_through NAME DIRECTORY WORD…: attaches on GPU 0; PID is its pid.
client_through() {
	local name=$1 directory=$2
	shift 2
	background "$name" env CUDA_MPS_PIPE_DIRECTORY="$directory" CUDA_VISIBLE_DEVICES="$GPU0" cuda-client "$@"
	eventually 5 says "$WORK/$name.out" '^(mps server=|connected$)'
}

# job_with_child NAME [OPTION…]: PID is the job's, CHILD that of its client.
job_with_child() {
	local name=$1
	shift
	background "$name" mpsctl lease --name "$name" "$@" -- \
		sh -c 'cuda-client hold 600 & echo child $!; exec sleep 600'
	eventually 10 says "$WORK/$name.out" '^mps server='
	CHILD=$(sed -n 's/^child //p' "$WORK/$name.out")
	STARTED+=("$CHILD")
	eventually 2 attached_is "$name" "[$CHILD]"
}

# ---------------------------------------------------------------- the protocol

# message METHOD [PARAMETERS [MORE]]: MORE is what else belongs in the call.
message() {
	local method=$1
	[[ $method == *.* ]] || method=io.mps-supervisor.$method
	printf '{"method":"%s","parameters":%s%s}' "$method" "${2:-{\}}" "${3:+,$3}"
}

# call METHOD [PARAMETERS [MORE]]: the first answer.
call() {
	message "$@" | { cat && printf '\0'; } | with timeout 20 rawsock -c 1 "$SOCKET" 10
}

# stream NAME METHOD [PARAMETERS]: a call with `more` in the background; answers go to NAME.out.
stream() {
	local name=$1
	message "$2" "${3:-{\}}" '"more":true' >"$WORK/$name.call"
	printf '\0' >>"$WORK/$name.call"
	background "$name" sh -c "exec rawsock '$SOCKET' 600 <'$WORK/$name.call'"
}

# A lease bound to a connection that NAME holds.
stream_lease() {
	stream "$1" AcquireLease "${2:-{\}}"
}

# holder NAME: a lease on GPU 0 of a connection, which keeps every answer.
holder() {
	stream_lease "$1" "{\"name\":\"$1\",\"devices\":[\"$GPU0\"]}"
	eventually 10 answered "$1" '.[-1].parameters.what == "granted"'
}

# answers NAME FILTER…: over all answers so far as an array.
answers() {
	local name=$1
	shift
	jq -ser "$@" "$WORK/$name.out" 2>/dev/null
}

answered() {
	answers "$@" >/dev/null
}

# said NAME FILTER…: over its answers, and must say true.
said() {
	[[ $(answers "$@") == true ]]
}

# The fields of a type of the interface: "name: type, name: type".
type_fields() {
	grep -v '^#' "$INTERFACE" | tr -s '\n ' '  ' |
		sed -E -e ':a' -e 's/\(([a-z|]+), ([a-z|]+)([,)])/(\1|\2\3/' -e 'ta' \
			-e 's/\(([a-z]+(\|[a-z]+)+)\)/enum<\1>/g' -e "s/.*type $1 \(([^)]*)\).*/\1/"
}

# conforms TYPE <JSON: has every field of the type that is not optional, none that it lacks, and
# values of the right kind.
conforms() {
	jq -e --arg fields "$(type_fields "$1")" '
		def fits($kind): if $kind | startswith("?") then . == null or fits($kind[1:])
			elif $kind | startswith("[]") then type == "array" and all(.[]; fits($kind[2:]))
			elif $kind == "[string]string" then type == "object" and all(.[]; type == "string")
			elif $kind == "[string]int" then type == "object" and all(.[]; type == "number")
			elif $kind == "string" then type == "string"
			elif $kind == "int" then type == "number" and floor == .
			elif $kind == "bool" then type == "boolean"
			elif $kind | startswith("enum<") then
				. as $v | $kind[5:-1] | split("|") | index($v) != null
			else type == "object" end;
		. as $value
		| [$fields | split(", ")[] | split(": ") | {name: .[0], kind: .[1]}] as $wanted
		| [($value | keys[]) as $key | select($wanted | all(.name != $key)) | "unknown " + $key]
		+ [$wanted[] | .kind as $t | select($value[.name] | fits($t) | not) | "wrong " + .name]
		| if . == [] then true else error(tostring) end' >/dev/null
}
