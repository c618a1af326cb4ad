# Every target sets itself up: it needs Python 3.11 or later, a Java 17 runtime, and make.
# `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SCHEDULES ?= 1500
LOG_SCHEDULES ?= 500
SEED ?= 1
ROUNDS ?= 50
KILLS ?= 20
CASES ?= 2000
# A file's tests share processes that are dear to start. In the order of the tree: the short tests
# of units come last and fill the gaps.
PARALLEL ?= -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types pytest sim sim-coverage fuzz kill-test exactly-once differential leader-stream complete-mode metadata-size sql-table abuse-test many-ledgers ack-audit mutation-score matrix interop bench proto lock clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

setup: $(STAMP) ## The virtual environment that all targets use

demo: $(STAMP) ## Write real flights through Spark, lose a bookie on the way, read every row back
	$(BIN)/ledgerlog demo

test: lint types pytest sim ## Everything that must be green: style, types, tests, simulation

lint: $(STAMP) ## ruff, rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy --strict on both packages
	$(BIN)/mypy

pytest: $(STAMP) ## All tests; `make sim` runs more schedules than these do
	LEDGERLOG_SIM_SCHEDULES=400 $(BIN)/python -m pytest $(PARALLEL)

sim: $(STAMP) ## SCHEDULES random schedules of ledgers, from SEED; LOG_SCHEDULES of logs and of leaders
	$(BIN)/python -m tests.sim --schedules $(SCHEDULES) --seed $(SEED)
	$(BIN)/python -m tests.sim.log --schedules $(LOG_SCHEDULES) --seed $(SEED)
	$(BIN)/python -m tests.sim.leader --schedules $(LOG_SCHEDULES) --seed $(SEED)
	$(BIN)/python -m tests.sim.handles --schedules $$(( $(LOG_SCHEDULES) / 4 )) --seed $(SEED)

sim-coverage: $(STAMP) ## What 500 schedules of either kind of log reach, and what they never do and why
	$(BIN)/python -m tests.sim.log --coverage --schedules 500 --seed 1
	$(BIN)/python -m tests.sim.leader --coverage --schedules 500 --seed 1

fuzz: $(STAMP) ## Properties with many new random examples
	HYPOTHESIS_PROFILE=search $(BIN)/python -m pytest tests/unit tests/properties

kill-test: $(STAMP) ## ROUNDS rounds of SIGKILL on real processes during appends
	$(BIN)/python -m tests.kill_test --rounds $(ROUNDS)

exactly-once: $(STAMP) ## KILLS kills of drivers, workers, bookies and ZooKeeper under two streaming queries
	$(BIN)/python -m tests.exactly_once --kills $(KILLS) --seed $(SEED)

differential: $(STAMP) ## CASES random predicates, from SEED, on logs and on the same rows in Parquet
	$(BIN)/python -m tests.differential --cases $(CASES) --seed $(SEED)

leader-stream: $(STAMP) ## A stream over 5,000,000 records while their leader rolls and loses a bookie
	$(BIN)/python -m tests.leader_stream

complete-mode: $(STAMP) ## 1,000 batches that replace a log whole: what stays on the bookies' disks
	$(BIN)/python -m tests.complete_mode

metadata-size: $(STAMP) ## What 10,000 micro-batches leave in ZooKeeper
	$(BIN)/python -m benchmarks.metadata_size

sql-table: $(STAMP) ## The table of SQL statements in docs/SPARK.md, from the test that runs them
	LEDGERLOG_UPDATE_DOCS=1 $(BIN)/python -m pytest -n0 -q tests/spark/test_sql_statements.py

ack-audit: $(STAMP) ## A bookie under strace: the sync that covers it precedes each answer
	$(BIN)/python -m tests.ack_audit

mutation-score: $(STAMP) ## How many of a list of plausible mistakes the simulators and the tests notice
	$(BIN)/python -m tests.mutation

matrix: $(STAMP) ## Tests in every Python and PySpark that the metadata allows (needs those Pythons)
	$(BIN)/python -m tests.matrix

abuse-test: $(STAMP) ## Bookies under 12 kinds of abuse: a good client's slowest append, the bookies' memory
	$(BIN)/python -m tests.abuse

many-ledgers: $(STAMP) ## A bookie with 100,000 ledgers: how long its event loop and its adds are held up
	$(BIN)/python -m tests.many_ledgers

interop: $(STAMP) ## Apache BookKeeper's client on our bookies, and ours on its bookies (needs Maven)
	$(BIN)/python -m tests.interop

bench: $(STAMP) ## All benchmarks, each beside the machine's limit in the same run
	$(BIN)/python -m benchmarks

# The oldest release whose stubs are wanted: newer ones refuse the runtimes that we still accept.
PROTO_TOOLS := grpcio-tools==1.73.1

proto: ## Python stubs of the control service
	$(PYTHON) -m venv .venv/proto
	.venv/proto/bin/pip install --quiet --disable-pip-version-check $(PROTO_TOOLS)
	.venv/proto/bin/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. \
		ledgerlog_spark/transport/control.proto

lock: $(STAMP) ## requirements.lock from pyproject.toml
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --extra dev pyproject.toml -o requirements.lock

clean: ## What builds and tests leave behind, the virtual environment excepted
	rm -rf dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db
