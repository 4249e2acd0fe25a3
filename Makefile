# `make quickstart` and `make test` each do all their own set-up on a machine with Python 3.11, make and gcc.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install quickstart browser test coverage lint docs cluster soak fuzz chaos lock clean

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
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

# The same with the lines that no test reaches; tracing makes it slower.
coverage: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal --cov=joem --cov-report=term

# Sixteen clients for half an hour on loopback, every answer checked.
soak: install
	$(BIN)/python benchmarks/soak.py

# Ray clusters on this machine, whose workers are killed; they take a minute to start and want the machine to themselves.
cluster: install
	JOEM_CLUSTER=1 $(BIN)/python -m pytest tests/test_cluster.py tests/web/test_replicas.py

# Ten thousand damaged files and requests, each in bounded time and memory; goes on where it was stopped.
fuzz: install
	$(BIN)/python tests/fuzz/run_fuzz.py

# Trainings that are killed at random moments and resumed must end with the same weights, bit for bit.
chaos: install
	$(BIN)/python tests/fuzz/chaos.py

# The versions of constraints.txt with the SHA-256 of every file that may be installed; needs uv.
lock:
	sed -n '/^#/p' requirements.lock >build-lock.tmp
	echo hatchling | uv pip compile pyproject.toml - --extra serve --extra onnx --constraint constraints.txt \
	  --generate-hashes --universal --python-version 3.11.7 --no-header --no-annotate --quiet >>build-lock.tmp
	mv build-lock.tmp requirements.lock

clean:
	rm -rf $(VENV) build
