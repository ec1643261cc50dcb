# Everything is installed into .venv, with Python's own venv and pip. No root, no other preparation.
#
#   make demo      crawl a small local site, kill a worker during the crawl, check the result
#   make check     the quick checks: format, lint, types and unit tests
#   make test      lint, types and all tests
#   make chaos     only the tests that kill processes, with over 1,000 kills (ROUNDS=20 for more)
#   make otelcol   build the OpenTelemetry Collector (needs Go; minutes) and send it the traces of a crawl with a killed worker
#   make fuzz      feed the parsers and validators with random input for hours (FUZZ=1000000 for longer)
#   make fuzz-guided TARGET=robots_txt   feed one of them with input that reaches new code, for an hour (atheris)
#   make lint      format, lint and types
#   make services  install the servers that are available as packages, so that fewer tests are skipped
#   make docs      build the manual into site/
#   make screenshots  take the pictures of the console for the manual (needs Chromium)
#   make bench     measure the cost of a page beside other crawlers (needs nginx; over half an hour)
#   make clean     remove everything that was made, .venv included

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
JOBS ?= 2
# Unit tests often wait, so twice as many processes share the cores.
UNIT_JOBS ?= 4
# With compiled files, the hundreds of processes of the tests need not compile all modules again.
export PYTHONDONTWRITEBYTECODE =
# Seconds for which make fuzz-guided runs.
FUZZ_SECONDS ?= 3600
# Examples that make fuzz draws for each target: 100,000 take some hours.
FUZZ ?= 100000
# Rounds of the chaos tests that draw the moments of their kills: 6 rounds have over 1,000 kills.
ROUNDS ?= 6

.PHONY: help demo check unit test chaos otelcol scrapy-oldest fuzz fuzz-guided services lint style types docs screenshots bench clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

# Each installation has a stamp file. A stamp older than what the installation reads causes a new one.
$(VENV)/.base: pyproject.toml setup.py $(wildcard src/skitter/*/*.[ch] src/skitter/*/*/*.c)
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

screenshots: $(VENV)/.installed
	SKITTER_SCREENSHOTS=1 $(BIN)/python -m pytest -q tests/integration/test_console.py

demo: $(VENV)/.base
	$(BIN)/skitter demo

lint: style types

style: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.installed
	$(BIN)/mypy

# mypy and the unit tests run side by side. No unit test uses schemathesis, which takes a second to load in each process.
check: style
	@$(MAKE) --no-print-directory -j 2 types unit

unit: $(VENV)/.installed
	$(BIN)/python -m pytest --quiet --numprocesses $(UNIT_JOBS) -p no:schemathesis tests/unit

test: lint
	rm -f .cache/passed
	SKITTER_PASSED=.cache/passed $(BIN)/python -m pytest --quiet --numprocesses $(JOBS) -m "not chaos"
	SKITTER_PASSED=.cache/passed $(BIN)/python -m pytest --quiet --numprocesses $(JOBS) -m chaos
	$(BIN)/python tests/proofs.py .cache/passed

chaos: $(VENV)/.installed
	SKITTER_CHAOS_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest --quiet -m chaos tests/chaos
	SKITTER_CHAOS_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest --quiet tests/services/test_nsq_seeds.py
	SKITTER_EXPLORER_STEPS=5000 $(BIN)/python -m pytest --quiet --numprocesses $(JOBS) tests/contract/test_frontier_explorer.py

# Scrapy 2.13 needs an older Twisted than the latest Scrapy.
scrapy-oldest: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .cache/scrapy-oldest \
		scrapy==2.13.0 twisted==25.5.0
	SKITTER_TEST_SCRAPY=$(CURDIR)/.cache/scrapy-oldest $(BIN)/python -m pytest --quiet --numprocesses $(JOBS) -p no:schemathesis \
		tests/integration/test_scrapy.py -k "same_items or cannot_be_stored or once or batch_by_batch or pauses"

otelcol: $(VENV)/.installed
	cd tests/services/otelcol && CGO_ENABLED=0 go build -buildvcs=false -o ../../../.cache/otelcol .
	SKITTER_OTELCOL=.cache/otelcol $(BIN)/python -m pytest --quiet tests/chaos/test_tracing_kill.py

fuzz: $(VENV)/.installed
	SKITTER_FUZZ=$(FUZZ) $(BIN)/python -m pytest --quiet --numprocesses $(JOBS) tests/unit/test_fuzz.py

fuzz-guided: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet atheris
	$(BIN)/python tests/guided_fuzz.py $(TARGET) .cache/fuzz/$(TARGET) -max_total_time=$(FUZZ_SECONDS)

services: $(VENV)/.services

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf $(VENV) .cache .skitter build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +
