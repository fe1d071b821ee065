# Every target is a line or two that calls a tool; `make` alone prints them.
.DEFAULT_GOAL := help
BIN := .venv/bin
WORKERS := 3

.PHONY: help setup demo test test-long check fmt lint types imports sizes fix bench bench-quick bench-runs chaos chaos-runs chaos-services campaign-blame campaign-debts campaign-dependencies campaign-history campaign-plans campaign-properties campaign-runs campaign-scheduling campaign-simulation campaign-wake fuzz mutate pressure up docs spec model stress stress-small ci clean

help: ## print this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## create .venv and install the locked dependencies (nothing to do when ready)
	@tools/setup.sh

demo: setup ## run the example campaign on a temporary embedded stack
	@$(BIN)/mitosis demo

test: setup ## run the test suite, WORKERS files at a time (ARGS="-k name": a part of it; WORKERS=4)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-long: setup ## long forms of the tests: faults at each moment, kill campaigns, pressure, guides (ARGS, WORKERS as above)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -o testpaths=tests/long $(ARGS)

check: setup ## format, lint, types, imports and size report, side by side (under 45 s)
	@$(MAKE) --no-print-directory --output-sync --jobs 2 types fmt lint imports sizes

fmt: setup ## is everything formatted?
	@$(BIN)/ruff format --check --quiet . || { echo 'Not formatted: run "make fix".'; exit 1; }

lint: setup ## ruff
	@$(BIN)/ruff check --quiet .

types: setup ## mypy, strict
	@$(BIN)/mypy

imports: setup ## import directions (.importlinter)
	@$(BIN)/lint-imports --no-logo >/dev/null || $(BIN)/lint-imports --no-logo

sizes: setup ## lengths of files and functions
	@$(BIN)/python tools/sizes.py

fix: setup ## format, and repair what ruff can repair by itself
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --quiet --fix .

chaos: setup ## kill -9 of everything under 3,000 tasks, twice, and a mix of verbs and faults over 10,000 (ARGS="--seed N")
	@$(BIN)/python -m tests.chaos $(ARGS)

chaos-runs: setup ## kill -9 of each of six parts at each of six moments of a run, under 300 runs of 50 tasks (12 minutes; ARGS="--seed N")
	@$(BIN)/python -m tests.chaos.runs $(ARGS)

chaos-services: setup ## 20 worker services and 10,000 named tasks under kills, stops, changed configurations and drains (10 minutes; ARGS="--seed N --services N --tasks N")
	@$(BIN)/python -m tests.chaos.services $(ARGS)

campaign-blame: setup ## 1,000 random fleets of good and broken hosts against the rules of blame, and 300 that serve several task groups (20 minutes)
	@MITOSIS_CAMPAIGN_EXAMPLES=1000 $(BIN)/python -m pytest -q -n 0 --timeout 1800 tests/integration/store/leases/test_blame_model.py
	@MITOSIS_CAMPAIGN_EXAMPLES=300 $(BIN)/python -m pytest -q -n 0 --timeout 3600 tests/long/store/test_blame_of_groups.py

campaign-dependencies: setup ## 500 random graphs of tasks under random ends, cancels and retries (12 minutes)
	@MITOSIS_CAMPAIGN_EXAMPLES=500 $(BIN)/python -m pytest -q -n 0 --timeout 3600 tests/integration/store/dependencies/test_random_graphs.py

campaign-history: setup ## 10,000 signals and 10,000 updates to one task group (ARGS=COUNT)
	@$(BIN)/python -m tests.campaigns.history $(ARGS)

campaign-plans: setup ## the plan of every statement beside a million tasks: no scan of a large table, no sort of a large set (4 minutes)
	@$(BIN)/python -m pytest -q -n 0 tests/long/store/test_statement_plans.py

