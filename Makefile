# Each target makes its own virtual environment; Python 3.11 and make are all that is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow test-fast test-floor test-napari kernels lint test-gpu docs wheel clean

demo: $(VENV)/.installed
	$(BIN)/deblur demo --output demo_output --force

# pip compiles nothing, which takes half of its time; Python keeps what it has compiled, whatever the environment says.
export PYTHONDONTWRITEBYTECODE =
KERNELS := tests/test_cuda_compiles.py
# One process for each core, each with one thread; a core that runs out of tests takes over some of another's.
test test-slow: export OMP_NUM_THREADS = 1
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q --numprocesses logical --dist worksteal --ignore $(KERNELS) -m "not slow"

# The 130 functions that tests/slow.txt names (long draws, examples, processes) take longer than all others.
test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q --numprocesses logical --dist worksteal @tests/slow.txt

# The kernels, through the compiler that is there (two minutes with nvcc): a check of the build, as types and lint are.
kernels: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q --numprocesses logical $(KERNELS)

# The core, in a minute: neither slow tests nor those of a GPU.
FAST := tests/operators tests/test_extending.py tests/test_layers.py tests/test_methods.py tests/test_request.py
test-fast: export OMP_NUM_THREADS = 1
test-fast: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q --numprocesses logical --dist worksteal -m "not slow and not gpu" $(FAST)

# The lowest versions that pyproject.toml allows, exactly; Python 3.11 or 3.12 has all of them as wheels. What they depend on
# themselves is newer, and deprecates some of what they do.
FLOOR := .venv-floor
FLOOR_TESTS := tests/operators tests/image/test_image.py tests/linalg/test_damped.py tests/tuning/test_find_boundary.py \
    tests/test_degrade.py tests/test_extending.py tests/test_methods.py tests/test_request.py tests/tiles/test_tile_stores.py
test-floor: export OMP_NUM_THREADS = 1
test-floor: $(FLOOR)/.installed
	$(FLOOR)/bin/python -m pytest -q --numprocesses logical --dist worksteal -m "not slow and not gpu" \
	    -W ignore::DeprecationWarning $(FLOOR_TESTS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/ceilings.py
	$(BIN)/python tools/call_records.py

# Needs an NVIDIA GPU and CuPy in the Python that runs it.
test-gpu:
	$(PYTHON) -m pytest -m gpu -q

# The widget of examples/, with the real napari and Qt but no screen.
NAPARI := .venv-napari
test-napari: $(NAPARI)/.installed
	QT_QPA_PLATFORM=offscreen $(NAPARI)/bin/python -m pytest -q -o filterwarnings= tests/test_napari_widget.py
$(NAPARI)/.installed: pyproject.toml
	$(PYTHON) -m venv $(NAPARI)
	$(NAPARI)/bin/pip install -q -e ".[napari]" pytest pytest-qt hypothesis
	touch $@

docs: $(VENV)/.installed-dev
	$(BIN)/python docs/make.py

# With machine code of the kernels where this Python has CuPy with NVRTC (minutes of compiling), and without elsewhere.
wheel: $(VENV)/.installed-dev
	rm -rf dist build
	$(BIN)/python tools/pack_machine_code.py
	$(BIN)/python -m build --wheel --outdir dist

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(VENV)/.installed

$(FLOOR)/.installed: pyproject.toml tools/floor.py
	rm -rf $(FLOOR)
	$(PYTHON) -m venv $(FLOOR)
	$(PYTHON) tools/floor.py > $(FLOOR)/constraints.txt
	$(FLOOR)/bin/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint $(FLOOR)/constraints.txt \
	    --editable '.[fast,fits,dask]' pytest hypothesis pytest-xdist
	touch $@

clean:
	rm -rf $(VENV) .venv-* build dist *.egg-info demo_output cuda/machine_code.zip
