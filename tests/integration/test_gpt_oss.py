"""gpt-oss from the sweep to the server: what its levels were measured at is what vLLM's renderer is told. A twin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from elastic_core.models.families import DIRECTORY, OWN_FILE
from elastic_core.models.twins import family_of, make_twin
from elastic_core.serving.levels import LEVELS, read_levels
from tests.elastic_command import elastic
from tests.harmony import VARIABLE, vocabulary
from tests.served import elastic_serve

pytestmark = pytest.mark.slow

MODEL = "openai/gpt-oss-20b"
QUESTION = [{"role": "user", "content": "36+6-4+8=?"}]
ENGINE = ("--set", "engine.max_model_len=512", "--set", "engine.max_num_seqs=16")
SWEEP = {
    "models": '["mine"]',
    "strategies": '["separate"]',
    "budgets": '["2+4", "9+6"]',
    "problems": "4",
    "samples": "1",
}


@pytest.fixture(scope="module")
def encoding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Harmony's."""
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(vocabulary(tmp_path_factory.mktemp("harmony"))))
        yield load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


@pytest.fixture(scope="module")
def measured(encoding: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A twin with levels of a sweep that was told the effort low."""
    runs = tmp_path_factory.mktemp("runs")
    twin = runs / "gpt-oss"
    make_twin(MODEL, family_of(MODEL), twin)
    family = (DIRECTORY / "gpt-oss.toml").read_text()
    thought = family[family.index("[thought]") : family.index("[generation]")]
    (twin / OWN_FILE).write_text(thought.replace('reasoning_effort = "high"', 'reasoning_effort = "low"'))
    given = [f"sweep.checkpoints.mine={twin}", *(f"sweep.{name}={value}" for name, value in SWEEP.items())]
    sets = [part for each in given for part in ("--set", each)]
    done = elastic("run", "sweep", "--preset", "embedded", *sets, *ENGINE, runs=runs)
    assert done.returncode == 0, done.stdout
    (table,) = runs.glob("embedded/sweep/*/table")
    done = elastic("budgets", "--from", str(table), "--model", "mine", "--output", str(twin / LEVELS), runs=runs)
    assert done.returncode == 0, done.stdout
    return twin


def test_the_server_tells_harmony_the_effort_that_the_levels_were_measured_at(
    measured: Path, encoding: Any, tmp_path: Path
) -> None:
    levels = read_levels(measured / LEVELS).levels
    assert all(level.template == {"reasoning_effort": "low"} for level in levels.values())
    with elastic_serve(measured, tmp_path / "log", *ENGINE) as (address, _):
        for body, effort in (
            ({}, "low"),
            ({"reasoning_effort": "high"}, "low"),
            ({"thinking": {"type": "disabled"}}, "low"),
            ({"chat_template_kwargs": {"reasoning_effort": "medium"}}, "medium"),
        ):
            # One token: vLLM reads names of channels in harmony's vocabulary, and the twin has another.
            sent = {"model": measured.name, "messages": QUESTION, "return_token_ids": True, "max_tokens": 1} | body
            answer = httpx.post(f"{address}/v1/chat/completions", json=sent, timeout=600)
            assert answer.status_code == 200, answer.text
            assert f"Reasoning: {effort}\n" in encoding.decode(answer.json()["prompt_token_ids"]), body
