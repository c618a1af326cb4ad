# Each target first installs its packages. You need Python 3.11 or later, a Java 17 runtime, and make. The tests
# with a browser need Chromium.
# `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SBT_VERSION := 1.13.0
SBT := $(VENV)/sbt/sbt-launch-$(SBT_VERSION).jar
SBT_OPTIONS := -Xmx1g -Dsbt.override.build.repos=true -Dsbt.repository.config=project/repositories \
	-Dsbt.supershell=false -Dsbt.server.autostart=false
JAR := ledgerlog_spark/jars/ledgerlog-spark.jar
SCHEDULES ?= 5000
LOG_SCHEDULES ?= 500
LOSS_SCHEDULES ?= 10000
HEAL_SCHEDULES ?= 1000
SEED ?= 1
ROUNDS ?= 100
STATES ?= 12000
KILLS ?= 20
SECONDS ?= 600
CASES ?= 2000
AWAY ?= 300
ONLY ?=
CORES ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# The tests of a file share processes that start slowly, so they run together. The files run in the
# order of the tree: the short unit tests come last, so all cores are busy until the end.
PARALLEL ?= -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# Arguments of pytest, for every target that calls pytest: make check PYTEST_ARGS='-x -k leader'
PYTEST_ARGS ?=
# With COVERAGE=1, `check`, `pytest` and `fuzz` print which lines of both packages they reach.
COVERAGE ?=
FAST := tests/architecture tests/unit tests/transcripts tests/docs/test_tutorials.py
PYTEST := $(BIN)/python -m pytest $(if $(filter 1,$(COVERAGE)),--cov --cov-report=term) $(PYTEST_ARGS)
# The targets that `make soak` runs, the short targets first.
SOAK ?= fuzz ack-audit crash-test corruption-test disk-errors kill-test limbo-test heal-test outage-test bookie-soak many-ledgers abuse-test metadata-size leader-stream differential \
	complete-mode tpch sim-loss sim-heal sim-coverage exactly-once interop mutation-score matrix

# The tests start hundreds of Python processes. Compiled modules halve the CPU time of each start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo check test shim jar soak lint types pytest sim sim-handles sim-log sim-leader sim-service sim-transport sim-loss sim-heal sim-coverage fuzz crash-test corruption-test disk-errors kill-test limbo-test heal-test outage-test exactly-once differential leader-stream complete-mode metadata-size sql-table tpch abuse-test bookie-soak many-ledgers ack-audit mutation-score random-search matrix interop bench docs tutorials proto lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# PySpark has no wheel: it is built while pip installs the other packages.
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check
IS_PYSPARK := /^[^ ]/ { is_pyspark = /^pyspark[^a-z-]/ }

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	awk '$(IS_PYSPARK) is_pyspark' requirements.lock > $(VENV)/pyspark.lock
	awk '$(IS_PYSPARK) !is_pyspark' requirements.lock > $(VENV)/others.lock
	$(PIP_INSTALL) --no-deps --require-hashes -r $(VENV)/pyspark.lock & pyspark=$$!; \
	$(PIP_INSTALL) --no-deps --require-hashes -r $(VENV)/others.lock; others=$$?; \
	wait $$pyspark && exit $$others
	$(PIP_INSTALL) --no-deps -e .
	$(BIN)/pip check --disable-pip-version-check
	@touch $@

setup: $(STAMP) ## Install the virtual environment that all targets use

demo: $(STAMP) ## Write rows of flights through Spark, kill a bookie during the write, and read all rows back
	$(BIN)/ledgerlog demo

check: lint types ## Run the short checks of a change: style, types, unit tests, transcripts, architecture
	$(PYTEST) -q $(PARALLEL) $(FAST)

# The simulators run after the tests, with many schedules. So the tests themselves run fewer
# schedules, with other seeds. The rarest mutation of the protocol of ledgers was found after 292
# schedules (docs/TESTING.md).
test: export LEDGERLOG_SIM_FOLLOWS := 1
test: export LEDGERLOG_SIM_SEED := 10000
test: ## Run all checks that must pass before a review: style, types, the jar, all tests, simulation
	+@$(MAKE) --no-print-directory --output-sync=target -j$(CORES) types shim lint
	+@$(MAKE) --no-print-directory pytest
	+@$(MAKE) --no-print-directory sim SCHEDULES=300 LOG_SCHEDULES=100

$(SBT):
	mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
		-Dartifact=org.scala-sbt:sbt-launch:$(SBT_VERSION) -DoutputDirectory=$(@D)

# A running Spark session opens its jars repeatedly, so the jar is replaced in one step.
shim: $(STAMP) $(SBT) ## Build the jar of the JVM engine with sbt, and run its Scala tests (needs Maven)
	java $(SBT_OPTIONS) -Dspark.jars.folder=$$($(BIN)/python -c "import pathlib, pyspark; \
		print(pathlib.Path(pyspark.__file__).parent / 'jars')") -jar $(SBT) scalafmtCheckAll test package
	@mkdir -p $(dir $(JAR))
	cp jvm-shim/target/ledgerlog-spark.jar $(JAR).part && mv $(JAR).part $(JAR)

