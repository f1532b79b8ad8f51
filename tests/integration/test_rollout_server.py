"""verl's server with vLLM's engine as trainings start it: what it answers, and how often the engine reports to it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rollout_server import GROUP, LONG

pytestmark = pytest.mark.slow  # Every training asks such a server.


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("server") / "answered.json"
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.rollout_server", str(file)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert file.exists(), run.stderr[-3000:]
    return json.loads(Path(file).read_text())


def test_a_request_is_reported_once_with_all_its_tokens_and_their_probabilities(answered: Any) -> None:
    assert (answered["reports"], answered["tokens"]) == (1, LONG)
    assert len(answered["logprobs"]) == LONG and all(logprob <= 0 for logprob in answered["logprobs"])


def test_requests_in_a_group_get_what_they_get_alone(answered: Any) -> None:
    assert answered["grouped"] == answered["alone"]
    assert len({tuple(tokens) for tokens in answered["alone"]}) == GROUP
