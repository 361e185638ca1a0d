# SPDX-License-Identifier: MIT
# bash completion for mpsctl

_mpsctl_command()
{
	local i

	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--socket) ((i++)) ;;
		-*) ;;
		*)
			echo "${COMP_WORDS[i]} $i"
			return
			;;
		esac
	done
}

_mpsctl_options()
{
	case $1 in
	"") echo --socket --version --help ;;
	lease)
		echo --gpus --gpu --threads --memory --clients --wait --no-wait --exclusive \
			--private --name --pid --detach --uid --format --on-loss --reruns \
			--fallback --quiet --help
		;;
	status) echo --json --watch --help ;;
	leases | monitor | doctor) echo --json --help ;;
	drain) echo --timeout --help ;;
	restart) echo --force --help ;;
	metrics) echo --textfile --help ;;
	*) echo --help ;;
	esac
}

# The words that may stand here when no option is begun.
_mpsctl_words()
{
	case $1 in
	"") echo lease release status leases monitor drain resume restart doctor metrics ;;
	status | drain | resume | restart)
		echo all
		mpsctl status 2>/dev/null | awk '/^[^ ].* \((gpu|mig|gang)\)$/ { print $1 }'
		;;
	release) mpsctl leases 2>/dev/null | awk 'NR > 1 { print $1 }' ;;
	esac
}

_mpsctl()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	local command index i

	read -r command index < <(_mpsctl_command)
	if [[ $command == lease ]]; then
		for ((i = index + 1; i < COMP_CWORD; i++)); do
			if [[ ${COMP_WORDS[i]} == -- ]]; then
				declare -F _command_offset >/dev/null && _command_offset $((i + 1))
				return
			fi
		done
	fi
	case $previous in
	--socket | --textfile) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
	--format) mapfile -t COMPREPLY < <(compgen -W "shell env json path" -- "$current") ;;
	--on-loss) mapfile -t COMPREPLY < <(compgen -W "notify terminate rerun" -- "$current") ;;
	--fallback)
		mapfile -t COMPREPLY < <(compgen -W "none private time-slicing" -- "$current")
		;;
	--uid) mapfile -t COMPREPLY < <(compgen -u -- "$current") ;;
	*)
		if [[ $current == -* ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$(_mpsctl_options "$command")" -- "$current")
		else
			mapfile -t COMPREPLY < <(compgen -W "$(_mpsctl_words "$command")" -- "$current")
		fi
		;;
	esac
}

complete -F _mpsctl mpsctl