# Builds the jar without sbt and without its Scala tests, and only if a source is newer than the jar.
jar: $(STAMP)
	$(BIN)/python project/build_jar.py

soak: $(STAMP) ## Run all long checks one after the other, even after a failure; list the failures
	@$(if $(strip $(SOAK)),,$(error SOAK is empty: name the checks to run, or leave it out))
	@failed=""; \
	for target in $(SOAK); do \
		echo "== make $$target"; \
		$(MAKE) --no-print-directory $$target || failed="$$failed $$target"; \
	done; \
	set -- $$failed; \
	echo "soak: $(words $(SOAK)) ran, $$# failed$${failed:+:$$failed}"; \
	test $$# -eq 0

lint: $(STAMP) ## Check rules and format with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## Check the packages and the tests with mypy --strict
	$(BIN)/mypy

pytest: $(STAMP) ## Run all tests, with fewer schedules than `make sim`
	LEDGERLOG_SIM_SCHEDULES=200 $(PYTEST) $(PARALLEL)

sim: $(STAMP) ## Run SCHEDULES random schedules of ledgers, then LOG_SCHEDULES schedules of logs and of leaders; SEED is the first seed
	$(BIN)/python -m tests.sim --schedules $(SCHEDULES) --seed $(SEED) --workers $(CORES)
	+@$(MAKE) --no-print-directory -j$(CORES) sim-handles sim-log sim-leader sim-service sim-transport

# Each of these targets runs one schedule after the other. `make sim` runs CORES of these targets at a time.
sim-handles: $(STAMP)
	$(BIN)/python -m tests.sim.handles --schedules $$(( ($(LOG_SCHEDULES) + 3) / 4 )) --seed $(SEED)

sim-log: $(STAMP)
	$(BIN)/python -m tests.sim.log --schedules $(LOG_SCHEDULES) --seed $(SEED)
	$(BIN)/python -m tests.sim.log.lists --schedules $$(( ($(LOG_SCHEDULES) + 4) / 5 )) --seed $(SEED)

sim-leader: $(STAMP)
	$(BIN)/python -m tests.sim.leader --schedules $(LOG_SCHEDULES) --seed $(SEED)

sim-service: $(STAMP)
	$(BIN)/python -m tests.sim.service --schedules $(LOG_SCHEDULES) --seed $(SEED)

sim-transport: $(STAMP)
	$(BIN)/python -m tests.sim.transport --schedules $$(( ($(LOG_SCHEDULES) + 4) / 5 )) --seed $(SEED)

sim-loss: $(STAMP) ## Run LOSS_SCHEDULES random schedules in which bookies lose records, with each of three limits of the number of such bookies
	for limit in one quorum any; do \
		$(BIN)/python -m tests.sim.loss --limit $$limit --schedules $(LOSS_SCHEDULES) --seed $(SEED) \
			--workers $(CORES) || exit 1; \
	done

sim-heal: $(STAMP) ## Run HEAL_SCHEDULES random schedules of each simulator of auto-recovery: workers, auditors, checks of copies, vacations, all together
	$(BIN)/python -m tests.sim.healing --schedules $(HEAL_SCHEDULES) --seed $(SEED) --workers $(CORES)
	$(BIN)/python -m tests.sim.auditor --schedules $(HEAL_SCHEDULES) --seed $(SEED)
	$(BIN)/python -m tests.sim.auditor --copies --schedules $(HEAL_SCHEDULES) --seed $(SEED)
	$(BIN)/python -m tests.sim.vacate --schedules $(HEAL_SCHEDULES) --seed $(SEED)
	$(BIN)/python -m tests.sim.joint --schedules $(HEAL_SCHEDULES) --seed $(SEED) --workers $(CORES)

sim-coverage: $(STAMP) ## Show which code the schedules of the simulators reach, and why they do not reach the other code
	$(BIN)/python -m tests.sim --coverage --workers $(CORES)
	$(BIN)/python -m tests.sim.log --coverage --schedules 500 --seed 1
	$(BIN)/python -m tests.sim.leader --coverage --schedules 500 --seed 1

fuzz: $(STAMP) ## Run the property tests with many new random examples
	HYPOTHESIS_PROFILE=search $(PYTEST) --timeout 7200 tests/unit tests/properties

crash-test: $(STAMP) ## Crash a bookie's storage after each disk operation of random runs, STATES times
	$(BIN)/python -m tests.crash --states $(STATES) --seed $(SEED)

corruption-test: $(STAMP) ## Damage each byte of small directories of a bookie, and check all its answers
	$(BIN)/python -m tests.corruption

disk-errors: $(STAMP) ## Make each disk operation of a bookie's storage fail with ENOSPC and EIO, also with a power loss after the failure
	$(BIN)/python -m tests.disk_errors

kill-test: $(STAMP) ## Kill real processes with SIGKILL during appends and compactions, in ROUNDS rounds
	$(BIN)/python -m tests.kill_test --rounds $(ROUNDS) --seed $(SEED)

