"""A sweep that cannot be run is refused before an engine starts, in a sentence that says what to change."""

import json
import re
import shutil
from pathlib import Path

import pytest

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.parameters import EngineParameters
from elastic_core.miniature.warm_start import BASE
from elastic_core.sweep.models import SweepModel, sweep_models
from elastic_core.system.fingerprint import model_fingerprint

PROBLEMS = {"easy": [Problem("easy", "0", "(+1+2)*3=?", "9", "math")]}


def prepare(
    *models: str, budget: str = "48+32", paths: dict[str, Path] | None = None, max_model_len: int | None = None
) -> list[SweepModel]:
    paths = paths or {"base": BASE, "twin": BASE}
    request = {"models": models, "strategies": ["separate", "vanilla"], "budgets": [budget]}
    fingerprints = {name: model_fingerprint(path) for name, path in paths.items()}
    return sweep_models(request, fingerprints, paths, PROBLEMS, EngineParameters(max_model_len=max_model_len))


def test_a_model_comes_with_its_cells_its_context_and_its_fingerprint() -> None:
    (base,) = prepare("base", max_model_len=300)
    assert [cell.strategy for cell in base.cells] == ["vanilla", "separate"]
    assert (base.context, base.checkpoints) == (300, {"base": str(BASE)})
    assert base.rows.model_fingerprint == model_fingerprint(BASE)


def test_two_models_have_both_checkpoints_and_both_fingerprints() -> None:
    (pair,) = prepare("base>twin")
    assert list(pair.checkpoints) == ["base", "twin"]
    assert pair.rows.model_fingerprint == ">".join([model_fingerprint(BASE)] * 2)
    assert {cell.strategy for cell in pair.cells} == {"separate"}


@pytest.mark.parametrize("budget", ["280+32", "290+unlimited", "unlimited+290"])
def test_a_budget_above_the_context_is_refused(budget: str) -> None:
    with pytest.raises(ValueError, match=rf"{re.escape(budget)} .* 300 "):
        prepare("base", budget=budget, max_model_len=300)


def test_models_that_cannot_be_swept_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'"other"; .*base, twin'):
        prepare("other")
    with pytest.raises(ValueError, match="tokenizer"):
        prepare("base>other", paths={"base": BASE, "other": changed(tmp_path / "a", "Okay", "Fine")})
    with pytest.raises(ValueError, match="</think>"):
        prepare("other", paths={"other": changed(tmp_path / "b", "</think>", "</thunk>")})


def test_what_a_strategy_writes_itself_needs_room_too() -> None:
    prompt = len(prepare("base")[0].prompts.ids(PROBLEMS["easy"][0], "separate", Budget(48, 32)))
    prepare("base", max_model_len=prompt + 48 + 1 + 32)
    with pytest.raises(ValueError, match=r"separate 48\+32: .* 1 "):
        prepare("base", max_model_len=prompt + 48 + 32)


def test_a_response_without_a_budget_must_fit_beside_the_prompt() -> None:
    given = {"models": ["base"], "strategies": ["unconstrained"], "budgets": ["8+8"]}
    fingerprints, engine = {"base": model_fingerprint(BASE)}, EngineParameters(max_model_len=300)

    def models(limit: int) -> list[SweepModel]:
        return sweep_models(given | {"max_response_tokens": limit}, fingerprints, {"base": BASE}, PROBLEMS, engine)

    (base,) = models(200)
    prompt = len(base.prompts.ids(PROBLEMS["easy"][0], "unconstrained", Budget(None, None)))
    models(300 - prompt)
    with pytest.raises(ValueError, match=rf" {301 - prompt} "):
        models(301 - prompt)


def test_a_tokenizer_that_was_only_saved_again_is_the_same(tmp_path: Path) -> None:
    """As training saves it: transformers writes other fields and other spaces than the base's maker."""
    saved = Path(shutil.copytree(BASE, tmp_path / "saved"))
    tokenizer, configuration = saved / "tokenizer.json", saved / "tokenizer_config.json"
    tokenizer.write_text(json.dumps(json.loads(tokenizer.read_text()), indent=4))
    configuration.write_text(json.dumps({**json.loads(configuration.read_text()), "is_local": True}))
    (pair,) = prepare("base>saved", paths={"base": BASE, "saved": saved})
    assert pair.name == "base>saved"


def changed(directory: Path, token: str, other: str) -> Path:
    """The shipped base with one token of its tokenizer renamed."""
    copy = Path(shutil.copytree(BASE, directory / "copy"))
    file = copy / "tokenizer.json"
    file.write_text(file.read_text().replace(json.dumps(token)[1:-1], json.dumps(other)[1:-1]))
    return copy
