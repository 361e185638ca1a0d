# SPDX-License-Identifier: MIT
# mps-supervisor. `make demo` and `make check` need nothing else first; `make help` lists the rest.
#
# Everything generated goes to $(BUILD). Variants (sanitizers, GPU bundle) are builds of their own
# below it, made by calling this file again.

VERSION := 0.1.0
BUILD ?= build
PREFIX ?= /usr/local
SYSCONFDIR ?= $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
UNITDIR ?= $(PREFIX)/lib/systemd/system
DESTDIR ?=
ifeq ($(origin CC),default)
CC := gcc
endif
SHELL := /bin/bash
.DELETE_ON_ERROR:
.SUFFIXES:

# ---------------------------------------------------------------- flags

PROGRAM_PACKAGES := libsystemd libconfig jansson libacl
WERROR ?=
OPTIMIZE ?= -O2
HARDEN ?= -D_FORTIFY_SOURCE=3
VARIANT_CFLAGS ?=
VARIANT_LDFLAGS ?=

WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
	-Wundef -Wpointer-arith -Wwrite-strings -Wformat=2 -Wvla -Wredundant-decls -Wcast-align \
	-Wimplicit-fallthrough -Winit-self -Wmissing-include-dirs -Wdate-time
# Flags that only some compilers know are asked for first.
cc-option = $(shell $(CC) -Werror $(1) -x c -c /dev/null -o /dev/null 2>/dev/null && echo $(1))
PROBED := $(foreach f,-Wlogical-op -Wduplicated-cond -Wduplicated-branches -Wjump-misses-init \
	-fstack-clash-protection -fcf-protection -fstack-protector-strong,$(call cc-option,$(f)))

pkg-flags = $(shell pkg-config $(1) $(2) 2>/dev/null)
ALL_CPPFLAGS = -D_GNU_SOURCE -DMPS_SUPERVISOR_VERSION='"$(VERSION)"' \
	-DMPS_SUPERVISOR_SYSCONFDIR='"$(SYSCONFDIR)"' $(CPPFLAGS)
ALL_CFLAGS = -std=gnu17 -g $(OPTIMIZE) $(HARDEN) $(WARNINGS) $(PROBED) $(WERROR) -fPIE \
	$(VARIANT_CFLAGS) $(CFLAGS)
