# SPDX-License-Identifier: MIT
# bash completion for mpsctl

# Readline makes "--option=value" three words.

# Sets what the words before the current one say: command, its index, and the socket as an option.
_mpsctl_read()
{
	local i

	command='' index=0 socket=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--socket)
			[[ ${COMP_WORDS[i + 1]} != = ]] || ((i++))
			((++i < COMP_CWORD)) && socket=(--socket "${COMP_WORDS[i]}")
			;;
		-*) ;;
		*)
			command=${COMP_WORDS[i]} index=$i
			return
			;;
		esac
	done
}

_mpsctl_options()
{
	case $command in
	"") echo --socket --version --help ;;
	lease)
		echo --gpus --gpu --threads --memory --clients --wait --no-wait --exclusive \
			--name --pid --detach --uid --format --on-loss --reruns --fallback --quiet --help
		;;
	status) echo --json --watch --help ;;
	leases | monitor) echo --json --help ;;
	drain) echo --timeout --help ;;
	restart) echo --force --help ;;
	*) echo --help ;;
	esac
}

# Names of the instances of these kinds, as a pattern.
_mpsctl_instances()
{
	echo all
	mpsctl "${socket[@]}" status 2>/dev/null | awk -v kinds="^\\\\(($1)\\\\)$" '/^[^ ]/ && $2 ~ kinds { print $1 }'
}

_mpsctl_devices()
{
	echo all
	mpsctl "${socket[@]}" status 2>/dev/null |
		awk '/^[^ ]/ && $2 ~ /^\((gpu|mig)\)$/ { print $1 } $1 == "device" { print $2 }'
}

# The words that may stand here when no option is begun.
_mpsctl_words()
{
	case $command in
	"") echo lease release status leases monitor drain resume restart ;;
	status | restart) _mpsctl_instances 'gpu|mig|gang' ;;
	drain | resume) _mpsctl_instances 'gpu|mig' ;;
	release) mpsctl "${socket[@]}" leases 2>/dev/null | awk 'NR > 1 { print $1 }' ;;
	esac
}

_mpsctl_offer()
{
	mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current")
}

_mpsctl()
{
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	local command index i
	local -a socket

	COMPREPLY=()
	if [[ $current == = ]]; then
		current=''
	elif [[ $previous == = ]]; then
		previous=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	_mpsctl_read
	if [[ $command == lease ]]; then
		for ((i = index + 1; i < COMP_CWORD; i++)); do
			if [[ ${COMP_WORDS[i]} == -- ]]; then
				declare -F _command_offset >/dev/null && _command_offset $((i + 1))
				return
			fi
		done
	fi
	case $previous in
	--socket) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
	--gpu) _mpsctl_offer "$(_mpsctl_devices)" ;;
	--format) _mpsctl_offer "shell env json path" ;;
	--on-loss) _mpsctl_offer "notify terminate rerun" ;;
	--fallback) _mpsctl_offer "none time-slicing" ;;
	--uid) mapfile -t COMPREPLY < <(compgen -u -- "$current") ;;
	--gpus | --threads | --memory | --clients | --wait | --name | --pid | --reruns | --timeout | -[gtmcw]) ;;
	*)
		if [[ $current == -* ]]; then
			_mpsctl_offer "$(_mpsctl_options)"
		else
			_mpsctl_offer "$(_mpsctl_words)"
		fi
		;;
	esac
}

complete -F _mpsctl mpsctl