campaign-properties: setup ## 1,000 random examples for each property of pure code (10 minutes)
	@MITOSIS_CAMPAIGN_EXAMPLES=1000 $(BIN)/python -m pytest -n 2 -q --timeout 3600 tests/properties tests/unit

campaign-runs: setup ## 500 random jobs under random ends, cancels, time limits and reruns (10 minutes)
	@MITOSIS_CAMPAIGN_EXAMPLES=500 $(BIN)/python -m pytest -q -n 0 --timeout 3600 tests/integration/store/runs/test_random_runs.py

campaign-scheduling: setup ## 3,000 random fleets for each property of a scheduling decision (6 minutes)
	@MITOSIS_CAMPAIGN_EXAMPLES=3000 $(BIN)/python -m pytest -n 0 -q --timeout 3600 tests/properties/scheduling/test_decide.py tests/properties/scheduling/test_contestable.py

campaign-simulation: setup ## four policies on 100 hosts for 4 days and on 1,000 hosts for 4 weeks, into docs/simulation.md (ARGS=--small: only the first)
	@$(BIN)/python -m bench.simulation --write $(ARGS)

stress: setup ## 50 simulated agents and 200 task groups under random verbs on the real stack, then random sequences against the rules of scheduling (20 minutes; ARGS="--seed N --minutes N")
	@$(BIN)/python -m tests.campaigns.stress $(ARGS)
	@MITOSIS_CAMPAIGN_EXAMPLES=150 $(BIN)/python -m pytest -n 0 -q --timeout 3600 tests/long/store/test_scheduling_machine.py

stress-small: setup ## the first part of it with 8 agents and 20 task groups (1 minute)
	@$(BIN)/python -m tests.campaigns.stress --agents 8 --groups 20 --minutes 0.5 $(ARGS)

campaign-debts: setup ## 500 random sequences of verbs and failures: every setup is torn down once (about 5 minutes)
	@MITOSIS_CAMPAIGN_EXAMPLES=500 $(BIN)/python -m pytest -n 0 -q --timeout 3600 tests/long/store/test_debts.py

campaign-wake: setup ## pokes and notifications lost at random beside verbs and lost hosts (10 minutes; ARGS="--seed N --steps N")
	@$(BIN)/python -m tests.campaigns.wake $(ARGS)

fuzz: setup ## 100,000 random calls of every route, as every kind of caller: no server error, nothing undocumented (an hour; goes on where it stopped; ARGS="--seed N --calls N --chunk N")
	@$(BIN)/python -m tests.fuzz $(ARGS)

mutate: setup ## break the guards one by one and name those that no test notices (half an hour; goes on where it stopped)
	@$(BIN)/python tools/mutate $(ARGS)

pressure: setup ## API, PostgreSQL, Temporal away for 60 s under 120 s tasks (6 minutes); ARGS=flood: a fast submitter
	@$(BIN)/python -m tests.pressure $(ARGS)

bench-quick: setup ## the speed of the whole product beside its floors (under 4 minutes), into docs/
	@$(BIN)/python bench/quick.py --write

bench-runs: setup ## latencies, rates and memory of runs of jobs, and what they cost other tasks (4 minutes), into docs/
	@$(BIN)/python -m bench.runs --write

bench: setup ## run every benchmark in bench/ and print its table
	@for script in bench/*.py; do $(BIN)/python $$script || exit 1; done

up: setup ## run the whole stack until Ctrl-C
	@$(BIN)/mitosis up

docs: setup ## write the generated documents again
	@for tool in tools/gen_*.py; do $(BIN)/python $$tool || exit 1; done

spec: setup ## how many requirement lines the last full test runs have proven
	@$(BIN)/python tools/spec.py

model: ## explore every interleaving of the protocol's models (6 minutes, g++; ARGS=wake for one of them)
	@tools/model/run $(ARGS)

ci: check test test-long spec ## what .ci/run runs, before its demo and ordinary-user part

clean: ## remove the environment, caches and build results
	rm -rf .venv .venv.lock dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .spec
