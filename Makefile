# `make quickstart` and `make test` each do all their own set-up on a machine with Python 3.11, make and gcc.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install quickstart test lint clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

quickstart: install
	$(BIN)/joem quickstart

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest --cov=joem --cov-report=term

clean:
	rm -rf $(VENV) quickstart runs
