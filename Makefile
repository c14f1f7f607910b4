# Everything a developer types. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

DIR ?= .
BIN := .venv/bin
# One more than the cores of a small CI machine: tests wait a third of their time. `make test WORKERS=8` on a bigger one.
WORKERS ?= 3
# Measured by default. `make test COVERAGE=` skips it and is quicker.
COVERAGE ?= 1
# Fewer for what drives a browser or an editor: each is several processes already.
BROWSER_WORKERS ?= 2
MINUTES ?= 3
SERVERS ?= 3
DATABASE ?= postgres
VSCODE := $(shell find vscode/src vscode/media -type f 2>/dev/null) vscode/package.json vscode/esbuild.mjs
# The Python client, which the .vsix carries as a wheel.
ENGINE := $(shell find src/byleave -name '*.py' -o -name '*.toml') pyproject.toml requirements-client.lock
UI := $(shell find ui/src ui/public -type f 2>/dev/null) ui/index.html ui/vite.config.ts ui/tsconfig.json
UV = $(shell uv --version >/dev/null 2>&1 && echo uv || echo .venv/.tools/bin/uv)

NODE = export PATH="$(CURDIR)/$(BIN):$$PATH"
# Only the plugins that the tests use: libraries bring others, which cost each worker seconds. And what is compiled is
# kept, also where the environment says otherwise: else every process compiles all of Byleave and its tests again.
PYTEST = PYTHONDONTWRITEBYTECODE= PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 \
	PYTEST_PLUGINS=xdist.plugin,pytest_timeout,pytest_asyncio.plugin,_hypothesis_pytestplugin $(BIN)/pytest
BROWSERS := tests/ui tests/vscode
# They need a processor and little else: they can run beside anything.
PURE := tests/gate tests/protocol
# What runs other projects' software against ours.
COMPAT := tests/compat tests/adapters tests/deploy/test_proxies.py tests/deploy/test_sign_in_behind_proxies.py \
	tests/server/auth/test_identity_provider.py tests/ui/test_sign_in_by_provider.py

.PHONY: help setup ui release docs vsix sdk-js up demo picture test test-browsers test-pure test-rest quick quick-lint quick-tests test-python test-ui test-vscode test-sdk-js test-compat units-ui units-vscode tools check check-lint check-types check-web fix schema lock fuzz chaos bench bench-gate bench-hands bench-imports bench-parked bench-asking bench-growth bench-databases bench-scale bench-page bench-queueing clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.ready ## install everything into .venv (quick when nothing changed)
	@:

ui: src/byleave/server/page/index.html ## build the chat page into the package
	@:

.venv/.ready: requirements.lock pyproject.toml scripts/setup scripts/uv.txt
	@scripts/setup
	@touch $@

%/node_modules/.ready: %/package-lock.json scripts/setup-node .venv/.ready
	@scripts/setup-node $*
	@touch $@

src/byleave/server/page/index.html: ui/node_modules/.ready schema/types.ts $(UI)
	@$(NODE); cd ui && npx --no-install vite build --logLevel error
	@touch $@

release: setup ui ## build wheel, sdist and SBOM into dist/ and check them; publishes nothing
	@scripts/release

docs: setup ## build the documentation site into site/, without the network
	@$(BIN)/python scripts/docs_site.py
	@$(BIN)/zensical build --clean --strict

vsix: dist/byleave.vsix ## pack the VS Code extension into dist/
	@:

dist/byleave.vsix: vscode/node_modules/.ready ui/node_modules/.ready schema/types.ts $(UI) $(VSCODE) $(ENGINE) scripts/vsix
	@scripts/vsix
	@touch $@

sdk-js: sdk-js/node_modules/.ready ## build the SDK for JavaScript into sdk-js/dist
	@rm -rf sdk-js/dist
	@$(NODE); cd sdk-js && npx --no-install tsc -p tsconfig.build.json

up: setup ui ## start server, client, agent and chat for DIR (make up DIR=~/code/app)
	@# A job of its own has the terminal to itself: Ctrl-C stops Byleave in order, and not make, which would end with 130.
	@set -m; $(BIN)/byleave up "$(DIR)"; :

