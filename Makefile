# make demo   build a spec, run its module, check it against PyTorch, show the speed
# make test   everything that CI checks; of the library, a module of each class and of each method, and a few rows of
#             the tests that take long
# make test-full   the same for every test, module and row, with many more random specs
# make mutants   plant more than 200 faults in five modules, at places drawn from SEED; a certificate tells of each
# make matrix   the wheel with each Python, PyTorch and C++ compiler that can be had here (PYTHONS, TORCHES, COMPILERS)
# The first run makes .venv; PYTHON and TORCH say from what.

PYTHON ?= python3
TORCH ?= torch==2.13.0
SEED ?= 20261
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: demo test static suite test-full mutants matrix gpu measure build clean

demo: $(VENV)/.ready
	python -m fusegen build hardsigmoid mish
	python -m fusegen certify hardsigmoid mish --dtype float32 --sample 100000
	python -m fusegen bench hardsigmoid mish --no-compile

# Two workers with two threads each share two cores: threads that spin while they wait took half of the time.
# Commands that tests start read the bytecode of the compiler, which a system may forbid to write.
test: export OMP_WAIT_POLICY = passive
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.ready
	$(MAKE) --no-print-directory --jobs=2 static suite

static:  # one process a command, beside the workers of pytest
	ruff check .
	ruff format --check .
	mypy
	python -m fusegen check

suite:
	python -m pytest -q -n auto --dist worksteal

# Every test, module and row, and 100 to 1,250 times as many random specs and formulas as in `make test`: hours.
test-full: export FUSEGEN_FULL = 1
test-full: export FUSEGEN_FUZZ = 5000
test-full: export FUSEGEN_EAGER = 5000
test-full: export FUSEGEN_FORMULAS = 200
test-full: export FUSEGEN_ROWS = 200
test-full: test

mutants: export FUSEGEN_FULL = 1
mutants: export FUSEGEN_SEED = $(SEED)
mutants: $(VENV)/.ready
	python -m pytest -q -rfEX -n auto --dist loadgroup tests/test_mutants.py

matrix:
	.ci/matrix

gpu: $(VENV)/.ready  # needs an NVIDIA GPU and nvcc
	python -m pytest -q -m gpu

SPEEDS := relu hardsigmoid hardswish hardtanh leaky_relu elu sigmoid tanh silu gelu gelu_tanh mish softplus relu_hardswish
CHAINS := $(basename $(notdir $(filter-out specs/conv_%, $(shell grep -l '^chain:' specs/*.yaml))))
HEADLINE := hardsigmoid hardsigmoid_keras hardtanh relu_hardswish
LIBRARY := $(filter-out conv_relu_hardswish, $(basename $(notdir $(wildcard specs/*.yaml))))
measure: $(VENV)/.ready  # the figures of README.md and docs/reports
	python -m fusegen bench $(HEADLINE) --shape 4096x393216 --json docs/reports/headline.jsonl
	python -m fusegen bench hardsigmoid gelu --sweep --seconds 0.3 --json docs/reports/sweep.jsonl --plot docs/pictures
	python -m fusegen bench $(SPEEDS) --backward --dtype float32 --dtype bfloat16 --seconds 0.5 --json docs/reports/bench.jsonl
	python -m fusegen bench $(CHAINS) --seconds 0.3 --json docs/reports/chains.jsonl --plot docs/pictures
	python -m fusegen bench $(LIBRARY) --backward --dtype float32 --dtype bfloat16 --dtype float16 --no-compile --seconds 0.12 --json docs/reports/library.jsonl
	python -m fusegen report speed docs/reports/headline.jsonl docs/reports/bench.jsonl
	python -m fusegen report predicted docs/reports/library.jsonl > docs/reports/cost.md

build: $(VENV)/.ready
	python -m fusegen build
	python -m fusegen schema

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# torch comes first and alone, so that the version asked for is the one the rest finds.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[test]"
	touch $@
