# Everything runs in .venv, which is created from a lock on first use and renewed when the lock changes.

# cpu or gpu: which lock to install. A machine has one of the two, as both provide the module `vllm`.
ENGINE ?= cpu
# Optional: an index to find PyTorch's CPU wheels on. Without it torch comes from wherever pip is configured to look,
# which on the open internet is the CUDA build: it works on a CPU, and is large.
TORCH_INDEX ?=
# A shim may exist and not run, so each candidate is tried.
PYTHON ?= $(shell for python in python3.11 python3; do $$python -c '' 2>/dev/null && echo $$python && break; done)
# Arguments for `make lock`, such as --upgrade.
LOCK_ARGS ?=

BIN := .venv/bin
export TORCH_INDEX

.DEFAULT_GOAL := help
.PHONY: help install demo up doctor gpu test lint bench chaos rehearse lock clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: ## Create or renew .venv from the lock; nothing to do is done in an instant
	@$(if $(PYTHON),,echo "error: no Python found; install Python 3.11" >&2; exit 1)
	@$(PYTHON) infra/install.py $(ENGINE) $(INSTALL_FOR)

demo: install ## Train and measure a miniature model on this machine
	@$(BIN)/elastic run pipeline --preset embedded

up: install ## Start Prefect, MLflow and a worker; Ctrl-C stops them
	@$(BIN)/elastic up

doctor: install ## Check that this machine can run the pipeline
	@$(BIN)/elastic doctor

# Without a GPU it tries what a CPU can do.
gpu: ENGINE = $(shell nvidia-smi --list-gpus >/dev/null 2>&1 && echo gpu || echo cpu)
gpu: install ## Show on this machine's GPUs what a CPU cannot, into runs/gpu-evidence
	@$(BIN)/elastic gpu-check

test: INSTALL_FOR = for-tests
test: lint ## Lint, then unit, integration and end-to-end tests
	$(BIN)/pytest tests/unit --timeout 120 -n auto
	@# The longest first, so that both processes end together.
	$(BIN)/pytest tests/e2e tests/integration -m "not slow" --timeout 1800 -n 2 --dist loadfile --no-loadscope-reorder

lint: install ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install ## Measure: each script in tests/bench
	@for script in tests/bench/bench_*.py; do \
		echo "$$script"; $(BIN)/python -m tests.bench.$$(basename "$$script" .py) || exit 1; \
	done

chaos: install ## Kill processes in the middle of their work and check what is left
	$(BIN)/pytest tests/chaos --timeout 1800
	$(BIN)/pytest tests/integration tests/e2e -m slow --timeout 1800

rehearse: install ## Rehearse every preset on this CPU and record which pass; hours
	@for preset in flows/presets/*.toml; do \
		$(BIN)/elastic rehearse --preset "$$(basename "$$preset" .toml)" --ship || failed=1; \
	done; exit $${failed:-0}

lock: install ## Renew infra/requirements from pyproject.toml; LOCK_ARGS=--upgrade moves every pin
	$(BIN)/python infra/lock.py $(LOCK_ARGS)

clean: ## Remove .venv and caches; results in runs/ stay
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
