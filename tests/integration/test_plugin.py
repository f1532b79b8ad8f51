"""The base package beside a vLLM that is there already: `pip install`, two flags, and budgets are kept."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from elastic_core.engines.parameters import vllm_version
from elastic_core.models.special_tokens import load_markers
from elastic_core.system.network import free_ports
from tests.served import BASE, BUDGETS, CPU, SMALL, VLLM, model_with_levels, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment that holds a vLLM and nothing of ours."""
    directory = tmp_path_factory.mktemp("vllm")
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    name, version = vllm_version().split()
    pip = [directory / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", f"{name}=={version}"], check=True, env=ENVIRONMENT)
    # Their plain builds are made for CUDA (infra/requirements/overrides.txt).
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "torchvision", "torchaudio", "torchcodec"], check=True)
    return directory / "bin" / "python"


@pytest.fixture(scope="module")
def with_ours(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same one with the base package; what pip would have done is in `report.json` beside it."""
    copy = shutil.copytree(  # setuptools builds in the directory itself.
        ROOT, tmp_path_factory.mktemp("source") / "s", ignore=shutil.ignore_patterns(".venv", ".git", "runs", "tests")
    )
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    report = python.parent / "report.json"
    subprocess.run([*pip, "--dry-run", "--report", report, copy], check=True, env=ENVIRONMENT)
    subprocess.run([*pip, copy], check=True, env=ENVIRONMENT)
    return python


def installed(python: Path) -> set[str]:
    command = [python, "-m", "pip", "list", "--format=json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    return {each["name"].lower().replace("_", "-") for each in json.loads(listed.stdout)}


def test_it_changes_no_version_of_what_is_there(python: Path, request: pytest.FixtureRequest) -> None:
    before = installed(python)
    request.getfixturevalue("with_ours")
    report = json.loads((python.parent / "report.json").read_text())
    added = {each["metadata"]["name"].lower().replace("_", "-") for each in report["install"]}
    assert "elastic-reasoning" in added
    assert not added & before
    assert not added & {"prefect", "mlflow", "ray", "verl", "scikit-learn", "psycopg2-binary", "supervisor", "gguf"}


def test_two_flags_make_vllm_serve_keep_budgets(with_ours: Path, tmp_path: Path) -> None:
    model = model_with_levels(tmp_path / "model")
    flags = subprocess.run(
        [with_ours.parent / "elastic", "model", "vllm-flags", model], capture_output=True, text=True, check=True
    ).stdout.split()
    (port,) = free_ports(1)
    command = [str(with_ours), "-c", VLLM, "serve", str(model), "--served-model-name", "m", "--port", str(port)]
    with running([*command, *SMALL, *flags], port, tmp_path / "log", environment=CPU):
        address = f"http://127.0.0.1:{port}/v1/chat/completions"
        (close,) = load_markers(BASE)[1].close
        draw, body = random.Random(0), {"model": "m", "messages": [{"role": "user", "content": "36+6-4+8=?"}]}
        for seed in range(100):
            think, solution = draw.choice([0, 1, 2, 7, 40]), draw.choice([1, 2, 9, 30])
            limits = {"vllm_xargs": {"think_budget": think, "solution_budget": solution}, "return_token_ids": True}
            (choice,) = httpx.post(address, json={**body, **limits, "seed": seed}, timeout=600).json()["choices"]
            ids, told = choice["token_ids"], choice["elastic"]
            start = ids.index(close) + 1 if close in ids else len(ids)
            assert told["budget"] == f"{think}+{solution}"
            assert start - told["forced_tokens"] == told["thinking_tokens"] <= think
            assert len(ids) - start == told["solution_tokens"] <= solution
        level = httpx.post(address, json={**body, "reasoning_effort": "low"}, timeout=600).json()["choices"][0]
        assert level["elastic"]["budget"] == "+".join(map(str, BUDGETS["low"]))
    only_middleware = [*flags[flags.index("--middleware") :]]
    refused = subprocess.run(
        [*command, *SMALL, *only_middleware], env={**ENVIRONMENT, **CPU}, capture_output=True, text=True, timeout=600
    )
    assert refused.returncode and "--logits-processors is missing" in refused.stdout + refused.stderr
