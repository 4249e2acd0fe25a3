# `make quickstart` and `make test` each do all their own set-up on a machine with Python 3.11, make and gcc.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install quickstart browser test lint docs soak clean

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

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The page is tested in Chromium: the one at hand, else the system's package, else playwright's own.
browser: install
	@command -v chromium || command -v chromium-browser || command -v google-chrome \
	  || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -qqy chromium >/dev/null; } \
	  || timeout 300 $(BIN)/playwright install chromium \
	  || echo "No Chromium could be installed: the tests of the page will be skipped."

# Two processes of one thread each: tests work on small tensors, where threads wait for each other more than they work.
test: lint docs browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal --cov=joem --cov-report=term

# Sixteen clients for half an hour on loopback, every answer checked.
soak: install
	$(BIN)/python benchmarks/soak.py

clean:
	rm -rf $(VENV) build
