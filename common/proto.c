/* SPDX-License-Identifier: MIT */
#include "proto.h"

const char proto_interface_description[] =
#include "io.mps-supervisor.varlink.inc"
	;

const char proto_service_description[] =
#include "org.varlink.service.varlink.inc"
	;
