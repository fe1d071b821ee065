# Every target is one line that calls a tool; `make` alone prints them.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test check fmt lint types imports sizes bench up docs spec ci clean

help: ## print this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 12

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

setup: $(READY) ## create .venv and install the locked dependencies

demo: setup ## run the example campaign on a temporary embedded stack
	@$(BIN)/mitosis demo

test: setup ## run the test suite
	@$(BIN)/python -m pytest

check: fmt lint types imports sizes ## format, lint, types, imports, size report (under 45 s)

fmt: setup ## check the formatting
	@$(BIN)/ruff format --check --quiet .

lint: setup ## ruff
	@$(BIN)/ruff check --quiet .

types: setup ## mypy, strict
	@$(BIN)/mypy

imports: setup ## import directions
	@$(BIN)/lint-imports --no-logo >/dev/null || $(BIN)/lint-imports --no-logo

sizes: setup ## size report
	@$(BIN)/python tools/sizes.py

up: setup ## run the whole stack until Ctrl-C
	@$(BIN)/mitosis up

ci: check test spec ## what .ci/run runs

clean: ## remove the environment and caches
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