demo: setup ## see in a minute what Byleave does, on a throw-away project
	@set -m; $(BIN)/byleave demo || true

picture: setup ## record the README's moving picture from the real demo (a minute)
	@scripts/record_demo

test: setup ## everything CI runs: check, all tests, and that more than 90 % of each part is covered
	@rm -f .coverage .coverage.*
	@# What waits for the network goes first; what needs a processor alone fills the time.
	@$(MAKE) --no-print-directory -j 3 tools check-types check-lint check-web units-ui units-vscode test-sdk-js test-pure
	@# Browsers wait for most of their time.
	@$(MAKE) --no-print-directory -j 2 -O test-browsers test-rest
	@if [ -n "$(COVERAGE)" ]; then $(BIN)/python scripts/coverage_table.py; fi

# Apart from the rest: browsers keep descriptors and a loop of their own open, and cover nothing that others do not.
test-browsers:
	@$(PYTEST) $(BROWSERS) -n $(BROWSER_WORKERS) --dist worksteal

test-pure: tools
	@TRACED=$(COVERAGE) nice env $(PYTEST) $(PURE) -n 1

# Gives way to browsers, in which a person's patience is measured.
test-rest:
	@TRACED=$(COVERAGE) nice -n 5 env $(PYTEST) -n $(WORKERS) --dist worksteal $(addprefix --ignore=,$(BROWSERS) $(PURE))

quick: setup ## in about a minute: lint, types, and the tests of what changed since main
	@$(MAKE) --no-print-directory -j 3 check-types quick-lint quick-tests

quick-lint:
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/lint-imports --no-logo

quick-tests:
	@$(PYTEST) -x -n 2 $$($(BIN)/python scripts/quick_tests.py)

test-python: setup ui ## the Python tests only (no browser), with coverage
	@scripts/setup-tests
	@rm -f .coverage .coverage.*
	@TRACED=1 $(PYTEST) -n $(WORKERS) --dist worksteal $(addprefix --ignore=,$(BROWSERS))
	@$(BIN)/python scripts/coverage_table.py

units-ui: ui/node_modules/.ready
	@$(NODE); cd ui && npx --no-install vitest run --coverage --silent

units-vscode: vscode/node_modules/.ready tools
	@$(NODE); cd vscode && npx --no-install vitest run --coverage --silent

tools: ui vsix tests/compat/node_modules/.ready
	@scripts/setup-tests
	@scripts/setup-vscode-host

test-ui: setup ui units-ui ## the page only: its units, and every flow in a real Chromium
	@scripts/setup-tests
	@$(PYTEST) tests/ui -n $(BROWSER_WORKERS) --dist worksteal

test-vscode: setup units-vscode ## the extension only: its units, and the packed .vsix in a real VS Code
	@$(PYTEST) tests/vscode

test-sdk-js: sdk-js/node_modules/.ready ## the SDK for JavaScript only: with both libraries, on a real server
	@$(NODE); cd sdk-js && npx --no-install vitest run --coverage --silent

# All of it runs in `make test` too, in its short form and without the Inspector, which is as large as the rest.
test-compat: setup ui test-sdk-js tests/compat/node_modules/.ready tests/compat/inspector/node_modules/.ready ## other projects' software against ours: protocols, frameworks, proxies; Schemathesis for MINUTES
	@scripts/setup-tests
	@COMPAT_SECONDS=$$((60 * $(MINUTES))) $(PYTEST) $(COMPAT) -n $(BROWSER_WORKERS) --dist worksteal -rs

check: setup ## linters, types, import layers, lock file and generated files
	@$(MAKE) --no-print-directory -j 2 check-types check-lint check-web

check-lint: schema/node_modules/.ready
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python scripts/check_lock.py
	@$(BIN)/python scripts/schema.py --check

check-types:
	@$(BIN)/pyright src tests bench scripts

