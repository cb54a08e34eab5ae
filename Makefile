# Every target makes .venv first; it is redone only when pyproject.toml or constraints.txt changed.
PYTHON ?= python3
SPEC ?= specs/local.json
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# One thread a process: torch's default thread pools collapse beside any other load.
export OMP_NUM_THREADS := 1
export TOKENIZERS_PARALLELISM := false
export TINKER_TELEMETRY := 0
# Empty counts as unset: without cached bytecode every plugin test compiles its imports again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-live test-slow bench lint local-model clean
.DELETE_ON_ERROR:

demo: $(STAMP)
	$(BIN)/python -m pytest -m full --spec $(SPEC)

test: $(STAMP)
	$(BIN)/python -m pytest -m "not full and not slow and not (live and preflight)" \
	  --deselect tests/mutants/test_service_mutants.py \
	  --deselect tests/mutants/test_capacity_mutants.py \
	  --deselect tests/faults/test_wire_faults.py --durations 10

# Every live gate, and the planted service faults that are quick to catch, on the embedded service.
test-live: $(STAMP)
	$(BIN)/python -m pytest -m "live and not full and not slow" tests/preflight tests/mutants \
	  --artifacts artifacts/test-live
	$(BIN)/python -m pytest tests/faults -m "not slow" --artifacts artifacts/test-live

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m "slow and not full"

# Time, memory and growth; BENCH="--quick" tries it, BENCH="--only decision" measures one group.
bench: $(STAMP)
	$(BIN)/python -m benchmarks $(BENCH)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

local-model: $(STAMP)
	$(BIN)/python -m harness.local_service.warm_start

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "set-up: Python 3.11 or newer is needed; point PYTHON at one (make PYTHON=python3.11)"; exit 1; }
	@echo "set-up: creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "set-up: this Python has no venv module; install it or point PYTHON at another"; exit 1; }
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt torch==2.13.0 || \
	  { echo "set-up: torch 2.13.0 could not be had; make this version available to pip, then run make again"; exit 1; }
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' || \
	  { echo "set-up: a package of constraints.txt could not be had (named above); check pip's package source, then run make again"; exit 1; }
	@touch $@

clean:
	rm -rf $(VENV)
