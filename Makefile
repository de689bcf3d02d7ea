# Every target makes .venv first if it is missing or out of date; nothing else has to be set up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CLASSES := $(VENV)/spark.jsa

# Where Python may not keep what it compiles, each of hundreds of processes compiles all modules and tests again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo check test soak bench lint format types clean venv python java

help:
	@echo "make demo    the demo: a live stream, three views, and the proof that no row is lost"
	@echo "make check   lint, types and the tests that need no Spark, in a minute"
	@echo "make test    all checks: lint, format, types, tests"
	@echo "make soak    the long tests: kills at random moments, all questions at once, random joins"
	@echo "make bench   measure against hand-written Structured Streaming, Spark batch and DuckDB"
	@echo "make lint | format | types | venv | clean"

# The environment is asked for first: a missing Java must not be reported after minutes of installing.
demo: java $(STAMP)
	$(BIN)/anabranch demo $(ARGS)

bench: java $(STAMP)
	$(BIN)/anabranch bench $(ARGS)

# What can be said without Spark: for whoever changes something, after each change.
check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest --pure -m "not slow" -q -n 2 --dist loadfile $(ARGS)

# Three at a time, each with a Spark session of its own: a test waits for Spark's driver most of the time.
test: java $(STAMP) $(CLASSES)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -m "not slow" -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

# The whole bench on a few rows, every question of the law at once, random joins, kills at random moments: tens of minutes.
# Its seed is another one each time: `make soak ANABRANCH_SEED=7` has that of a run that failed.
soak: export ANABRANCH_SEED := $(or $(ANABRANCH_SEED),$(shell date +%s))
soak: java $(STAMP) $(CLASSES)
	@echo "ANABRANCH_SEED=$$ANABRANCH_SEED"
	$(BIN)/pytest -m slow $(ARGS)
	$(BIN)/pytest --pure -m "not slow" -q -n 2 --dist loadfile
	ANABRANCH_EXAMPLES=10 ANABRANCH_BACKEND=spark $(BIN)/pytest $(MODES) tests/crash
	ANABRANCH_EXAMPLES=10 ANABRANCH_BACKEND=driver $(BIN)/pytest $(MODES)
	ANABRANCH_EXAMPLES=3 ANABRANCH_TEST_MASTER='local-cluster[2,1,1024]' \
	  $(BIN)/pytest -m "not slow" tests/law tests/cases tests/nexmark tests/crash
	PYTHON=$(PYTHON) tools/spark_versions.sh

# What runs once more with all work done by Spark, and once with the driver taking work of any size.
MODES := -m "not slow" -n 2 --dist loadfile tests/law tests/cases tests/nexmark tests/engine/test_stream_joins.py

lint: $(STAMP)
	$(BIN)/ruff check .

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)
	$(BIN)/mypy

venv: $(STAMP)

python:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "error: $(PYTHON) is not there; Python 3.10 or newer is needed (or: make PYTHON=/path/to/python)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "error: $$($(PYTHON) --version 2>&1) found; Python 3.10 or newer is needed (or: make PYTHON=/path/to/python)" >&2; exit 1; }

# Needs no installed package: the module and what it imports are plain Python.
java: python
	@PYTHONPATH=src $(PYTHON) -m anabranch.java --quiet

$(STAMP): pyproject.toml constraints.txt | python
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: this Python cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# The classes of Spark, as a JVM reads them quickest.
$(CLASSES): $(STAMP) tests/spark_classes.py
	-@$(BIN)/python tests/spark_classes.py $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
