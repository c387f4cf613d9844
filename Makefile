# The few commands a user or a developer types; everything else is CMake (see CMakePresets.json).
#
#   make run     install what is missing, build a release, start the server on 127.0.0.1:9440
#                (data in ./data; more flags: make run ARGS="--log.level=debug")
#   make build   install and build build/release/rimstone and build/release/rimtool, nothing else
#   make test    install, build and run every check and test
#   make check   format, lint, layering, banned functions and the rest of scripts/check-*
#   make bench   the programs of bench/, one figure a line
#   make asan    every test under AddressSanitizer and UndefinedBehaviorSanitizer
#   make tsan    every test under ThreadSanitizer
#   make promql-diff PROMETHEUS=<a Prometheus 3 program>   random queries to both, compared
#   make soak    the life cycle of a release under load for SOAK_SECONDS (default 3600)
#   make crash   crashes at every file operation of each step of the life cycle, and again at every
#                one of each recovery, in every way of losing data (a release; CPU minutes)
#   make fuzz    every fuzz target for FUZZ_SECONDS (default 60) each
#
# JOBS sets how many compilers and tests run at once (default: the number of cores).

FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 3600
ARGS ?=
PROMETHEUS ?=

.PHONY: help build run test check bench asan tsan promql-diff soak crash fuzz

help:
	@sed -n 's/^#   make/make/p; s/^#    */             /p' Makefile

build:
	scripts/install-deps.sh build
	scripts/build.sh release rimstone rimtool

run: build
	scripts/run.sh $(ARGS)

test:
	scripts/install-deps.sh build test check
	scripts/test.sh

check:
	scripts/install-deps.sh build test check
	scripts/check.sh --all

bench:
	scripts/install-deps.sh build test
	scripts/build.sh release
	scripts/bench.sh

asan:
	scripts/install-deps.sh build test
	scripts/build.sh asan-ubsan
	scripts/ctest.sh asan-ubsan

tsan:
	scripts/install-deps.sh build test
	scripts/build.sh tsan
	scripts/ctest.sh tsan

promql-diff: build
	PROMETHEUS="$(PROMETHEUS)" RIMSTONE=build/release/rimstone tests/integration/promql_diff.py $(ARGS)

soak: build
	SOAK_SECONDS=$(SOAK_SECONDS) RIMSTONE=build/release/rimstone RIMTOOL=build/release/rimtool \
		tests/integration/soak.py

crash:
	scripts/install-deps.sh build test
	RIMSTONE_TESTS=ON scripts/build.sh release test_compactor_life_crash
	RIMSTONE_CRASH_STRIDE=1 scripts/ctest.sh release -R '^test_compactor_life_crash_'

fuzz:
	scripts/install-deps.sh build test
	scripts/fuzz.sh $(FUZZ_SECONDS)
