# SPDX-License-Identifier: MIT
# mps-supervisor. `make demo` and `make check` need nothing else first; `make help` lists the rest.
#
# Everything generated goes to $(BUILD). Variants (sanitizers, GPU bundle) are builds of their own
# below it, made by calling this file again.

VERSION := 0.1.0
BUILD ?= build
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
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
SCRIPTS := $(wildcard tools/*) .ci/run tests/gpu/check-gpu tests/systemd/check-systemd tests/systemd/sandbox $(wildcard tests/bench/*.sh)
MAN_SRC := $(wildcard docs/man/*.scd)
ALL_SRC := $(COMMON_SRC) $(CORE_SRC) $(OS_SRC) $(wildcard daemon/*.c client/*.c)
ALL_C := $(wildcard $(foreach d,common daemon daemon/core daemon/os client tests/unit tests/sim \
	tests/fuzz tests/bench tests/integration tests/standin tests/standin/lib tests/gpu,$(d)/*.c $(d)/*.h))
HEADERS := $(wildcard common/*.h daemon/*.h daemon/core/*.h daemon/os/*.h client/*.h)

objects = $(patsubst %.c,$(BUILD)/%.o,$(1))
INCLUDE_common := -Icommon -I$(BUILD)/gen
INCLUDE_core := -Icommon -Idaemon/core
INCLUDE_os := $(INCLUDE_core) -Idaemon/os
INCLUDE_daemon := $(INCLUDE_os) -Idaemon
INCLUDE_client := -Icommon -Iclient

DAEMON := $(BUILD)/mps-supervisord
CLIENT := $(BUILD)/mpsctl
UNIT_TESTS := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(UNIT_SRC))
STANDINS := $(patsubst tests/standin/%.c,$(BUILD)/standin/%,$(STANDIN_SRC))
MAN := $(patsubst docs/man/%.scd,$(BUILD)/man/%,$(MAN_SRC))

# Commands are shown with V=1 only.
Q := $(if $(V),,@)
say = @printf '  %-8s %s\n' $(1) $(2)

.PHONY: all programs
all: deps-build
	@$(MAKE) --no-print-directory programs
programs: $(DAEMON) $(CLIENT)

# ---------------------------------------------------------------- compiling

$(BUILD)/gen/%.varlink.inc: common/%.varlink
	@mkdir -p $(@D)
	$(Q)sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^\(.*\)$$/"\1\\n"/' $< > $@

$(call objects,$(COMMON_SRC)): | $(BUILD)/gen/io.mps-supervisor.varlink.inc \
	$(BUILD)/gen/org.varlink.service.varlink.inc
$(BUILD)/common/proto.o: $(wildcard common/*.varlink)

# Built anew when the flags are others than last time.
FLAGS = $(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ALL_LDFLAGS)
$(BUILD)/flags: force
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(FLAGS))' | cmp -s - $@ || echo '$(subst ','\'',$(FLAGS))' > $@
.PHONY: force

define compile-rule
$(BUILD)/$(1)/%.o: $(1)/%.c Makefile $(BUILD)/flags
	@mkdir -p $$(@D)
	$(call say,CC,$$@)
	$(Q)$$(compile) $$(INCLUDE_$(2)) $$(call pkg-flags,--cflags,$$(PROGRAM_PACKAGES)) -c -o $$@ $$<
endef
$(eval $(call compile-rule,common,common))
$(eval $(call compile-rule,daemon/core,core))
$(eval $(call compile-rule,daemon/os,os))
$(eval $(call compile-rule,daemon,daemon))
$(eval $(call compile-rule,client,client))

define archive-rule
$(BUILD)/lib$(1).a: $(call objects,$(2))
	$(Q)rm -f $$@ && $(AR) rcs $$@ $$^
endef
$(eval $(call archive-rule,common,$(COMMON_SRC)))
$(eval $(call archive-rule,core,$(CORE_SRC)))
$(eval $(call archive-rule,os,$(OS_SRC)))
$(eval $(call archive-rule,daemon,$(DAEMON_SRC)))
$(eval $(call archive-rule,client,$(CLIENT_SRC)))

DAEMON_LIBS := $(foreach l,daemon os core common,$(BUILD)/lib$(l).a)
CLIENT_LIBS := $(foreach l,client common,$(BUILD)/lib$(l).a)

$(DAEMON): $(BUILD)/daemon/main.o $(DAEMON_LIBS)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(call pkg-flags,--libs,$(PROGRAM_PACKAGES))

$(CLIENT): $(BUILD)/client/main.o $(CLIENT_LIBS)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(call pkg-flags,--libs,jansson)

-include $(shell find $(BUILD) -name '*.d' -type f 2>/dev/null)

# ---------------------------------------------------------------- tests

$(BUILD)/unit/%: tests/unit/%.c $(DAEMON_LIBS) $(BUILD)/libclient.a Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(compile) $(INCLUDE_daemon) -Iclient -Itests/unit $(ALL_LDFLAGS) -o $@ $< \
		$(BUILD)/libclient.a $(DAEMON_LIBS) \
		$(call pkg-flags,--cflags --libs,check $(PROGRAM_PACKAGES))

$(BUILD)/standin/%: tests/standin/%.c $(STANDIN_LIB_SRC) $(wildcard tests/standin/lib/*.h) Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(compile) -Itests/standin/lib $(ALL_LDFLAGS) -o $@ $< $(STANDIN_LIB_SRC) -lpthread

$(BUILD)/rawsock: tests/integration/rawsock.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(compile) $(ALL_LDFLAGS) -o $@ $<

$(BUILD)/lease_load: tests/bench/lease_load.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(compile) $(ALL_LDFLAGS) -o $@ $<

# The core alone: it is pure.
$(BUILD)/sim: tests/sim/sim.c $(BUILD)/libcore.a $(BUILD)/libcommon.a Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(compile) $(INCLUDE_core) $(ALL_LDFLAGS) -o $@ $< $(BUILD)/libcore.a $(BUILD)/libcommon.a

$(BUILD)/gpu/cuda_client: $(GPU_SRC) $(wildcard tests/gpu/*.h) Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(compile) -Itests/gpu $(ALL_LDFLAGS) -o $@ $(GPU_SRC) -ldl

# ---------------------------------------------------------------- checking

# The clean-clone promise: each of these installs what is missing first.
.PHONY: deps deps-build deps-check deps-ci
deps: deps-check
deps-build:
	@tools/deps build
deps-check:
	@tools/deps build check
	@tools/fetch-nvidia-mps build/nvidia || test $$? -eq 3
deps-ci: deps-check
	@tools/deps ci

.PHONY: tests-built
tests-built: programs $(UNIT_TESTS) $(STANDINS) $(BUILD)/rawsock $(BUILD)/sim

TEST_ENVIRONMENT = MPS_BUILD=$(abspath $(BUILD)) MPS_REAL_DIR=$(CURDIR)/build/nvidia/535 \
	STANDIN_DIR=$(abspath $(BUILD))/standin

.PHONY: check check-unit check-integration
check: deps-check
	@$(MAKE) --no-print-directory tests-built check-core check-headers
	@$(BUILD)/sim 200000
	@$(TEST_ENVIRONMENT) tools/run-tests $(BUILD)/test-logs $(UNIT_TESTS) $(BATS)
check-unit: $(UNIT_TESTS)
	@$(TEST_ENVIRONMENT) tools/run-tests $(BUILD)/test-logs $(UNIT_TESTS)
check-integration: tests-built
	@$(TEST_ENVIRONMENT) tools/run-tests $(BUILD)/test-logs $(BATS)

# Debian 12's libraries of both compilers do it; _FORTIFY_SOURCE would hide what they look for.
.PHONY: check-asan check-valgrind
check-asan:
	@$(MAKE) --no-print-directory BUILD=build/asan HARDEN= OPTIMIZE=-O1 \
		VARIANT_CFLAGS='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' \
		VARIANT_LDFLAGS='-fsanitize=address,undefined' check-unit check-integration
check-valgrind: $(UNIT_TESTS)
	@for t in $(UNIT_TESTS); do CK_FORK=no valgrind -q --error-exitcode=99 --leak-check=full \
		--child-silent-after-fork=yes "$$t" || exit 1; done

# The core is pure: what its objects want from outside must be on this list.
CORE_MAY_USE := __popcountdi2 strcasecmp strncasecmp memcpy memset memmove memcmp memmem memchr strlen strnlen strcmp strncmp strchr strrchr \
	strstr strcspn strspn snprintf __snprintf_chk vsnprintf __vsnprintf_chk __memcpy_chk __memmove_chk \
	__memset_chk __isoc99_sscanf __isoc23_sscanf sscanf fputs fputc fprintf __fprintf_chk fwrite putc \
	__assert_fail __stack_chk_fail _GLOBAL_OFFSET_TABLE_ text_bytes text_copy text_format text_hash text_parse_int \
	text_parse_seconds text_starts_with
.PHONY: check-core check-headers
check-core: $(BUILD)/libcore.a
	@own=$$(nm --defined-only -g $< 2>/dev/null | awk 'NF == 3 { print $$3 }'); \
	wanted=$$(nm -u $< 2>/dev/null | awk '$$1 == "U" { print $$2 }' | sort -u | \
		grep -vxF -e "$$own" | grep -vE '^__(asan|ubsan|sanitizer)' || true); \
	foreign=$$(grep -vxF -f <(printf '%s\n' $(CORE_MAY_USE)) <<<"$$wanted" || true); \
	if [ -n "$$foreign" ]; then \
		echo "daemon/core is to be pure, and wants:" $$foreign >&2; exit 1; \
	fi
	@if grep -nE '^#include (<sys/|<systemd/|"(command|control|journal|output|process|procinfo|rundir|spawn)\.h")' \
		daemon/core/*.[ch]; then echo "daemon/core may not include these" >&2; exit 1; fi

# Every header stands alone.
check-headers: $(patsubst %,$(BUILD)/headers/%.ok,$(HEADERS))
$(BUILD)/headers/%.h.ok: %.h
	@mkdir -p $(@D)
	@$(CC) -std=gnu17 $(ALL_CPPFLAGS) -Wall -Wextra -Werror -fsyntax-only -x c -include $< /dev/null \
		$(INCLUDE_daemon) -Iclient $(call pkg-flags,--cflags,$(PROGRAM_PACKAGES))
	@touch $@

# A seeded simulation; SIM_SEED replays one.
.PHONY: sim
SIM_EVENTS ?= 1000000
sim: $(BUILD)/sim
	$(BUILD)/sim $(SIM_EVENTS) $(SIM_SEED)

# The units, below a real systemd that is booted in namespaces of its own; skipped, with the reason,
# where that is not permitted.
.PHONY: check-systemd
check-systemd: deps-check
	@tools/deps systemd
	@$(MAKE) --no-print-directory programs $(STANDINS)
	@rm -rf $(BUILD)/systemd
	@$(MAKE) -s install DESTDIR=$(abspath $(BUILD))/systemd/root PREFIX=/usr SYSCONFDIR=/etc \
		UNITDIR=/usr/lib/systemd/system
	@$(TEST_ENVIRONMENT) tests/systemd/check-systemd $(abspath $(BUILD))/systemd || \
		{ test $$? -eq 77 && echo "check-systemd: skipped"; }

# ---------------------------------------------------------------- a GPU

GPU_BUNDLE := build/gpu-bundle
# GPU_OUT=DIR keeps the logs. On a machine with a GPU; there a bundle made elsewhere is used when there is one.
.PHONY: check-gpu gpu-bundle
check-gpu:
	@if [ -x $(GPU_BUNDLE)/check-gpu ]; then \
		exec $(GPU_BUNDLE)/check-gpu $(GPU_BUNDLE)/bin $(GPU_BUNDLE)/bin $(GPU_OUT); \
	else \
		$(MAKE) --no-print-directory all $(BUILD)/gpu/cuda_client && \
		exec tests/gpu/check-gpu $(BUILD) $(BUILD)/gpu $(GPU_OUT); \
	fi
gpu-bundle: deps-build
	@$(MAKE) --no-print-directory BUILD=build/gpu-variant \
		VARIANT_LDFLAGS="-Wl,-rpath,'\$$\$$ORIGIN/../lib' -Wl,--disable-new-dtags" \
		programs build/gpu-variant/gpu/cuda_client
	@rm -rf $(GPU_BUNDLE)
	@tools/gpu-bundle $(GPU_BUNDLE) build/gpu-variant build/gpu-variant/gpu build/gpu-variant/standin

# ---------------------------------------------------------------- measuring

.PHONY: bench
bench: tests-built $(BUILD)/lease_load
	@$(TEST_ENVIRONMENT) tests/bench/lease-overhead.sh
	@$(TEST_ENVIRONMENT) tests/bench/supervision.sh
	@$(TEST_ENVIRONMENT) tests/bench/leases.sh

# ---------------------------------------------------------------- reading

.PHONY: format format-check lint analyze
format:
	clang-format -i $(ALL_C)
format-check:
	clang-format --dry-run -Werror $(ALL_C)

lint: $(BUILD)/common/proto.o
	shellcheck -x $(SCRIPTS)
	shellcheck -s bats $(BATS) $(wildcard tests/integration/*.bash tests/systemd/*.bats tests/systemd/*.bash)
	cppcheck --quiet --std=c11 --language=c --enable=warning,portability,performance \
		--error-exitcode=1 --inline-suppr --suppress=missingInclude --suppress=memleak \
		--suppress=resourceLeak --suppress=ctuuninitvar -D_GNU_SOURCE -DMPS_SUPERVISOR_VERSION='""' \
		-DMPS_SUPERVISOR_SYSCONFDIR='""' $(INCLUDE_daemon) -I$(BUILD)/gen -Iclient $(ALL_SRC)
	printf '%s\n' $(ALL_SRC) | xargs -P 2 -I{} clang-tidy --quiet {} -- -std=gnu17 \
		$(ALL_CPPFLAGS) $(INCLUDE_daemon) -I$(BUILD)/gen -Iclient \
		$(call pkg-flags,--cflags,$(PROGRAM_PACKAGES)) 2>/dev/null

# GCC's analyzer understands the cleanup attribute, so it judges leaks.
analyze:
	@$(MAKE) --no-print-directory BUILD=build/analyze CC=gcc WERROR=-Werror OPTIMIZE=-O1 \
		VARIANT_CFLAGS=-fanalyzer programs
	scan-build --status-bugs -disable-checker unix.Malloc -o build/scan-build --use-cc=clang \
		$(MAKE) --no-print-directory BUILD=build/scan CC=clang HARDEN= programs

# ---------------------------------------------------------------- using

.PHONY: demo
demo: deps-check
	@$(MAKE) --no-print-directory tests-built
	@$(TEST_ENVIRONMENT) tools/demo

$(BUILD)/man/%: docs/man/%.scd
	@mkdir -p $(@D)
	$(Q)scdoc < $< > $@

.PHONY: man install uninstall clean help
man: $(MAN)

install: programs $(if $(shell command -v scdoc),$(MAN))
	install -D -m 755 $(DAEMON) $(DESTDIR)$(PREFIX)/sbin/mps-supervisord
	install -D -m 755 $(CLIENT) $(DESTDIR)$(PREFIX)/bin/mpsctl
	install -d $(DESTDIR)$(SYSCONFDIR)/mps-supervisor/conf.d
	test -e $(DESTDIR)$(SYSCONFDIR)/mps-supervisor/mps-supervisor.conf || \
		install -m 644 conf/mps-supervisor.conf $(DESTDIR)$(SYSCONFDIR)/mps-supervisor/
	install -d $(DESTDIR)$(UNITDIR)
	sed -e 's|@sbindir@|$(PREFIX)/sbin|' systemd/mps-supervisor.service.in \
		> $(DESTDIR)$(UNITDIR)/mps-supervisor.service
	install -m 644 systemd/mps-supervisor.socket $(DESTDIR)$(UNITDIR)/
	install -D -m 644 systemd/mps-supervisor.sysusers \
		$(DESTDIR)$(PREFIX)/lib/sysusers.d/mps-supervisor.conf
	install -D -m 644 systemd/mps-supervisor.tmpfiles \
		$(DESTDIR)$(PREFIX)/lib/tmpfiles.d/mps-supervisor.conf
	install -D -m 644 systemd/mps-supervisor.preset \
		$(DESTDIR)$(PREFIX)/lib/systemd/system-preset/90-mps-supervisor.preset
	install -D -m 644 systemd/mps-supervisor.catalog \
		$(DESTDIR)$(PREFIX)/lib/systemd/catalog/mps-supervisor.catalog
	install -D -m 644 client/completions/mpsctl.bash \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/mpsctl
	install -D -m 644 common/io.mps-supervisor.varlink \
		$(DESTDIR)$(PREFIX)/share/varlink/io.mps-supervisor.varlink
	for page in $(wildcard $(MAN)); do \
		install -D -m 644 $$page $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$${page##*/}; done

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/sbin/mps-supervisord $(DESTDIR)$(PREFIX)/bin/mpsctl \
		$(DESTDIR)$(UNITDIR)/mps-supervisor.service $(DESTDIR)$(UNITDIR)/mps-supervisor.socket \
		$(DESTDIR)$(PREFIX)/lib/sysusers.d/mps-supervisor.conf \
		$(DESTDIR)$(PREFIX)/lib/tmpfiles.d/mps-supervisor.conf \
		$(DESTDIR)$(PREFIX)/lib/systemd/system-preset/90-mps-supervisor.preset \
		$(DESTDIR)$(PREFIX)/lib/systemd/catalog/mps-supervisor.catalog \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/mpsctl \
		$(DESTDIR)$(PREFIX)/share/varlink/io.mps-supervisor.varlink
	for page in $(notdir $(MAN_SRC:.scd=)); do \
		rm -f $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$$page; done

clean:
	rm -rf build

help:
	@echo 'make demo          installs what is missing, builds, runs a job under a lease'
	@echo 'make check         likewise, and runs the tests'
	@echo 'make all           builds mps-supervisord and mpsctl in build/'
	@echo 'make install       DESTDIR=, PREFIX=/usr/local, SYSCONFDIR=/etc, UNITDIR='
	@echo 'make deps          installs what building and testing needs'
	@echo 'make check-systemd the units, below a real systemd in namespaces (root)'
	@echo 'make check-asan    the tests under AddressSanitizer and UBSan'
	@echo 'make sim           a million random events through the core (SIM_SEED=N replays)'
	@echo 'make check-valgrind   the unit tests under valgrind'
	@echo 'make check-gpu     the tests that need a GPU (make gpu-bundle collects what to carry there)'
	@echo 'make bench         measures what a lease and supervision cost'
	@echo 'make lint analyze format format-check'
