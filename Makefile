# Every target makes .venv with everything by itself, once; `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN := .venv/bin
READY := .venv/.ready
# Many tests wait more than they work: for servers that fail, for timeouts, for processes that they started. Tests of every day that need Spark share a worker; the soak minds how long it waits.
JOBS ?= 3
LONG_JOBS ?= 3
SOAK_JOBS ?= 2
SOAK ?=
FRESH ?=
MUTATE ?=
BENCH ?=
PYTEST := $(BIN)/python -m pytest

.PHONY: help
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 12

.PHONY: venv
venv: $(READY)  ## make .venv with mzsql and all it needs

$(READY): pyproject.toml $(wildcard plugins/*/pyproject.toml) .ci/python
	@rm -f $@
	@python="$$(.ci/python)"; \
	if ! [ -x $(BIN)/python ] || ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo "making .venv with $$python"; \
		"$$python" -m venv --clear .venv || { \
			echo "$$python cannot make a virtual environment: install its venv module (on Debian and Ubuntu: apt install python3-venv)" >&2; \
			exit 1; }; \
	fi
	@echo "installing what mzsql needs into .venv (once; a few minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' $(patsubst %/pyproject.toml,-e %,$(wildcard plugins/*/pyproject.toml))
	@touch $@

.PHONY: java
java:
	@.ci/java

.PHONY: demo
demo: java $(READY)  ## the main job, narrated, in a temporary directory
	@$(BIN)/mzsql demo

.PHONY: test
test: java $(READY)  ## the tests of every day
	$(PYTEST) -m "not long and not soak" -n $(JOBS) --dist loadgroup

.PHONY: test-long
test-long: java $(READY)  ## the tests that take longer
	$(PYTEST) -m "long and not soak" -n $(LONG_JOBS) --dist loadfile --timeout 1200

.PHONY: test-soak
test-soak: java $(READY)  ## the tests that take longest, before a release; SOAK="-k name" for some of them
	$(PYTEST) -m soak -n $(SOAK_JOBS) --dist loadfile --timeout 7200 $(SOAK)

.PHONY: test-fresh
test-fresh: $(READY)  ## the tests of every day without Spark, with new examples where they are drawn; FRESH=tests/repr for some of them
	$(PYTEST) -m "not spark and not long and not soak" -n $(JOBS) --dist loadfile --hypothesis-profile fresh $(FRESH)

SECONDS ?= 600

.PHONY: simulate
simulate: $(READY)  ## shards on failing backends, new seeds for SECONDS=600; SEED=n runs one again and shows it
	$(BIN)/python tests/simulation $(if $(SEED),--seed $(SEED) --verbose,--start $$(date +%s) --seconds $(SECONDS))

.PHONY: fuzz
fuzz: $(READY)  ## random queries against PostgreSQL, new seeds for SECONDS=600; SEED=n runs one again and makes it smaller; VIEWS=1: maintained views
	$(BIN)/python tests/fuzz $(if $(VIEWS),--views) $(if $(SEED),--seed $(SEED),--start $$(date +%s)00 --seconds $(SECONDS))

ROOM ?= all
COUNT ?= 10

.PHONY: mutate
mutate: java $(READY)  ## faults in the code that the tests of every day must notice; ROOM=persist COUNT=10 SEED=n
	$(BIN)/python tests/mutation --room $(ROOM) --count $(COUNT) --seed $(or $(SEED),0) $(MUTATE)

RUNS ?= 100

.PHONY: histories
histories: java $(READY)  ## RUNS=100 recorded histories of processes that are killed and stopped, looked through for anomalies
	$(BIN)/python tests/e2e/history_run.py --runs $(RUNS)

.PHONY: check
check: $(READY)  ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: bench
bench: bench-persist bench-backends bench-oracle bench-coordinator bench-planning bench-refresh bench-hydration bench-replicas bench-startup bench-spark  ## all benchmarks, one after the other

.PHONY: bench-persist
bench-persist: java $(READY)  ## what shards cost, against pyarrow, Spark, delta-rs and pyiceberg; BENCH="--scale 0.1" for a quick look
	@[[ "$(BENCH)" =~ --only\ [abgi,]+$$ ]] || $(BIN)/python -c 'import deltalake, pyiceberg, sqlalchemy' 2>/dev/null || { \
		echo "installing what the benchmark compares with into .venv"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'; }
	$(BIN)/python bench/persist $(BENCH)

.PHONY: bench-backends
bench-backends: java $(READY)  ## what S3 and PostgreSQL cost, against boto3 and psycopg alone; BENCH="--quick" for a quick look
	$(BIN)/python bench/backends $(BENCH)

.PHONY: bench-oracle
bench-oracle: java $(READY)  ## what timestamps cost, against psycopg through a pool; BENCH="--quick" for a quick look
	$(BIN)/python bench/oracle $(BENCH)

.PHONY: bench-coordinator
bench-coordinator: java $(READY)  ## inserts, updates and peeks of many sessions against one; BENCH="--quick" for a quick look
	$(BIN)/python bench/coordinator $(BENCH)

.PHONY: bench-planning
bench-planning: java $(READY)  ## from a text to its plan, against sqlglot's optimizer and Spark's; BENCH="--quick" for a quick look
	$(BIN)/python bench/planning $(BENCH)

.PHONY: bench-refresh
bench-refresh: java $(READY)  ## what refreshes take and cost, against DuckDB and Spark recomputing; BENCH="--scales 0.01 --rounds 6" for a quick look
	$(BIN)/python bench/refresh $(BENCH)

.PHONY: bench-hydration
bench-hydration: java $(READY)  ## what it costs hydrations to be told of, node by node; BENCH="--scales 0.01 --pairs 4 --dataflows 20" for a quick look
	$(BIN)/python bench/hydration $(BENCH)

.PHONY: bench-replicas
bench-replicas: java $(READY)  ## replicas in processes of their own, against the one in process; BENCH="--scales 0.01 --rounds 9 --idle 30 --killing 30" for a quick look
	$(BIN)/python bench/replicas $(BENCH)

.PHONY: bench-startup
bench-startup: java $(READY)  ## what opening environments of very many views takes; BENCH="--views 100" for a quick look
	$(BIN)/python bench/startup $(BENCH)

.PHONY: bench-spark
bench-spark: java $(READY)  ## reading and registering an environment of many objects from Spark alone; BENCH="--objects 200" for a quick look
	$(BIN)/python bench/spark $(BENCH)

.PHONY: clean
clean:  ## remove .venv and everything that was built or cached
	rm -rf .venv build dist *.egg-info plugins/*/build plugins/*/*.egg-info demo-env
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
