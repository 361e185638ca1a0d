/* SPDX-License-Identifier: MIT */
/*
 * The commands. Each reads its own words (argv[0] is the command's name), talks to the supervisor
 * at socket, says on stderr what went wrong, and returns the exit status of mpsctl.
 */
#pragma once

int cmd_lease(const char *socket, int argc, char *argv[]);
int cmd_release(const char *socket, int argc, char *argv[]);
int cmd_status(const char *socket, int argc, char *argv[]);
int cmd_leases(const char *socket, int argc, char *argv[]);
int cmd_monitor(const char *socket, int argc, char *argv[]);
int cmd_drain(const char *socket, int argc, char *argv[]);
int cmd_resume(const char *socket, int argc, char *argv[]);
int cmd_restart(const char *socket, int argc, char *argv[]);
int cmd_doctor(const char *socket, int argc, char *argv[]);
int cmd_metrics(const char *socket, int argc, char *argv[]);
