# Everything a developer types. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

DIR ?= .
BIN := .venv/bin
# Two workers: what a small CI machine has. `make test WORKERS=8` on a bigger one.
WORKERS ?= 2
MINUTES ?= 3
UI := $(shell find ui/src ui/public -type f 2>/dev/null) ui/index.html ui/vite.config.ts ui/tsconfig.json
UV = $(shell uv --version >/dev/null 2>&1 && echo uv || echo .venv/.tools/bin/uv)

.PHONY: help setup ui up test test-ui check fix schema lock fuzz bench bench-gate bench-hands bench-imports bench-parked bench-asking clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.ready ## install everything into .venv (quick when nothing changed)
	@:

ui: src/assent/server/page/index.html ## build the chat page into the package
	@:

.venv/.ready: requirements.lock pyproject.toml scripts/setup scripts/uv.txt
	@scripts/setup
	@touch $@

%/node_modules/.ready: %/package-lock.json scripts/setup-node .venv/.ready
	@scripts/setup-node $*
	@touch $@

src/assent/server/page/index.html: ui/node_modules/.ready schema/types.ts $(UI)
	@cd ui && PATH="$$OLDPWD/$(BIN):$$PATH" npx --no-install vite build --logLevel warn
	@touch $@

up: setup ui ## start server, client, agent and chat for DIR (make up DIR=~/code/app)
	@# A job of its own has the terminal to itself: Ctrl-C stops Assent in order, and not make, which would end with 130.
	@set -m; $(BIN)/assent up "$(DIR)"; :

test: check ## everything CI runs: check, all tests on WORKERS cores, coverage above 90 % in each package
	@scripts/setup-tests
	@$(BIN)/coverage erase
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal --cov --cov-branch --cov-report=
	@$(BIN)/python scripts/coverage_table.py

check: setup schema/node_modules/.ready ## ruff, pyright, import layers, lock file and generated files
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright src tests bench scripts
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python scripts/check_lock.py
	@$(BIN)/python scripts/schema.py --check

fix: setup ## format, and mend what ruff can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

schema: setup schema/node_modules/.ready ## write schema/ and docs/settings.md from the models
	@$(BIN)/python scripts/schema.py

lock: setup ## pin all dependencies again after a change in pyproject.toml
	@$(UV) pip compile pyproject.toml --all-extras --group dev --universal --generate-hashes \
		--no-annotate --no-header --no-emit-find-links -q -o requirements.lock

fuzz: setup ## run what the gate calls LOW under strace in a sandbox, for MINUTES
	@scripts/setup-tests
	@PYTHONPATH=tests $(BIN)/python -m harness.fuzz --minutes $(MINUTES)

bench: setup ## measure a LOW read_file through the whole stack beside a bare MCP call
	@$(BIN)/python -m bench

bench-gate: setup ## measure verdicts per second of the gate
	@$(BIN)/python -m bench.gate

bench-hands: setup ## measure a sandboxed start beside a plain one, and search_files beside plain ripgrep
	@$(BIN)/python -m bench.hands

bench-imports: setup ## measure the CPU that loading the client and starting a server take
	@$(BIN)/python -m bench.imports

bench-parked: setup ## measure what 10,000 runs that wait for a person cost (some minutes)
	@$(BIN)/python -m bench.parked

bench-asking: setup ## how often a person would be asked, over what real agents did in 107 tasks
	@$(BIN)/python -m bench.asking

clean: ## remove what the targets above made, .venv included
	rm -rf .venv schema/node_modules .coverage .coverage.* htmlcov dist build
	rm -rf .pytest_cache .ruff_cache .hypothesis .import_linter_cache
