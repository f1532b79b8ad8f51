"""`elastic evaluate MODEL`: what it makes of its arguments."""

from pathlib import Path
from typing import Any

import pytest

from elastic_core.errors import UserError
from flows import presets
from flows.commands.evaluate import PRESET, name_of, settings_of
from flows.runtime.settings import Settings

NOTHING: dict[str, Any] = {"benchmarks": (), "budgets": (), "samples": None, "problems": None, "tokenizer": None}


def resolved(model: str, gpus: int = 1, **given: Any) -> Settings:
    return presets.resolve(PRESET, settings_of(model, gpus=gpus, **NOTHING | given))


def test_a_model_is_measured_with_what_the_preset_says() -> None:
    settings = resolved("OWNER/NAME-7B", gpus=4)
    assert settings.sweep.models == ["NAME-7B"]
    assert settings.sweep.directories == {"NAME-7B": "OWNER/NAME-7B"} and settings.base == "OWNER/NAME-7B"
    assert (settings.engine.device, settings.engine.data_parallel_size) == ("cuda", 4)
    plain = presets.resolve(PRESET)
    assert (settings.data.benchmarks, settings.sweep.budgets) == (plain.data.benchmarks, plain.sweep.budgets)


def test_arguments_replace_it() -> None:
    settings = resolved("a/b", benchmarks=("gsm8k", "aime-2024"), budgets=("1k+512",), samples=2, problems=30)
    assert settings.data.benchmarks == ["gsm8k", "aime-2024"]
    assert (settings.sweep.budgets, settings.sweep.samples, settings.sweep.problems) == (["1024+512"], 2, 30)


def test_without_a_gpu_the_processor_measures() -> None:
    engine = resolved("a/b", gpus=0).engine
    assert (engine.device, engine.dtype, engine.data_parallel_size) == ("cpu", "float32", 1)


def test_a_server_is_measured_with_its_tokenizer_or_in_text() -> None:
    served = resolved("http://host:8000/v1#m", tokenizer="a/b")
    assert list(served.sweep.endpoints) == ["m"] and served.sweep.tokenizers == {"m": "a/b"}
    trained = resolved("http://host:8000/v1#trained", tokenizer="a/b")
    assert trained.sweep.models == ["host-8000-trained"], "as `elastic serve --model trained` calls it"
    assert list(resolved("openai+https://host/v1#base").sweep.endpoints) == ["host-base"]
    assert served.base == "a/b", "prompts are counted in its tokens, and no other model is looked for"
    asked = resolved("openai+https://host/v1#gpt").sweep
    assert asked.models == ["gpt"] and "separate" not in asked.strategies


@pytest.mark.parametrize(
    ("model", "tokenizer", "sentence"),
    [
        ("http://host:8000/v1#m", None, "http://host:8000/v1#m .*--tokenizer"),
        ("a/b", "a/b", "a/b "),
        ("http://host:8000/v1", "a/b", "#"),
    ],
)
def test_what_cannot_be_measured_is_refused(model: str, tokenizer: str | None, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        resolved(model, tokenizer=tokenizer)
    (tmp_path / "model").mkdir()
    with pytest.raises(UserError, match=r'modle: .*"model"'):
        resolved(str(tmp_path / "modle"))


def test_names_are_those_that_people_use(tmp_path: Path) -> None:
    (tmp_path / "run" / "base").mkdir(parents=True)
    assert name_of(str(tmp_path / "run")) == "run"
    assert name_of(str(tmp_path / "run" / "base")) == "run-base", "base is what a training began with"
    assert name_of("deepseek-ai/R1:7b") == "R1-7b"
