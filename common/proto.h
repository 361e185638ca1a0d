/* SPDX-License-Identifier: MIT */
/*
 * The names of the protocol: interface, methods, errors. Types and fields are in
 * io.mps-supervisor.varlink, whose text is built in and answered on request.
 */
#pragma once

#include <stdint.h>

#define PROTO_DEFAULT_SOCKET "/run/mps-supervisor/socket"

#define PROTO_INTERFACE "io.mps-supervisor"
#define PROTO_ACQUIRE_LEASE PROTO_INTERFACE ".AcquireLease"
#define PROTO_RECLAIM_LEASE PROTO_INTERFACE ".ReclaimLease"
#define PROTO_RELEASE_LEASE PROTO_INTERFACE ".ReleaseLease"
#define PROTO_LIST_LEASES PROTO_INTERFACE ".ListLeases"
#define PROTO_GET_STATUS PROTO_INTERFACE ".GetStatus"
#define PROTO_DRAIN PROTO_INTERFACE ".Drain"
#define PROTO_RESUME PROTO_INTERFACE ".Resume"
#define PROTO_RESTART PROTO_INTERFACE ".Restart"
#define PROTO_MONITOR PROTO_INTERFACE ".Monitor"

#define PROTO_NO_SUCH_DEVICE PROTO_INTERFACE ".NoSuchDevice"
#define PROTO_HELD PROTO_INTERFACE ".Held"
#define PROTO_NO_SUCH_INSTANCE PROTO_INTERFACE ".NoSuchInstance"
#define PROTO_NO_SUCH_LEASE PROTO_INTERFACE ".NoSuchLease"
#define PROTO_NOT_READY PROTO_INTERFACE ".NotReady"
#define PROTO_BUSY PROTO_INTERFACE ".Busy"
#define PROTO_TIMED_OUT PROTO_INTERFACE ".TimedOut"
#define PROTO_UNSATISFIABLE PROTO_INTERFACE ".Unsatisfiable"
#define PROTO_PERMISSION_DENIED PROTO_INTERFACE ".PermissionDenied"
#define PROTO_SHUTTING_DOWN PROTO_INTERFACE ".ShuttingDown"
#define PROTO_INVALID_REQUEST PROTO_INTERFACE ".InvalidRequest"

#define VARLINK_SERVICE "org.varlink.service"
#define VARLINK_GET_INFO VARLINK_SERVICE ".GetInfo"
#define VARLINK_GET_INTERFACE_DESCRIPTION VARLINK_SERVICE ".GetInterfaceDescription"
#define VARLINK_INTERFACE_NOT_FOUND VARLINK_SERVICE ".InterfaceNotFound"
#define VARLINK_METHOD_NOT_FOUND VARLINK_SERVICE ".MethodNotFound"
#define VARLINK_METHOD_NOT_IMPLEMENTED VARLINK_SERVICE ".MethodNotImplemented"
#define VARLINK_INVALID_PARAMETER VARLINK_SERVICE ".InvalidParameter"
#define VARLINK_EXPECTED_MORE VARLINK_SERVICE ".ExpectedMore"

/* Bounds of what AcquireLease takes. */
#define PROTO_COUNT_MAX 64
#define PROTO_CLIENTS_MAX 1024
#define PROTO_MEMORY_MIN_BYTES (INT64_C(1) << 20) /* MPS counts in mebibytes */
#define PROTO_NAME_MAX 127

/* The text of io.mps-supervisor.varlink. */
extern const char proto_interface_description[];
/* The text of the interface org.varlink.service, from the Varlink specification. */
extern const char proto_service_description[];
