# `make quickstart` and `make test` each do all their own set-up on a machine with Python 3.11 to 3.13, make and gcc.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Python keeps what it has compiled, whatever the shell says: tests start many processes that import the same files.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install quickstart chromium browser test coverage lint docs cluster soak fuzz chaos lock clean

install: $(VENV)/.installed

# uv installs in a fraction of pip's time. It reads none of pip's settings, so it is told where pip looks for packages;
# where uv cannot be had or does not manage, pip does it.
PIP := $(BIN)/python -m pip --disable-pip-version-check
EVERYTHING := --constraint constraints.txt --editable ".[dev]"
setting_of_pip = $${PIP_$(1)-$$($(PIP) config get global.$(2) 2>/dev/null)}

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt uv \
	  && UV_INDEX_URL="$(call setting_of_pip,INDEX_URL,index-url)" UV_INDEX_STRATEGY=unsafe-best-match \
	     UV_EXTRA_INDEX_URL="$(call setting_of_pip,EXTRA_INDEX_URL,extra-index-url)" \
	     UV_FIND_LINKS="$(call setting_of_pip,FIND_LINKS,find-links)" \
	     $(BIN)/uv pip install --quiet --python $(BIN)/python $(EVERYTHING) \
	  || $(PIP) install --quiet --no-compile $(EVERYTHING)
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
CHROMIUM := command -v chromium || command -v chromium-browser || command -v google-chrome

chromium:
	@$(CHROMIUM) || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -qqy chromium >/dev/null; } || true

browser: install chromium
	@$(CHROMIUM) >/dev/null || timeout 300 $(BIN)/playwright install chromium \
	  || echo "No Chromium could be installed: the tests of the page will be skipped."

# Chromium is downloaded while packages are, the documentation built while types are checked. Then two processes of one
# thread each: tests work on small tensors, where threads wait for each other more than they work.
test:
	$(MAKE) --jobs 3 --output-sync lint docs browser
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

# The versions of constraints.txt with the SHA-256 of every file that may be installed; needs a network.
lock: install
	sed -n '/^#/p' requirements.lock >build-lock.tmp
	echo hatchling | $(BIN)/uv pip compile pyproject.toml - --extra serve --extra onnx --constraint constraints.txt \
	  --generate-hashes --universal --python-version 3.11.7 --no-header --no-annotate --quiet >>build-lock.tmp
	mv build-lock.tmp requirements.lock

clean:
	rm -rf $(VENV) build
