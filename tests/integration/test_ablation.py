"""What the ablation changes, and the configuration that `elastic run train --dry-run` prints."""

from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result
from safetensors.numpy import save_file

from elastic_core.errors import UserError
from elastic_core.system.accelerators import count_gpus
from flows import pipeline, presets
from flows.commands.cli import cli
from flows.pipeline import changes
from flows.runtime.run import FlowRun
from flows.runtime.settings import Settings


def test_a_variant_replaces_settings_of_training_and_starts_where_another_ended() -> None:
    variants = presets.resolve("ablation-embedded").ablation
    assert changes(variants["t96"], {}) == {"train.budget": "96+32"}
    assert changes(variants["iterative"], {"t48": "/runs/t48"}) == {"train.budget": "144+32", "base": "/runs/t48"}


def test_every_variant_is_a_training_of_its_own() -> None:
    preset = "ablation-embedded"
    variants = presets.resolve(preset).ablation
    trained = dict.fromkeys(variants, "/runs")
    settings = [presets.resolve(preset, {**changes(variant, trained), "ablation": {}}) for variant in variants.values()]
    assert len({(each.base, each.training.model_dump_json()) for each in settings}) == len(variants) == 8


def test_every_variant_is_trained_with_every_seed_from_the_same_seed_of_what_it_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained: list[Settings] = []
    measured: list[Settings] = []

    def run_train(run: FlowRun) -> str:
        trained.append(run.settings)
        return f"/runs/{len(trained)}"

    def nothing(run: FlowRun) -> None:
        pass

    monkeypatch.setattr(FlowRun, "recorded", lambda run, flow: nullcontext(run))
    monkeypatch.setattr(FlowRun, "require_reachable", nothing)
    for stand_in in ("run_prepare_data", "run_report"):
        monkeypatch.setattr(pipeline, stand_in, nothing)
    monkeypatch.setattr(pipeline, "run_train", run_train)
    monkeypatch.setattr(pipeline, "run_sweep", lambda run: measured.append(run.settings))
    pipeline.run_ablation.fn(FlowRun(presets.resolve("ablation-embedded", {"train.seeds": [1, 2]}), Path("runs")))
    assert [each.training.seeds for each in trained] == [(1,)] * 8 + [(2,)] * 8
    (sweep,) = [each.sweep for each in measured]
    assert sweep.models == ["base", *sweep.checkpoints] and len(sweep.checkpoints) == 16
    followers = [each.base for each in trained if str(each.training.budget) == "144+32" and each.base != "shipped"]
    assert followers == [sweep.checkpoints["t48@1"], sweep.checkpoints["t48@2"]]


def dry_run(runs: Path, flow: str, *arguments: str) -> Result:
    with patch("flows.runtime.environment.prepare"):  # Its variables would outlive the test.
        return CliRunner(env={"ELASTIC_RUNS": str(runs)}).invoke(
            cli, ["run", flow, "--dry-run", "--preset", *arguments]
        )


def test_a_dry_run_prints_verls_configuration_and_nothing_else(tmp_path: Path) -> None:
    result = dry_run(tmp_path, "train", "e1-math-7b", "--set", "train.steps=7")
    assert result.exit_code == 0, result.output
    config = yaml.safe_load(result.stdout)
    assert config["trainer"]["total_training_steps"] == 7
    assert config["actor_rollout_ref"]["model"]["path"] == "Skywork/Skywork-OR1-Math-7B"
    assert config["data"]["train_files"] == ["runs/e1-math-7b/data/KEY/deepscaler.parquet"]


@pytest.mark.skipif(bool(count_gpus()), reason="of a machine without GPUs")
@pytest.mark.parametrize("flow", ["train", "sweep", "pipeline"])
def test_a_dry_run_of_what_is_for_another_machine_says_why_and_is_not_refused(tmp_path: Path, flow: str) -> None:
    result = dry_run(tmp_path, flow, "e1-math-7b")
    assert result.exit_code == 0 and result.stdout
    assert result.stderr.splitlines()[-1].startswith("not on this machine: ") and "GPU" in result.stderr
    assert not [*tmp_path.glob("e1-math-7b/**/*")], "nothing was started"


def test_a_dry_run_of_fine_tuning_prints_its_own_configuration(tmp_path: Path) -> None:
    assert yaml.safe_load(dry_run(tmp_path, "warm-start", "reasonflux-f1-7b").stdout)["trainer"]["n_gpus_per_node"] == 8
    assert 'preset = "embedded"' in dry_run(tmp_path, "warm-start", "embedded").stdout, "the miniature is not verl's"


def test_a_dry_run_refuses_a_model_that_cannot_be_trained(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "brain"}')
    save_file({"weight": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    result = dry_run(tmp_path / "runs", "train", "e1-math-7b", "--set", f"base={tmp_path}")
    assert result.stdout == "" and isinstance(result.exception, UserError)
    assert str(result.exception).startswith(f"base = {tmp_path}: transformers cannot read its config.json")
