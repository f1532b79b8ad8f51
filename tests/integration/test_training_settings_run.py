"""Settings of training for real, on two ranks of an untied twin: adapters, dynamic sampling and rollout correction."""

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


@pytest.mark.slow
def test_adapters_are_merged_into_the_export_and_discarded_problems_are_counted(tmp_path: Path) -> None:
    words = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    command = ["run", "train", "--preset", "smoke", "--set", f"base={untied(tmp_path / 'untied')}", *words]
    done = elastic(*command, runs=tmp_path / "runs", timeout=1200)
    assert done.returncode == 0, done.stdout[-6000:]
    (directory,) = (tmp_path / "runs").glob("smoke/train/*")
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
    values = pl.read_parquet(directory / "metrics.parquet")
    last = dict(values.filter(step=2).select("name", "value").iter_rows())
    assert last["rollout/groups"] == 8 + last["rollout/groups_discarded"]
    assert generated_tokens(directory / "checkpoints") == last[GENERATED]
    assert 0 < last["rollout_corr/rollout_is_max"] <= 2 and last["rollout_corr/rollout_is_min"] < 1
