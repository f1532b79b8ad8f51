"""The model card, and where an exported model goes."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from huggingface_hub import ModelCard

from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.models.files import licence
from elastic_core.serving.levels import LEVELS, read_levels
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.system.fingerprint import model_fingerprint
from elastic_core.training import model_card
from elastic_core.training.model_card import TrainingRecord
from flows import presets
from flows.commands import models as commands
from flows.runtime.run import FlowRun
from reports.content import ReportParameters
from tasks.cards import Cards
from tasks.records.mlflow_tracker import Tracker
from tasks.records.stage_directory import TABLE, Stage
from tests.unit.test_report_summary import make_rows

RECORD: TrainingRecord = {
    "preset": "embedded",
    "checkpoint": "best",
    "step": 20,
    "accuracy": 0.65625,
    "samples": 8,
    "base": "/models/base (0a1408e115a62fbb)",
    "licence": "apache-2.0",
    "train": {"strategy": "separate", "budget": "48+32", "steps": 40},
    "data": {"train_data": "aa", "validation_data": "bb"},
    "data_manifest": "/runs/data/manifest.json",
    "mlflow_run": "1234",
}
CELL = {
    "benchmark": "miniature-hard",
    "strategy": "separate",
    "think_budget": 48,
    "solution_budget": None,
    "num_problems": 100,
    "num_samples": 8,
    "avg_at_k": 0.476,
    "ci_low": 0.408,
    "ci_high": 0.545,
    "tokens_mean": 76.4,
    "forced_fraction": 0.79,
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    model_card.write(directory, RECORD)
    return directory


def test_a_card_says_what_it_is_and_that_nothing_was_measured(model: Path) -> None:
    card = (model / "README.md").read_text()
    for fact in ("20 steps", "48+32", "avg@8 65.6 %", "/runs/data/manifest.json", "1234", "steps: 40", "sha256 aa"):
        assert fact in card
    assert "no finished sweep" in card and "not validated" in model_card.render({**RECORD, "accuracy": None}, [])
    assert json.loads((model / "training.json").read_text()) == RECORD


def test_a_card_has_limitations_the_bases_licence_and_the_budgets_it_was_measured_at(model: Path) -> None:
    assert "of no benchmark at any budget" in (model / "README.md").read_text()
    card = model_card.write_card(model, [CELL, {**CELL, "think_budget": 96, "solution_budget": 32}]).read_text()
    assert "miniature-hard at 48+unlimited, 96+32" in card and "under 48+32" in card and "one seed" in card
    assert "## Ethical considerations" in card and "for no other use" in card
    assert "chosen by" in card and "chosen by" not in model_card.render({**RECORD, "checkpoint": "last"}, [CELL])
    assert "The base's, `apache-2.0`" in card and ModelCard(card).data.license == "apache-2.0"
    unknown = model_card.render({**RECORD, "licence": None}, [])
    assert "The base's card names none" in unknown and ModelCard(unknown).data.license is None


def test_the_bases_licence_is_what_its_card_names(tmp_path: Path) -> None:
    assert licence(BASE) == "apache-2.0"
    assert licence(tmp_path) is None
    for head, found in (("license: mit", "mit"), ("tags: [a]", None), ("license: [a]", None)):
        (tmp_path / "README.md").write_text(f"---\n{head}\n---\n# A model\n")
        assert licence(tmp_path) == found
    (tmp_path / "README.md").write_text("# A model without a head\n")
    assert licence(tmp_path) is None


def test_a_measured_card_gives_samples_and_intervals(model: Path) -> None:
    card = model_card.write_card(model, [CELL]).read_text()
    assert "| miniature-hard | separate | 48+unlimited | 100 × 8 | 47.6 [40.8, 54.5] | 76 | 79 % |" in card
    assert "no finished sweep" not in card


def test_the_hub_reads_what_was_measured(model: Path) -> None:
    odd = {**CELL, "benchmark": 'a: "b"\n---\n# c', "avg_at_k": 0.5}
    card = ModelCard(model_card.write_card(model, [CELL, odd]).read_text())
    assert card.data.library_name == "transformers" and card.data.tags == ["elastic-reasoning", "grpo"]
    found = {result.dataset_name: (result.metric_name, result.metric_value) for result in card.data.eval_results}
    metric = "avg@8 in %, separate at 48+unlimited tokens"
    assert found == {"miniature-hard": (metric, 47.6), odd["benchmark"]: (metric, 50.0)}
    assert card.text.startswith("# embedded, best checkpoint") and "\n# c" not in card.text


def test_a_copy_never_overwrites(model: Path, tmp_path: Path) -> None:
    commands._copy(model, tmp_path / "released" / "one")
    assert sorted(file.name for file in (tmp_path / "released" / "one").iterdir()) == ["README.md", "training.json"]
    with pytest.raises(UserError, match=r"--to .*model: is there already"):
        commands._copy(model, model)


def test_pushing_wants_a_name_a_login_and_a_hub(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"--push model: expected OWNER/NAME"):
        commands._push(model, "model")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(UserError, match=r"^--push me/model: .*hf auth login"):
        commands._push(model, "me/model")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_token")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"^--push me/model: [^\n]+$"):
        commands._push(model, "me/model")


def test_a_sweep_finds_what_training_left_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, "smoke", "train", {"steps": 2})
    monkeypatch.setattr(FlowRun, "trainings", {2: stage})
    run = FlowRun(presets.resolve("smoke"), tmp_path)
    with pytest.raises(UserError, match=r"run first: elastic run train --preset smoke"):
        run.trained("best")
    (stage.directory / "model").mkdir(parents=True)
    stage.marker.write_text("{}")
    assert run.trained() == stage.directory / "model"
    with pytest.raises(UserError, match="no best checkpoint"):
        run.trained("best")
    (stage.directory / "best").mkdir()
    assert run.trained("best") == stage.directory / "best"


def test_of_several_seeds_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = {seed: Stage(tmp_path, "smoke", "train", {"seed": seed}) for seed in (1, 2)}
    monkeypatch.setattr(FlowRun, "trainings", stages)
    settings = presets.resolve("smoke", {"train.seeds": [1, 2]})
    run = FlowRun(settings, tmp_path)
    (stages[2].directory / "model").mkdir(parents=True)
    stages[2].marker.write_text("{}")
    assert run.trained("trained@2") == stages[2].directory / "model"
    for name in ("trained", "trained@3", "other"):
        with pytest.raises(UserError, match=f'"{name}"; expected trained@1, trained@2, best@1, best@2'):
            run.trained(name)
    with pytest.raises(UserError, match="run first: elastic run train"):
        run.trained("best@1")


def test_a_sweep_writes_the_cards_of_what_this_presets_trainings_left_and_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(directory: str) -> Path:
        model = tmp_path / directory
        model.mkdir(parents=True)
        model_card.write(model, RECORD)
        return model

    trained, best, variant = left("smoke/train/k1/model"), left("smoke/train/k1/best"), left("smoke/train/k2/model")
    others = [left("embedded/train/k1/model"), left("exported")]
    paths = {"trained": trained, "variant": variant, "elsewhere": others[0], "mine": others[1]}
    monkeypatch.setattr(Cards, "cells", lambda cards, model: [] if model == best else [CELL])
    offered = {trained: [trained / LEVELS]}
    monkeypatch.setattr(Cards, "write_levels", lambda cards, model: offered.get(model, []))
    renewed: list[tuple[str, Path]] = []
    tracker = SimpleNamespace(find=lambda label: label, renew=lambda run_id, card: renewed.append((run_id, card)))
    cards = Cards(Stage(tmp_path, "smoke", "sweep", {}), pl.lit(True), 0.05, model_fingerprint)
    cards.write_all(paths.values(), cast(Tracker, tracker))
    says = {
        model: "47.6 [40.8, 54.5]" in (model / "README.md").read_text() for model in (trained, best, variant, *others)
    }
    assert says == {trained: True, best: False, variant: True, others[0]: False, others[1]: False}
    assert renewed == [
        ("smoke/train/k1", trained / LEVELS),
        ("smoke/train/k1", trained / "README.md"),
        ("smoke/train/k2", variant / "README.md"),
    ]


@pytest.fixture
def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[FlowRun, Path]:
    """A sweep that measured the miniature's base as "trained", beside another model; and the weights, in a directory to
    write to."""
    model = tmp_path / "model"
    shutil.copytree(BASE, model)
    model_card.write(model, RECORD)
    rows = make_rows(models=("base", "trained"))
    weights = {"base": "other", "trained": model_fingerprint(model)}
    stage = Stage(tmp_path, "smoke", "sweep", {"models": weights})
    monkeypatch.setattr(FlowRun, "sweep", stage)
    data, sweep = SimpleNamespace(benchmarks=[rows["benchmark"][0]]), SimpleNamespace(problems=None)
    settings: Any = SimpleNamespace(data=data, sweep=sweep, report=ReportParameters(margin=5))
    store = TrajectoryStore(stage.directory / TABLE)
    with store.writing(Manifest(weights, {}, {}, {})):
        store.append(rows)
    return FlowRun(settings, tmp_path), model


def test_only_cells_of_these_weights_are_on_the_card(swept: tuple[FlowRun, Path]) -> None:
    run, model = swept
    assert run.cards.cells(model) == []  # The sweep has not finished.
    run.sweep.marker.write_text("{}")
    cells = run.cards.cells(model)
    assert cells and {cell["model"] for cell in cells} == {"trained"}


def test_effort_levels_come_with_a_finished_sweep_and_lie_beside_the_model_and_on_its_card(
    swept: tuple[FlowRun, Path],
) -> None:
    run, model = swept
    assert run.cards.write_levels(model) == []
    assert "Effort levels" not in model_card.write_card(model, []).read_text()
    run.sweep.marker.write_text("{}")
    assert run.cards.write_levels(model) == [model / LEVELS]
    levels = read_levels(model / LEVELS)
    assert (levels.model, levels.weights, levels.margin) == ("trained", model_fingerprint(model), 0.05)
    assert levels.benchmarks == [run.settings.data.benchmarks[0]]
    card = model_card.write_card(model, run.cards.cells(model)).read_text()
    assert ("at most 5 points" in card) == (levels.loss is not None)
    for name, level in levels.levels.items():
        assert f"| {name} | {level.budget} | {100 * level.accuracy:.1f} [" in card


def test_levels_that_were_chosen_from_the_same_table_stay_and_others_go(swept: tuple[FlowRun, Path]) -> None:
    run, model = swept
    run.sweep.marker.write_text("{}")
    run.cards.write_levels(model)
    chosen = read_levels(model / LEVELS).model_copy(update={"margin": 0.3})
    chosen.write(model / LEVELS)
    run.cards.write_levels(model)
    assert read_levels(model / LEVELS) == chosen
    chosen.model_copy(update={"table": "of another day"}).write(model / LEVELS)
    run.cards.write_levels(model)
    assert read_levels(model / LEVELS).margin == 0.05


def test_a_sweep_without_separate_budgets_offers_no_levels(swept: tuple[FlowRun, Path]) -> None:
    run, model = swept
    store = TrajectoryStore(run.sweep.directory / TABLE)
    for shard in store.shards():
        shard.unlink()
    with store.writing(Manifest.load(store.directory / "manifest.json")):
        store.append(make_rows(models=["trained"], strategies=["vanilla", "unconstrained"]))
    run.sweep.marker.write_text("{}")
    assert run.cards.write_levels(model) == []
    assert run.cards.cells(model)
