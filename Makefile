# The project's commands; `make` alone lists them.
#
#   PYTHON    the interpreter to build the environment with (default: python3, else the newest python3.N that is >= 3.11)
#   VENV      where the environment lies (default: .venv)
#   PIP_ARGS  passed on to pip, e.g. the index that PyTorch's own install selector gives for a machine without a GPU:
#             on Linux the registry's torch carries CUDA libraries of several GB, the CPU build is a tenth of that
#
# For a machine without a network (docs/en/accelerators.md):
#   PYTHON_VERSION, PLATFORM  what `make wheelhouse` gathers wheels for (default: 3.12, x86_64)
#   GPU_PYTHON                the interpreter that has torch there, for `make gpu` (default: python3)

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo test check soak lint format docs bench peers gpu wheelhouse package constraints clean

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?=
CANDIDATES = $(or $(PYTHON),python3 python3.13 python3.12 python3.11)
PIP_ARGS ?=
PYTEST_ARGS ?=
RECIPE ?= recipes/quickstart.yaml

PIP_INSTALL = $(BIN)/python -m pip install --disable-pip-version-check $(PIP_ARGS) -c constraints.txt

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The user's own python3 comes first: it is the one that an activated environment or a CI matrix has chosen.
$(BIN)/python:
	@for candidate in $(CANDIDATES); do \
	  if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "environment: $(VENV), made with $$("$$candidate" --version) ($$(command -v "$$candidate"))"; \
	    exec "$$candidate" -m venv $(VENV); \
	  fi; \
	done; \
	echo "make: no Python >= 3.11 with venv and ensurepip found (tried: $(CANDIDATES)); install one, or name it: make demo PYTHON=/path/to/python3" >&2; \
	exit 3

# A stamp is younger than what it was made from, so that setting up again is free and a changed dependency is not missed.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@if [ -z "$(PIP_ARGS)" ] && ! command -v nvidia-smi >/dev/null && ! $(BIN)/python -c 'import torch' 2>/dev/null; then \
	  echo "note: no NVIDIA GPU seen; where the registry has only torch with CUDA (several GB), PIP_ARGS can name the CPU index (see the top of the Makefile)"; \
	fi
	$(PIP_INSTALL) -e '.[all]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) -e '.[all,dev]'
	@touch $(VENV)/.installed $@

setup: $(VENV)/.installed ## make the environment: everything a user needs
setup-dev: $(VENV)/.installed-dev ## the same, with the developer's tools

# Without bf16 the quickstart's 1,600 steps take some processors more than ten minutes: the demo makes fewer there.
SLOW = grep -q . /proc/cpuinfo 2>/dev/null && ! grep -q bf16 /proc/cpuinfo && ! command -v nvidia-smi >/dev/null
STEPS ?= $(if $(filter %recipes/quickstart.yaml,$(RECIPE)),$(shell $(SLOW) && echo 600))
demo: setup ## recipe to served answer on this machine (RECIPE=..., STEPS=100)
	$(BIN)/trainwright run $(RECIPE) $(if $(STEPS),"train.duration=$(STEPS) steps")

test: setup-dev ## every test, a file per process (PYTEST_ARGS=...)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

check: setup-dev ## before each commit: ruff and the fast tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m pytest -n 2 -m "not slow and not cuda" $(PYTEST_ARGS)

KILLS ?= 50
soak: setup-dev ## hours: the full product of layouts, random kills, random layouts; into benchmarks/results (KILLS=50)
	$(BIN)/python benchmarks/soak.py --kills $(KILLS) $(PYTEST_ARGS)

lint: setup-dev ## ruff, mypy, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: setup-dev ## let ruff mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup-dev ## build the documentation into site/; a broken link or an untranslated key fails
	$(BIN)/python docs/recipe_reference.py
	$(BIN)/mkdocs build --strict # --quiet would count no warnings
	@echo "documentation: site/index.html"

bench: setup-dev ## training speed beside a bare loop, Hugging Face Trainer and, after make peers, litgpt
	$(BIN)/python benchmarks/train_cpu.py

peers: ## an environment of its own for what benchmarks compare with and ours must not have: litgpt
	$(or $(PYTHON),python3) -m venv build/peers
	build/peers/bin/python -m pip install --disable-pip-version-check $(PIP_ARGS) 'torch==2.13.0' 'litgpt==0.5.13'

GPU_PYTHON ?= python3
GPU_SITE := build/gpu
GPU_RUN = PYTHONPATH=$(GPU_SITE):src:benchmarks TRAINWRIGHT_HOME=build/gpu-home $(GPU_PYTHON)

# No environment and no network: the machine's own Python and torch, and what is missing from wheelhouse/. In all under
# nine minutes: three for the tests, five for the benchmark, which stops by itself.
gpu: ## on a machine with a GPU and no network: the CUDA tests and benchmarks/train_gpu.py, into benchmarks/results
	@$(GPU_PYTHON) -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null || { \
	  echo "make gpu: $(GPU_PYTHON) has no torch that sees a CUDA or ROCm device: nothing was run (GPU_PYTHON=... names another one)" >&2; exit 3; }
	@if [ -f wheelhouse/requirements.txt ]; then \
	  $(GPU_PYTHON) -m pip install --disable-pip-version-check --quiet --no-index --no-deps --upgrade \
	    --find-links wheelhouse --target $(GPU_SITE) -r wheelhouse/requirements.txt; \
	else echo "make gpu: no wheelhouse/ here (make wheelhouse gathers it): going on with what $(GPU_PYTHON) has"; fi
	@failed=0; \
	timeout 200 env $(GPU_RUN) -m pytest -m cuda -q -p no:cacheprovider $(PYTEST_ARGS) $$(grep -rl --include="*.py" "mark\.cuda" tests) || failed=$$?; \
	timeout 330 env $(GPU_RUN) benchmarks/train_gpu.py --minutes 5 || failed=$$?; \
	exit $$failed

PYTHON_VERSION ?= 3.12
PLATFORM ?= x86_64
wheelhouse: setup-dev ## gather in wheelhouse/ what a machine with torch alone lacks (PYTHON_VERSION=3.12 PLATFORM=x86_64)
	$(BIN)/python benchmarks/wheelhouse.py --python $(PYTHON_VERSION) --machine $(PLATFORM)

package: setup-dev ## build the wheel; install it alone, without extras; plan with it
	rm -rf build/wheel build/bare
	$(BIN)/python -m pip wheel --disable-pip-version-check --quiet --no-deps --wheel-dir build/wheel .
	$(BIN)/python -m venv build/bare
	build/bare/bin/python -m pip install --disable-pip-version-check --quiet -c constraints.txt build/wheel/*.whl
	build/bare/bin/trainwright version
	cd build && bare/bin/trainwright plan ../$(RECIPE)

constraints: setup-dev ## write constraints.txt anew from this environment
	@{ sed '/^[^#]/,$$d' constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | sed -E '/ @ /d; s/\+[a-z0-9.]+$$//'; } > constraints.new
	@mv constraints.new constraints.txt

clean: ## remove caches and build outputs; runs/ and the environment stay
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
