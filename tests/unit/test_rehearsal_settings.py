"""What a rehearsal changes of a preset, and that all else stays."""

from pathlib import Path
from typing import Any

import pytest

from flows import presets
from flows.commands.checks.rehearsal import missing_on_a_cpu
from flows.commands.checks.shortened import CONTEXT, STEPS, Inputs, models_of, rehearsal_values
from flows.presets import toml
from flows.runtime.settings import Settings


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
