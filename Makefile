# Two commands on a fresh machine: `make demo` and `make test`. Both make .venv with plain python3 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
TESTS ?=

.PHONY: demo test test-all lint clean
.DELETE_ON_ERROR:

# Five methods on built-in data: tables here, pictures in report.html.
demo: $(VENV)/.demo
	OMP_NUM_THREADS=1 $(BIN)/icqr compare

# Two processes of one thread each: model libraries with threads of their own only get in each other's way. LightGBM
# does not ask the first variable, but takes as many threads as joblib counts cores.
test test-all: export OMP_NUM_THREADS = 1
test test-all: export LOKY_MAX_CPU_COUNT = 1

test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n 2 --dist worksteal $(TESTS)

# Everything, the slow tests included.
test-all: $(VENV)/.test lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "slow or not slow" $(TESTS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e ".[cli]"
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e ".[test]"
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
