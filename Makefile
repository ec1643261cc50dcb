# Everything is installed into .venv, with Python's own venv and pip. No root, no other preparation.
#
#   make demo      crawl a small local web, kill a worker on the way, check the result
#   make check     the fast lane: format, lint, types and unit tests
#   make test      lint, types and all tests
#   make chaos     only the tests that kill processes, with over 1,000 kills (ROUNDS=20 for more)
#   make fuzz      feed the parsers and validators with random input for hours (FUZZ=1000000 for longer)
#   make lint      format, lint and types
#   make services  install the servers that are available as packages, so that fewer tests are skipped
#   make docs      build the manual into site/
#   make bench     measure the cost of a page beside other crawlers (needs nginx; over half an hour)
#   make clean     remove everything that was made, .venv included

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
# Tests that may run beside others. The remaining tests run after them, one at a time.
SHARED := not chaos and not serial
JOBS ?= 2
# Examples that make fuzz draws for each target: 100,000 take some hours.
FUZZ ?= 100000
# Rounds of the chaos tests that draw the moments of their kills: 6 rounds have over 1,000 kills.
ROUNDS ?= 6

.PHONY: help demo check test chaos fuzz services lint docs bench clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

# Each installation has a stamp file. A stamp older than pyproject.toml causes a new installation.
$(VENV)/.base: pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer was found; install one, or name it: make PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing skitter into $(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed: $(VENV)/.base
	@echo "installing the tools of development into $(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

$(VENV)/.services: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group services
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@touch $@

$(VENV)/.bench: $(VENV)/.installed benchmarks/requirements.txt
	$(BIN)/python -m venv .cache/bench
	.cache/bench/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/requirements.txt
	@touch $@

demo: $(VENV)/.base
	$(BIN)/skitter demo

lint: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

check: lint
	$(BIN)/python -m pytest --quiet --numprocesses $(JOBS) -m "$(SHARED)" tests/unit

# pytest exits with status 5 if no test was selected.
test: lint
	$(BIN)/python -m pytest --quiet --numprocesses $(JOBS) -m "$(SHARED)"
	$(BIN)/python -m pytest --quiet -m "not ($(SHARED))" || [ $$? -eq 5 ]

chaos: $(VENV)/.installed
	SKITTER_CHAOS_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest --quiet -m chaos tests/chaos
	SKITTER_EXPLORER_STEPS=5000 $(BIN)/python -m pytest --quiet --numprocesses $(JOBS) tests/contract/test_frontier_explorer.py

fuzz: $(VENV)/.installed
	SKITTER_FUZZ=$(FUZZ) $(BIN)/python -m pytest --quiet --numprocesses $(JOBS) tests/unit/test_fuzz.py

services: $(VENV)/.services

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf $(VENV) .cache .skitter build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +
