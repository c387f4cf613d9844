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
#   make fuzz    every fuzz target for FUZZ_SECONDS (default 60) each
#
# JOBS sets how many compilers and tests run at once (default: the number of cores).

FUZZ_SECONDS ?= 60
ARGS ?=
PROMETHEUS ?=

.PHONY: help build run test check bench asan tsan promql-diff fuzz

help:
	@sed -n 's/^#   make/make/p; s/^#    */             /p' Makefile

build:
	scripts/install-deps.sh build
	scripts/build.sh release

run: build
	scripts/run.sh $(ARGS)

test:
	scripts/install-deps.sh build test check
	scripts/test.sh

check:
	scripts/install-deps.sh build test check
	scripts/check.sh --all

bench: build
	scripts/install-deps.sh test
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

fuzz:
	scripts/install-deps.sh build test
	scripts/fuzz.sh $(FUZZ_SECONDS)
