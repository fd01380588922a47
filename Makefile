# Three commands on a fresh machine: `make demo`, `make test` and `make docs`. Each makes .venv with plain python3 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
TESTS ?=

.PHONY: demo test test-all lint docs clean
.DELETE_ON_ERROR:

# Five methods on built-in data: tables here, pictures in report.html.
demo: $(VENV)/.demo
	OMP_NUM_THREADS=1 $(BIN)/icqr compare

# Two processes of one thread each: model libraries with threads of their own only get in each other's way. LightGBM
# does not ask the first variable, but takes as many threads as joblib counts cores.
test test-all docs: export OMP_NUM_THREADS = 1
test test-all docs: export LOKY_MAX_CPU_COUNT = 1

test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n 2 --dist worksteal $(TESTS)

# Everything, the slow tests included.
test-all: $(VENV)/.test lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "slow or not slow" $(TESTS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in docs/_build/html. A warning is an error, and so is code in a page that fails.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -b html -W --keep-going --quiet docs docs/_build/html
	@echo "The site: docs/_build/html/index.html"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e ".[cli]"
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e ".[test]"
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) docs/_build docs/gallery docs/api/generated docs/sg_execution_times.rst .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