ALL_LDFLAGS = -pie -Wl,-z,relro,-z,now -Wl,--as-needed $(VARIANT_LDFLAGS) $(LDFLAGS)
compile = $(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP

# ---------------------------------------------------------------- what there is

COMMON_SRC := $(wildcard common/*.c)
CORE_SRC := $(wildcard daemon/core/*.c)
OS_SRC := $(wildcard daemon/os/*.c)
DAEMON_SRC := $(filter-out daemon/main.c,$(wildcard daemon/*.c))
CLIENT_SRC := $(filter-out client/main.c,$(wildcard client/*.c))
UNIT_SRC := $(wildcard tests/unit/test_*.c)
SIM_SRC := $(wildcard tests/sim/*.c)
STANDIN_SRC := $(wildcard tests/standin/*.c)
STANDIN_LIB_SRC := $(wildcard tests/standin/lib/*.c)
GPU_SRC := $(wildcard tests/gpu/*.c)
BATS := $(wildcard tests/integration/*.bats)
SCRIPTS := $(wildcard tools/*) .ci/run tests/gpu/check-gpu
MAN_SRC := $(wildcard docs/man/*.scd)
ALL_SRC := $(COMMON_SRC) $(CORE_SRC) $(OS_SRC) $(wildcard daemon/*.c client/*.c)
ALL_C := $(wildcard $(foreach d,common daemon daemon/core daemon/os client tests/unit tests/sim \
	tests/fuzz tests/bench tests/standin tests/standin/lib tests/gpu,$(d)/*.c $(d)/*.h))
HEADERS := $(wildcard common/*.h daemon/*.h daemon/core/*.h daemon/os/*.h client/*.h)

objects = $(patsubst %.c,$(BUILD)/%.o,$(1))
INCLUDE_common := -Icommon -I$(BUILD)/gen
INCLUDE_core := $(INCLUDE_common) -Idaemon/core
INCLUDE_os := $(INCLUDE_core) -Idaemon/os
INCLUDE_daemon := $(INCLUDE_os) -Idaemon
INCLUDE_client := $(INCLUDE_common) -Iclient

DAEMON := $(BUILD)/mps-supervisord
CLIENT := $(BUILD)/mpsctl
UNIT_TESTS := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(UNIT_SRC))
STANDINS := $(patsubst tests/standin/%.c,$(BUILD)/standin/%,$(STANDIN_SRC))
MAN := $(patsubst docs/man/%.scd,$(BUILD)/man/%,$(MAN_SRC))

.PHONY: all programs
all: deps-build
	@$(MAKE) --no-print-directory programs
programs: $(DAEMON) $(CLIENT)

# ---------------------------------------------------------------- compiling

$(BUILD)/gen/%.varlink.inc: common/%.varlink
	@mkdir -p $(@D)
	sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^\(.*\)$$/"\1\\n"/' $< > $@

$(BUILD)/common/proto.o: $(BUILD)/gen/io.mps-supervisor.varlink.inc \
	$(BUILD)/gen/org.varlink.service.varlink.inc

define compile-rule
$(BUILD)/$(1)/%.o: $(1)/%.c Makefile
	@mkdir -p $$(@D)
	$$(compile) $$(INCLUDE_$(2)) $$(call pkg-flags,--cflags,$$(PROGRAM_PACKAGES)) -c -o $$@ $$<
endef
$(eval $(call compile-rule,common,common))
$(eval $(call compile-rule,daemon/core,core))
$(eval $(call compile-rule,daemon/os,os))
$(eval $(call compile-rule,daemon,daemon))
$(eval $(call compile-rule,client,client))

define archive-rule
$(BUILD)/lib$(1).a: $(call objects,$(2))
	rm -f $$@ && $(AR) rcs $$@ $$^
endef
$(eval $(call archive-rule,common,$(COMMON_SRC)))
$(eval $(call archive-rule,core,$(CORE_SRC)))
$(eval $(call archive-rule,os,$(OS_SRC)))
$(eval $(call archive-rule,daemon,$(DAEMON_SRC)))
$(eval $(call archive-rule,client,$(CLIENT_SRC)))

DAEMON_LIBS := $(foreach l,daemon os core common,$(BUILD)/lib$(l).a)
CLIENT_LIBS := $(foreach l,client common,$(BUILD)/lib$(l).a)

$(DAEMON): $(BUILD)/daemon/main.o $(DAEMON_LIBS)
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(call pkg-flags,--libs,$(PROGRAM_PACKAGES))

$(CLIENT): $(BUILD)/client/main.o $(CLIENT_LIBS)
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(call pkg-flags,--libs,jansson)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

# ---------------------------------------------------------------- tests

$(BUILD)/unit/%: tests/unit/%.c $(DAEMON_LIBS) $(BUILD)/libclient.a Makefile
	@mkdir -p $(@D)
	$(compile) $(INCLUDE_daemon) -Iclient -Itests/unit $(ALL_LDFLAGS) -o $@ $< \
		$(BUILD)/libclient.a $(DAEMON_LIBS) \
		$(call pkg-flags,--cflags --libs,check $(PROGRAM_PACKAGES))

$(BUILD)/standin/%: tests/standin/%.c $(STANDIN_LIB_SRC) $(wildcard tests/standin/lib/*.h) Makefile
	@mkdir -p $(@D)
	$(compile) -Itests/standin/lib $(ALL_LDFLAGS) -o $@ $< $(STANDIN_LIB_SRC) -lpthread

$(BUILD)/gpu/cuda_client: $(GPU_SRC) $(wildcard tests/gpu/*.h) Makefile
	@mkdir -p $(@D)
	$(compile) -Itests/gpu $(ALL_LDFLAGS) -o $@ $(GPU_SRC) -ldl

UNIT_RUNNER = for t in $(UNIT_TESTS); do "$$t" || exit 1; done

.PHONY: check-unit
check-unit: $(UNIT_TESTS)
	@$(UNIT_RUNNER)
