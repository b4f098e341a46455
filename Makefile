# Everything a developer does here, and what CI does. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# One process for each core, each with one thread: more threads than cores make torch several times
# slower. Past eight processes, importing torch costs more than it saves.
JOBS ?= $(shell cores=$$($(PYTHON) -c 'from transformer_mt.processors import *; print(num_processors())' 2>/dev/null || echo 2); echo $$((cores < 8 ? cores : 8)))
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=worksteal
# What computes in different ways on different processors, and a whole run with its translations.
EMULATED := $(addprefix tests/unit/nn/test_, $(addsuffix .py, attention loss recurrent)) \
	$(addprefix tests/unit/nn/kernels/test_, $(addsuffix .py, capability cpu_linear step_attention)) \
	$(addprefix tests/unit/training/test_, $(addsuffix .py, muon working_weights)) \
	tests/unit/test_packing.py tests/unit/search/test_diverse_beams.py tests/golden tests/learning/test_reverse.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-emulated test-faults format lint types check bench docs clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(READY) ## Make .venv with the exact versions of constraints.txt, unless it is current

demo: $(READY) ## Get real text, train a small model on it (minutes), translate and score
	@$(BIN)/python scripts/demo.py

test: $(READY) ## Run the tests that need neither a GPU nor more than a few seconds each
	$(PYTEST) -m "not slow and not gpu and not sweep"

test-all: $(READY) ## Run all tests that need no GPU
	$(PYTEST) -m "not gpu and not sweep"

test-emulated: $(READY) ## Train, translate and try kernels as on two older kinds of processor
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(PYTEST) -m "not slow and not gpu" $(EMULATED)
	ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default $(PYTEST) -m "not slow and not gpu" $(EMULATED)

test-faults: $(READY) ## Break runs, files and texts at hundreds of points (under half an hour)
	TMT_FAULTS_INPUTS=$${TMT_FAULTS_INPUTS:-1000} \
		$(PYTEST) tests/faults -m "not gpu" -rP --show-capture=stdout

format: $(READY) ## Format the code and sort its imports
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

lint: $(READY) ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## Check types
	$(BIN)/mypy
	$(BIN)/mypy scripts/*.py scripts/bench/*.py

check: lint types ## Everything but the tests

bench: $(READY) ## Check and measure this machine's GPU; without one, only try the program out
	scripts/gpu_check.sh out/bench $(if $(shell command -v nvidia-smi),,--dry-run)

docs: $(READY) ## Build the web site of the documentation in out/site, links checked
	$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python -m mkdocs build --strict

clean: ## Remove what tools leave behind; keeps .venv, data/ and runs/
	rm -rf build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -not -path "./$(VENV)/*" -prune -exec rm -rf {} +

# The stamp holds a checksum: a fresh date on unchanged files, as git gives them, installs nothing.
$(READY): pyproject.toml constraints.txt
	@checksum=$$(cat $^ | cksum); \
	if [ -f $@ ] && [ "$$(cat $@)" = "$$checksum" ]; then touch $@; exit 0; fi; \
	set -e; \
	if [ ! -x $(BIN)/python ]; then \
		$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
			echo "make: Python 3.11 or newer is needed: make setup PYTHON=python3.12" >&2; exit 1; }; \
		echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); \
	fi; \
	echo "installing the packages of constraints.txt, torch among them: two to five minutes"; \
	$(BIN)/python -m pip install $$([ -t 2 ] || echo -qq) --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'; \
	echo "$$checksum" > $@