check-web: ui/node_modules/.ready vscode/node_modules/.ready sdk-js/node_modules/.ready
	@$(NODE); cd ui && npx --no-install tsc --noEmit && npx --no-install biome check --error-on-warnings .
	@$(NODE); cd vscode && npx --no-install tsc --noEmit && npx --no-install biome check --error-on-warnings .
	@$(NODE); cd sdk-js && npx --no-install tsc --noEmit && npx --no-install biome check --error-on-warnings .

fix: setup ## format, and mend what ruff can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

schema: setup schema/node_modules/.ready ## write every generated file: schema/, docs/settings.md, docs/cli.md, in sdk-js/src
	@$(BIN)/python scripts/schema.py

lock: setup ## pin all dependencies again after a change in pyproject.toml
	@$(UV) pip compile pyproject.toml --all-extras --group dev --group docs --universal --generate-hashes \
		--no-annotate --no-header --no-emit-find-links -q -o requirements.lock
	@$(UV) pip compile --group release --universal --generate-hashes \
		--no-annotate --no-header --no-emit-find-links -q -o requirements-release.lock
	@# The client alone, at the versions that are tested here.
	@$(UV) pip compile pyproject.toml -c requirements.lock --universal --generate-hashes \
		--no-annotate --no-header --no-emit-find-links -q -o requirements-client.lock

fuzz: setup ## run what the gate calls LOW under strace in a sandbox, for MINUTES
	@scripts/setup-tests
	@PYTHONPATH=tests $(BIN)/python -m harness.fuzz --minutes $(MINUTES)

chaos: setup ## kill and pause servers, clients and database at work, for MINUTES (or STRIKES=n; SERVERS=3, DATABASE=sqlite, BUS=1, SEED=n)
	@scripts/setup-tests
	@PYTHONPATH=tests $(BIN)/python -m harness.chaos $(if $(STRIKES),--strikes $(STRIKES),--minutes $(MINUTES)) \
		--servers $(SERVERS) --database $(DATABASE) $(if $(BUS),--bus) $(if $(SEED),--seed $(SEED))

bench: setup ## measure a LOW read_file through the whole stack beside bare MCP calls (make bench CHECK=1: compare CPU)
	@$(UV) pip install -q --python $(BIN)/python --group bench -c requirements.lock
	@$(BIN)/python -m bench $(if $(CHECK),--check)

bench-gate: setup ## measure verdicts per second of the gate
	@$(BIN)/python -m bench.gate

bench-hands: setup ## measure a sandboxed start beside a plain one, and search_files beside plain ripgrep
	@$(BIN)/python -m bench.hands

bench-imports: setup ## measure the CPU that loading the client and starting a server take
	@$(BIN)/python -m bench.imports

bench-parked: setup ## measure what 10,000 runs that wait for a person cost (some minutes)
	@$(BIN)/python -m bench.parked

bench-growth: setup ## measure what a record of 10,000, 100,000 and a million calls costs (a minute)
	@$(BIN)/python -m bench.growth

bench-databases: setup ## measure calls in SQLite, in PostgreSQL and with three servers on it; NOTIFY beside NATS
	@scripts/setup-tests
	@PYTHONPATH=tests $(BIN)/python -m bench.databases

bench-scale: setup ## measure the memory of 5,000 clients, 200 idle readers and 100,000 open questions (some minutes)
	@$(BIN)/python -m bench.scale

bench-page: setup ui ## measure the chat page in Chromium: frames of a long conversation, time to a question
	@$(BIN)/python -m bench.page

bench-queueing: setup ## how long a write waits for its commit, by simulation, and whether docs/scale.md says so
	@$(BIN)/python -m bench.queueing

bench-asking: setup ## how often a person would be asked, over what real agents did in 107 tasks
	@$(BIN)/python -m bench.asking

clean: ## remove what the targets above made, .venv included
	rm -rf .venv .vscode-host schema/node_modules ui/node_modules vscode/node_modules sdk-js/node_modules sdk-js/dist sdk-js/coverage tests/compat/node_modules tests/compat/inspector/node_modules src/byleave/server/page vscode/dist vscode/engine site .coverage .coverage.* htmlcov dist build
	rm -rf .pytest_cache .ruff_cache .hypothesis .import_linter_cache