limbo-test: $(STAMP) ## Let bookies of a cluster under load lose records in several ways; wait until all copies are back (needs strace)
	$(BIN)/python -m tests.limbo_test --seed $(SEED)

heal-test: $(STAMP) ## Kill bookies, the auditor and a worker under load; wait until every copy is back, and compare all copies
	$(BIN)/python -m tests.heal_test --seed $(SEED)

outage-test: $(STAMP) ## While a leader, a stream and writers of ledgers run, stop one of three bookies for AWAY seconds, then ZooKeeper; compare all copies
	$(BIN)/python -m tests.outage_test --away-s $(AWAY) --seed $(SEED)

exactly-once: $(STAMP) ## Kill drivers, workers, bookies and ZooKeeper at least KILLS times during two streaming queries, and compare the rows
	$(BIN)/python -m tests.exactly_once --kills $(KILLS) --seed $(SEED)

differential: $(STAMP) ## Compare the results of CASES random predicates on logs and on the same rows in Parquet
	$(BIN)/python -m tests.differential --cases $(CASES) --seed $(SEED)

leader-stream: $(STAMP) ## Stream 5,000,000 records while their leader rolls and loses a bookie
	$(BIN)/python -m tests.leader_stream

complete-mode: $(STAMP) ## Replace a whole log 1,000 times and measure the used space of the bookies' disks
	$(BIN)/python -m tests.complete_mode

metadata-size: $(STAMP) ## Measure the space in ZooKeeper that is still in use after 10,000 micro-batches
	$(BIN)/python -m benchmarks.metadata_size

sql-table: $(STAMP) ## Write the table of SQL statements in docs/SPARK.md, from the test that runs them
	LEDGERLOG_UPDATE_DOCS=1 $(PYTEST) -n0 -q tests/spark/test_sql_statements.py

# Later releases of DuckDB have no built-in generator of TPC-H.
$(VENV)/duckdb/bin/python:
	$(PYTHON) -m venv $(VENV)/duckdb
	$(VENV)/duckdb/bin/pip install --quiet --disable-pip-version-check duckdb==1.1.3

tpch: $(STAMP) jar $(VENV)/duckdb/bin/python ## Compare the results of the 22 queries of TPC-H on logs and on the same rows in Parquet
	$(BIN)/python -m tests.tpch --python $(VENV)/duckdb/bin/python

ack-audit: $(STAMP) ## Trace a bookie, and check that it syncs each add before it answers the add (needs strace)
	$(BIN)/python -m tests.ack_audit

mutation-score: $(STAMP) ## Count the mutations (plausible mistakes) that the simulators and the tests detect; ONLY=FILE,NAME selects mutations
	$(BIN)/python -m tests.mutation $(if $(ONLY),--only $(ONLY))

random-search: $(STAMP) ## Count the mutations of the storage that random schedules find without other tests
	$(BIN)/python -m tests.mutation.random_search $(if $(ONLY),--only $(ONLY))

matrix: export PYTEST_ARGS := $(PYTEST_ARGS)
matrix: $(STAMP) jar ## Run unit, Spark, stream and leader tests with every version of Python and PySpark that pyproject.toml allows
	$(BIN)/python -m tests.matrix

abuse-test: $(STAMP) ## Abuse bookies in 14 ways; measure a normal client's slowest append and the bookies' memory
	$(BIN)/python -m tests.abuse

bookie-soak: $(STAMP) ## Write, delete and compact at 20 times the usual rate for SECONDS seconds; check that the used memory and disk space do not grow
	$(BIN)/python -m tests.bookie_soak --seconds $(SECONDS)

many-ledgers: $(STAMP) ## Measure how long 100,000 ledgers delay the event loop and the adds of a bookie
	$(BIN)/python -m tests.many_ledgers

interop: $(STAMP) ## Run Apache BookKeeper's client on our bookies, and our client on its bookies (needs Maven)
	$(BIN)/python -m tests.interop

bench: $(STAMP) ## Run all benchmarks; each also measures the limit of the machine in the same run
	$(BIN)/python -m benchmarks

# Stubs from a newer release of these tools would refuse the oldest gRPC and protobuf that we accept.
PROTO_TOOLS := grpcio-tools==1.73.1

# mkdocs-material prints a warning about the future of MkDocs, which does not concern this build.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(STAMP) ## Build the documentation in site/; a broken link or anchor is an error
	$(BIN)/python -m mkdocs build --strict
	@echo "open site/index.html"

tutorials: $(STAMP) ## Execute the notebooks, and write them with their pictures to docs/tutorials/
	$(BIN)/python -m docs.generate.tutorials

proto: ## Generate the Python stubs of the control service
	$(PYTHON) -m venv .venv/proto
	.venv/proto/bin/pip install --quiet --disable-pip-version-check $(PROTO_TOOLS)
	.venv/proto/bin/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. \
		ledgerlog_spark/transport/control.proto

lock: $(STAMP) ## Compile requirements.lock from pyproject.toml
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --no-strip-extras --extra dev pyproject.toml -o requirements.lock

clean: ## Delete the files of builds and tests, except the virtual environment
	rm -rf dist build site jvm-shim/target project/target project/project .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db
