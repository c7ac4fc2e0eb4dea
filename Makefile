# SPDX-License-Identifier: Apache-2.0
#
# The front door. Every target can be called first on a fresh machine: it installs what it needs
# (tools/setup says what), builds, and does its work.
#
#   BUILD=dir   where to build (default build/release)
#   QUICK=1     make bench: a few sizes and one round, for a first look within minutes
#   JOBS=n      parallel jobs (default: the processors of this machine)

BUILD  ?= build/release
JOBS   ?= $(shell nproc)
PREFIX ?= /usr/local
CMAKE_FLAGS ?=

.DEFAULT_GOAL := help
.PHONY: help build demo test bench lint check-sanitize clean install

help: ## show this text
	@echo 'make targets:'
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | awk -F'|' '{ printf "  %-16s %s\n", $$1, $$2 }'

build: ## build the library, the command, the examples and the tests in $(BUILD)
	@tools/setup build
	@cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS) -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	@cmake --build $(BUILD) --parallel $(JOBS)

demo: ## train on real data over Shoal and over gloo, and draw what came out
	@tools/setup demo
	@$(MAKE) --no-print-directory build
	@tools/demo

test: ## run all tests
	@tools/setup test
	@$(MAKE) --no-print-directory build
	@tools/run-tests $(BUILD)

bench: ## measure against Gloo, Open MPI, MPICH and Intel MPI
	@tools/setup bench
	@$(MAKE) --no-print-directory build
	@tools/bench $(if $(QUICK),--quick)

lint: ## formatting, warnings under gcc and clang, layers, symbols, style
	@tools/setup lint
	@tools/lint

check-sanitize: ## tests under address+undefined and under thread sanitizer, without the slow ones
	@tools/setup test
	@tools/check-sanitize

install: build ## install into PREFIX (default /usr/local)
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## remove everything that was built
	rm -rf build out dist
