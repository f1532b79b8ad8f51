"""Every row of the dialect table with the client package that sends it, where that is on the package index."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.served import BUDGETS, elastic_serve, model_with_levels

pytestmark = pytest.mark.slow
TESTS = Path(__file__).parents[1]
SOLUTION = 8
"""Of the server's default."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the server told each client, by the client's name. The packages have an environment of their own, as what
    they need is not what vLLM and verl do."""
    directory = tmp_path_factory.mktemp("clients")
    subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
    python = directory / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", TESTS / "clients.txt"], check=True)
    model = model_with_levels(directory / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTIC_RUNS", str(directory / "runs"))
        arguments = ("--budget", f"16+{SOLUTION}", "--set", "engine.max_model_len=512")
        with elastic_serve(model, directory / "log", *arguments) as (address, _):
            asked = subprocess.run(
                [python, TESTS / "clients.py", address, "model"],
                env={**os.environ, "HERE_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
                cwd=directory,
                capture_output=True,
                text=True,
                check=True,
            )
    return dict(json.loads(line) for line in asked.stdout.splitlines() if line.startswith("["))


LOW, SEVEN, NONE = "+".join(map(str, BUDGETS["low"])), f"7+{SOLUTION}", f"0+{SOLUTION}"
EXPECTED = {
    "openai reasoning_effort": LOW,
    "openai reasoning_effort none": NONE,
    "openai responses reasoning.effort": LOW,
    "vLLM thinking_token_budget": SEVEN,
    "OpenRouter reasoning.max_tokens": SEVEN,
    "OpenRouter reasoning.enabled": NONE,
    "DashScope thinking_budget": SEVEN,
    "Qwen chat_template_kwargs": NONE,
    "SGLang custom_params": SEVEN,
    "llama.cpp thinking_budget_tokens": SEVEN,
    "llama.cpp reasoning_budget": SEVEN,
    "NIM nvext": SEVEN,
    "Gemini thinking_config": SEVEN,
    "anthropic thinking": SEVEN,
    "anthropic thinking disabled": NONE,
}
TOKENS = {
    "litellm reasoning_effort": BUDGETS["low"][0],
    # LiteLLM makes an effort of it before it sends anything.
    "litellm thinking": BUDGETS["low"][0],
    "langchain-openai reasoning_effort": BUDGETS["low"][0],
    "inspect_ai reasoning_effort": BUDGETS["low"][0],
    "inspect_ai extra_body": 7,
}
"""Clients that keep usage alone of what the server tells: most tokens of the thought."""


def test_every_client_gets_the_budget_it_asked_for(told: dict[str, Any]) -> None:
    assert {name: found.get("budget", found) for name, found in told.items() if name not in TOKENS} == EXPECTED
    assert {name: 0 < told[name].get("thinking_tokens", 0) <= most for name, most in TOKENS.items()} == dict.fromkeys(
        TOKENS, True
    )
