"""Settings of training for real, on two ranks of an untied twin: adapters, dynamic sampling, rollout correction, and
what is as published."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from elastic_core.miniature.warm_start import BASE
from elastic_core.training.checkpoints import checkpoint_steps, generated_tokens
from elastic_core.training.grpo.step_metrics import GENERATED
from tests.elastic_command import elastic

SETTINGS: dict[str, Any] = {
    "train.gpus_per_node": 2, "train.lora_rank": 4, "train.filter_groups": True, "train.steps": 2,
    "train.reuse_rollout_logprobs": False, "train.rollout_correction.rollout_is": "token",
    "train.rollout_dtype": "bfloat16", "train.learning_rate": 1e-3,
}  # fmt: skip


def untied(directory: Path) -> Path:
    """The miniature with an output layer of its own, which has the embeddings' weights."""
    tied = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    config = AutoConfig.from_pretrained(BASE, tie_word_embeddings=False)
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(tied.state_dict())
    shutil.copytree(BASE, directory)
    model.save_pretrained(directory)
    return directory


def whole(actor: Path) -> dict[str, torch.Tensor]:
    """What both ranks saved, put together."""
    ranks = [torch.load(file, weights_only=False) for file in sorted(actor.glob("model_world_size_2_rank_*.pt"))]
    return {name: torch.cat([rank[name].to_local() for rank in ranks]) for name in ranks[0]}


def trained(directory: Path, settings: dict[str, Any]) -> Path:
    """The stage of a training of the untied twin."""
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    command = ["run", "train", "--preset", "smoke", "--set", f"base={untied(directory / 'untied')}", *words]
    done = elastic(*command, runs=directory / "runs", timeout=1200)
    assert done.returncode == 0, done.stdout[-6000:]
    (stage,) = (directory / "runs").glob("smoke/train/*")
    return stage


def of_step(stage: Path, step: int) -> dict[str, float]:
    return dict(pl.read_parquet(stage / "metrics.parquet").filter(step=step).select("name", "value").iter_rows())


@pytest.mark.slow
def test_as_published_every_cut_solution_has_one_token_more_in_verl_s_batch(tmp_path: Path) -> None:
    given = {"as_published": True, "gpus_per_node": 2, "steps": 3, "reuse_rollout_logprobs": False, "warmup_steps": 0}
    stage = trained(tmp_path, {f"train.{name}": value for name, value in given.items()})
    assert checkpoint_steps(stage / "checkpoints")[-1] == 2, "one step fewer"
    before, *after = (whole(stage / "checkpoints" / f"global_step_{step}" / "actor") for step in (1, 2))
    base = load_file(tmp_path / "untied" / "model.safetensors")
    assert all(torch.equal(before[name], weight) for name, weight in base.items()), "the first step has a rate of 0"
    assert not all(torch.equal(after[0][name], weight) for name, weight in base.items())
    for step in (1, 2):
        found = of_step(stage, step)
        tokens = [found[f"rollout/{name}"] for name in ("think_tokens", "solution_tokens", "forced", "solution_cut")]
        assert found["response_length/mean"] == pytest.approx(sum(tokens)) and found["rollout/solution_cut"] > 0


@pytest.mark.slow
def test_adapters_are_merged_into_the_export_and_discarded_problems_are_counted(tmp_path: Path) -> None:
    directory = trained(tmp_path, SETTINGS)
    checkpoint = directory / "checkpoints" / f"global_step_{checkpoint_steps(directory / 'checkpoints')[-1]}"
    parts = whole(checkpoint / "actor")
    (file,) = (directory / "model").glob("*.safetensors")
    exported, moved = load_file(file), 0.0
    for name, weight in exported.items():
        adapted = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{adapted}.base_layer.weight" not in parts:
            assert torch.equal(weight, parts[f"{adapted}.weight"])
            continue
        a, b = (parts[f"{adapted}.lora_{each}.default.weight"] for each in "AB")
        assert torch.allclose(weight, parts[f"{adapted}.base_layer.weight"] + 2 * b @ a, atol=1e-6)
        moved = max(moved, float((b @ a).abs().max()))
    assert moved > 0
    last = of_step(directory, 2)
    assert last["rollout/groups"] == 8 + last["rollout/groups_discarded"]
    assert generated_tokens(directory / "checkpoints") == last[GENERATED]
    assert 0 < last["rollout_corr/rollout_is_max"] <= 2 and last["rollout_corr/rollout_is_min"] < 1
