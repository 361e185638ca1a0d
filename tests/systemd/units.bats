#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
#
# The installed units and their companions, as systemd understands them.
#
# shellcheck disable=SC2154 # output and stderr are bats'

load lib

setup() {
	prepare_node
}

teardown() {
	systemctl disable "$UNIT" "$SOCKET_UNIT" slurmd.service kubelet.service 2>/dev/null || true
	rm -f /run/systemd/system/{slurmd,kubelet,nvidia-persistenced,nvidia-fabricmanager,nvidia-mig-manager}.service
	clean_node
}

@test "systemd-analyze verify has nothing to say" {
	run -0 --separate-stderr systemd-analyze verify --man=no "$UNIT" "$SOCKET_UNIT"
	echo "$stderr"
	[[ -z $output && -z $stderr ]]
}

@test "systemd-analyze security: an exposure of 5.0 at most" {
	run -0 systemd-analyze security --no-pager --threshold=50 "$UNIT"
	echo "# ${lines[-1]}" >&3
}

# ---------------------------------------------------------------- order

has_words() {
	local text=" $1 " word
	shift
	for word; do
		[[ $text == *" $word "* ]] || { echo "no $word in $text" >&2; return 1; }
	done
}

@test "order: after NVIDIA's services and its socket, before those that start jobs; needs none of them" {
	has_words "$(property After)" "$SOCKET_UNIT" modprobe@nvidia.service nvidia-persistenced.service \
		nvidia-fabricmanager.service nvidia-mig-manager.service basic.target
	has_words "$(property Before)" slurmd.service kubelet.service
	has_words "$(property Before "$SOCKET_UNIT")" sockets.target "$UNIT"
	has_words "$(property After "$SOCKET_UNIT")" modprobe@nvidia.service sysinit.target
	for name in Requires Wants Requisite BindsTo; do
		[[ " $(property "$name") " != *" nvidia-"* ]]
		[[ " $(property "$name") " != *" slurmd."* ]]
	done
	systemctl list-dependencies --after "$UNIT" | grep -q "$SOCKET_UNIT"
}

# A service that says when it started and when it was up, by the unit's own time stamps.
dummy() {
	cat >"/run/systemd/system/$1" <<-END
		[Unit]
		Description=Stand-in for $1
		[Service]
		Type=oneshot
		RemainAfterExit=yes
		ExecStart=/bin/sleep 0.2
		ExecStop=/bin/sleep 0.2
		[Install]
		WantedBy=multi-user.target
	END
	systemctl enable --quiet "$1"
}

# in_order TIME...: none is 0, each is later than the one before.
in_order() {
	local last=0 time
	echo "$*"
	for time; do
		((time > last)) || return 1
		last=$time
	done
}

@test "boot and shutdown: as ordered, by what happens" {
	dummy nvidia-persistenced.service
	dummy slurmd.service
	systemctl preset --quiet "$UNIT" "$SOCKET_UNIT"
	[[ $(systemctl is-enabled "$UNIT" "$SOCKET_UNIT" | sort -u) == enabled ]]
	systemctl start multi-user.target
	property_is ActiveState active
	in_order "$(property ActiveEnterTimestampMonotonic nvidia-persistenced.service)" \
		"$(property InactiveExitTimestampMonotonic)" \
		"$(property ActiveEnterTimestampMonotonic)" \
		"$(property InactiveExitTimestampMonotonic slurmd.service)"
	# Each is a job of its own, in this order: the later ones must wait.
	systemctl stop slurmd.service "$UNIT" nvidia-persistenced.service
	in_order "$(property InactiveEnterTimestampMonotonic slurmd.service)" \
		"$(property ActiveExitTimestampMonotonic)" \
		"$(property InactiveEnterTimestampMonotonic)" \
		"$(property ActiveExitTimestampMonotonic nvidia-persistenced.service)"
}

@test "enable of the service enables its socket; disable of both leaves nothing" {
	systemctl enable --quiet "$UNIT"
	[[ $(systemctl is-enabled "$UNIT" "$SOCKET_UNIT" | sort -u) == enabled ]]
	systemctl disable --quiet "$UNIT"
	run ! systemctl is-enabled "$UNIT" "$SOCKET_UNIT"
}

# ---------------------------------------------------------------- no driver

@test "no driver: nothing is started, nothing has failed" {
	driver_missing
	run -0 systemctl start "$UNIT"
	property_is ActiveState inactive
	property_is ConditionResult no
	property_is ActiveState inactive "$SOCKET_UNIT"
	[[ -z $(systemctl --failed --no-legend) ]]
	run -3 ctl status
	driver_loaded
	start_unit
}

# ---------------------------------------------------------------- companions

@test "sysusers: the group for administrators, who gets rights by it only when it is configured" {
	run -0 systemd-sysusers mps-supervisor.conf
	gid=$(getent group mps-admin | cut -d: -f3)
	((gid > 0 && gid < 1000))
	start_unit
	hold job
	lease=$(lease_of job .id)
	release=(setpriv --reuid 1000 --regid 1000 --groups "$gid" "${ENVIRONMENT[@]}" mpsctl release "$lease")
	run -1 "${release[@]}"
	configure_node 'access = { admin_groups = [ "mps-admin" ]; };'
	systemctl reload "$UNIT"
	eventually 5 "${release[@]}"
}

@test "tmpfiles: a cleaner of everything old leaves the runtime directory alone" {
	start_unit
	hold_attached job
	mkdir -p /run/other/sub /etc/tmpfiles.d
	: >/run/other/file
	printf '%s\n' 'd /run - - - 0' 'x /run/systemd' 'x /run/dbus' 'x /run/log' 'x /run/sandbox' \
		>/etc/tmpfiles.d/zz-test.conf
	before=$(find "$RUN" | sort)
	run -0 systemd-tmpfiles --clean zz-test.conf /usr/lib/tmpfiles.d/mps-supervisor.conf
	rm /etc/tmpfiles.d/zz-test.conf
	[[ ! -e /run/other/file ]]
	[[ $(find "$RUN" | sort) == "$before" ]]
	ctl lease -q -- cuda-client init
}

@test "directories: owner, modes, and that they outlive the service" {
	start_unit
	[[ $(stat -c '%U %a' "$RUN" /var/lib/mps-supervisor /etc/mps-supervisor | tr '\n' ' ') == \
		"root 755 root 700 root 755 " ]]
	systemctl restart "$UNIT"
	[[ -d $RUN ]]
	systemctl stop "$UNIT"
	[[ -d $RUN && -d /var/lib/mps-supervisor ]]
}
