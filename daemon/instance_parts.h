/* SPDX-License-Identifier: MIT */
/*
 * What the parts of an instance give each other; nobody else includes this.
 *
 *   instance.c          the machine and its effects
 *   instance_spawn.c    starting a control daemon
 *   instance_output.c   what the daemon and its servers say: to the journal, and to the parts
 *   instance_query.c    whether they answer
 *   instance_roll.c     whom an adopted daemon has
 *   instance_servers.c  server processes
 *   instance_warm.c     servers by order: ahead of their clients, and idle ones ended
 *   instance_clients.c  client processes, as MPS reports them
 *   instance_fault.c    GPU faults: whom they hit, how holdouts are made to leave
 *   instance_files.c    the files of the pipe directory
 *   instance_deaths.c   what is remembered of losses
 *   instance_state.c    what the next supervisor must know
 *   instance_losses.c   and what it should not have forgotten
 */
#pragma once

#include <jansson.h>

#include "instance.h"
#include "journal.h"
#include "mpslog.h"

/* instance.c */
void instance_dispatch(struct instance *instance, enum instance_event event, const char *reason);
uint64_t instance_now_usec(const struct instance *instance);
struct journal_context instance_context(const struct instance *instance, const char *role, int pid);
/* Clients or leases have come or gone. */
void instance_use_changed(struct instance *instance);

/* Called when the daemon that instance_spawn started has ended. */
void instance_daemon_ended(struct process *process, int status, void *userdata);

/* instance_spawn.c */
int instance_spawn_init(struct instance *instance);
void instance_spawn(struct instance *instance);
/* Something that a waiting start waited for is gone. */
void instance_spawn_again(struct instance *instance);

/* Is it a control daemon on our directory, started by our user? */
bool instance_is_our_daemon(const struct instance *instance, pid_t pid);

/* instance_output.c */
void instance_output_line(const char *text, size_t length, void *userdata);

/* instance_query.c */
void instance_query(struct instance *instance);

/* instance_roll.c */
/* The daemon answers: asks it, where it was adopted and has not been asked. */
void instance_call_roll(struct instance *instance);

/* instance_servers.c: a pid in a line becomes a process only when it is a child of our control
 * daemon; from then on its pidfd tells its end. */
void instance_servers_line(struct instance *instance, const struct mpslog_line *line);
/* SIGKILL to all that still run: their control daemon is gone. */
void instance_servers_end(struct instance *instance);
void instance_servers_forget(struct instance *instance);
bool instance_servers_alive(const struct instance *instance);
/* Is this a server of ours, proven and not gone? */
bool instance_servers_has(const struct instance *instance, int32_t pid);
/* Servers that are dying count as lost now. */
void instance_servers_catch_up(struct instance *instance);
/* One of an earlier supervisor's, proven; takes over pidfd. */
void instance_servers_adopt(struct instance *instance, pid_t pid, int pidfd, uint32_t uid,
			    bool ready, bool asked, bool expected);
/* MPS lists it, so it is ready. NULL when it is none of ours. */
struct instance_server *instance_servers_list(struct instance *instance, pid_t pid);
/* It had been there, and was not when its instance was adopted. */
void instance_servers_lost_while_away(struct instance *instance, pid_t pid);
/* Asks those that were not yet asked to end. */
void instance_servers_shut_down(struct instance *instance);
/* A server that could answer for itself; NULL when there is none. */
const struct instance_server *instance_servers_ready(const struct instance *instance);

/* instance_clients.c */
void instance_clients_line(struct instance *instance, const struct mpslog_line *line);
/* Unless it is known already. */
void instance_clients_add(struct instance *instance, int32_t pid, int32_t server);
/* One of an earlier supervisor's, proven; takes over pidfd. */
void instance_clients_adopt(struct instance *instance, pid_t pid, int pidfd, int32_t server,
			    bool hit, const char *lease);
/* Those of a server that is gone; 0: all. */
void instance_clients_forget(struct instance *instance, int32_t server);
/* All, and nobody is told: the instance ends. */
void instance_clients_drop(struct instance *instance);
/* Forgets those whose process is gone, whatever MPS says. */
void instance_clients_prune(struct instance *instance);
size_t instance_clients_count(const struct instance *instance);
/* Everybody attached now. */
void instance_clients_all(const struct instance *instance, struct instance_hits *ret);
struct instance_client *instance_clients_find(struct instance *instance, int32_t pid);

/* instance_warm.c */
int instance_warm_init(struct instance *instance);
/* Of a server that was asked to end, the end; or that one came late. */
void instance_warm_servers_changed(struct instance *instance);
/* One that was asked to end says that it cannot. */
void instance_warm_kept(struct instance *instance);
/* What INSTANCE_END_SERVERS asks for. */
void instance_warm_end_servers(struct instance *instance);
/* The daemon is gone, and with it what was under way. */
void instance_warm_forget(struct instance *instance);
/* Somebody has a lease, or nobody any more. */
void instance_warm_use_changed(struct instance *instance);

/* instance_fault.c */
void instance_presence_add(struct instance_presence *presence, uint32_t uid, const char *name);
void instance_fault_line(struct instance *instance, const struct mpslog_line *line);
void instance_fault_client_gone(struct instance *instance);
/* Says in the state's reason who holds the server. */
void instance_fault_describe(struct instance *instance);
bool instance_fault_has_holdouts(const struct instance *instance);
void instance_fault_tell(struct instance *instance);
void instance_fault_terminate(struct instance *instance);
void instance_fault_signal(struct instance *instance, int signal_number);
void instance_fault_forget(struct instance *instance);

/* instance_files.c */
void instance_files_watch(struct instance *instance);
void instance_files_unwatch(struct instance *instance);
/* Is the socket another one than that, or none? Then the machine has been told. */
bool instance_files_check(struct instance *instance);
/* Takes note of the socket as it is now. */
void instance_files_remember(struct instance *instance);

/* instance_deaths.c */
void instance_lines_add(struct instance_lines *lines, const char *text, size_t length);
void instance_hits_add(struct instance_hits *hits, int32_t pid, const char *lease);
void instance_hits_add_lease(struct instance_hits *hits, const char *lease);
struct instance_death *instance_death_add(struct instance *instance, enum instance_loss what);
struct instance_death *instance_death_last(struct instance *instance);
/* The control daemon that an earlier supervisor had is not there any more: a generation is lost. */
void instance_death_while_away(struct instance *instance, pid_t pid);

/* instance_state.c */
int instance_state_init(struct instance *instance);
/* At once; what may wait until this turn of the loop is over: soon. */
void instance_save(struct instance *instance);
void instance_save_soon(struct instance *instance);
/* Its control daemon has been found running. */
void instance_adopt(struct instance *instance);

/* instance_losses.c */
/* Members of the state file. */
json_t *instance_losses_describe(const struct instance *instance);
/* What is missing in it is not known, and what makes no sense is left out. */
void instance_losses_restore(struct instance *instance, const json_t *content);
