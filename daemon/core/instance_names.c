/* SPDX-License-Identifier: MIT */
/* The words for states and events of instance_fsm.h. */
#include "instance_fsm.h"

const char *instance_state_to_string(enum instance_state state)
{
	switch (state) {
	case INSTANCE_STOPPED:
		return "stopped";
	case INSTANCE_STARTING:
		return "starting";
	case INSTANCE_READY:
		return "ready";
	case INSTANCE_FAULTED:
		return "faulted";
	case INSTANCE_UNRESPONSIVE:
		return "unresponsive";
	case INSTANCE_DRAINING:
		return "draining";
	case INSTANCE_STOPPING:
		return "stopping";
	case INSTANCE_BACKOFF:
		return "backoff";
	case INSTANCE_FAILED:
		return "failed";
	}
	return "?";
}

const char *instance_event_to_string(enum instance_event event)
{
	switch (event) {
	case INSTANCE_EVENT_START:
		return "start";
	case INSTANCE_EVENT_STOP:
		return "stop";
	case INSTANCE_EVENT_RECYCLE:
		return "recycle";
	case INSTANCE_EVENT_DRAIN:
		return "drain";
	case INSTANCE_EVENT_SPAWNED:
		return "spawned";
	case INSTANCE_EVENT_SPAWN_FAILED:
		return "spawn-failed";
	case INSTANCE_EVENT_ADOPTED:
		return "adopted";
	case INSTANCE_EVENT_HINT:
		return "hint";
	case INSTANCE_EVENT_ANSWERED:
		return "answered";
	case INSTANCE_EVENT_FAULT_STAYS:
		return "fault-stays";
	case INSTANCE_EVENT_NO_ANSWER:
		return "no-answer";
	case INSTANCE_EVENT_NOT_ASKED:
		return "not-asked";
	case INSTANCE_EVENT_TIMED_OUT:
		return "timed-out";
	case INSTANCE_EVENT_ASK:
		return "ask";
	case INSTANCE_EVENT_HALTED:
		return "halted";
	case INSTANCE_EVENT_DIED:
		return "died";
	case INSTANCE_EVENT_SERVER_LOST:
		return "server-lost";
	case INSTANCE_EVENT_END_SERVERS:
		return "end-servers";
	case INSTANCE_EVENT_SERVER_GONE:
		return "server-gone";
	case INSTANCE_EVENT_SERVERS_FAIL:
		return "servers-fail";
	case INSTANCE_EVENT_QUIT_OVER:
		return "quit-over";
	case INSTANCE_EVENT_SOCKET_LOST:
		return "socket-lost";
	case INSTANCE_EVENT_FAULT:
		return "fault";
	case INSTANCE_EVENT_SETTLED:
		return "settled";
	case INSTANCE_EVENT_VICTIMS_GONE:
		return "victims-gone";
	case INSTANCE_EVENT_DEADLINE:
		return "deadline";
	}
	return "?";
}
