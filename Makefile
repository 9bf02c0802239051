# Everything a person does with this repository. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGES := app watchers providers
# Two or three workers are enough for the tests and leave room for the brokers they start.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 3 ] && n=3; [ $$n -lt 2 ] && n=2; echo $$n)
TESTS ?= tests

.PHONY: help
help:  ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ------------------------------------------------------------------------------------------ environment
.PHONY: install
install: $(STAMP)  ## Create .venv with the locked dependencies and this project (quick the second time)

$(STAMP): pyproject.toml requirements.lock
	@good='import ensurepip, sys; sys.exit(sys.version_info < (3, 11))'
	python="$(PYTHON)"
	for candidate in python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
	  if [ -z "$$python" ] && command -v $$candidate >/dev/null && $$candidate -c "$$good" 2>/dev/null; then python=$$candidate; fi
	done
	if [ -z "$$python" ]; then
	  echo "Tidegate needs Python 3.11 or later with its venv module (on Debian: python3 and python3-venv)." >&2
	  exit 1
	fi
	if ! $(BIN)/python -c "$$good" 2>/dev/null; then
	  echo "Creating $(VENV) with $$($$python --version)"
	  $$python -m venv --clear $(VENV)
	fi
	# uv itself by the hashes of the lock, so that nothing unlocked is ever run.
	awk '/^uv==/ {keep=1; print; next} /^[^ ]/ {keep=0} keep' requirements.lock > $(VENV)/uv.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(VENV)/uv.lock
	# Not abspath, which takes a path with a space for two.
	export VIRTUAL_ENV="$$PWD/$(VENV)"
	$(BIN)/uv pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(STAMP)
	echo "Installed $$($(BIN)/python --version) and the project into $(VENV)"

.PHONY: lock
lock: $(STAMP)  ## Resolve requirements.lock anew from pyproject.toml
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	  --extra all --extra dev pyproject.toml --output-file requirements.lock
	if grep -nE 'https?://|^-' requirements.lock; then echo "requirements.lock must not hold an address" >&2; exit 1; fi

.PHONY: openapi
openapi: $(STAMP)  ## Write openapi.json anew from the code
	@$(BIN)/python -m app.interfaces.http.describe > openapi.json

.PHONY: clean
clean:  ## Remove .venv, caches and build results (never TIDEGATE_HOME)
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist ./*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ------------------------------------------------------------------------------------------------ proof
.PHONY: lint
lint: $(STAMP)  ## Style, format and spelling
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell $(PACKAGES) $(wildcard tests examples docs migrations *.md) Makefile pyproject.toml

.PHONY: types
types: $(STAMP)  ## Types, strict
	@$(BIN)/mypy $(PACKAGES)

.PHONY: floors
floors: $(STAMP)  ## Each module imports only downward
	@$(BIN)/lint-imports

.PHONY: unit
unit: $(STAMP)  ## The tests alone; TESTS=path picks some, WORKERS=n sets how many at once
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not chaos and not bench and not slow" $(TESTS)

.PHONY: test
test: install lint types floors unit  ## Everything that must hold: lint, types, floors, tests, examples

.PHONY: slow
slow: $(STAMP)  ## The proofs that take minutes: whole deployments at full numbers
	@$(BIN)/python -m pytest -m slow -s $(TESTS)

.PHONY: chaos
chaos: $(STAMP)  ## Tests that kill processes and stop services on purpose
	@$(BIN)/python -m pytest -m chaos -s $(TESTS)

# -------------------------------------------------------------------------------------------------- use
.PHONY: run
run: install  ## Start everything on the embedded database with the examples loaded
	@exec $(BIN)/tidegate standalone --dags examples

.PHONY: demo
demo: install  ## The same, with local SQS and Kafka brokers feeding the examples
	@exec $(BIN)/python -m tests.demo

.PHONY: bench
bench: install  ## Measure latency and throughput beside the raw rate of the same database
	@exec $(BIN)/python -m tests.benchmarks
