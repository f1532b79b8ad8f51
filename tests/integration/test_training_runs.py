"""Settings of training for real, on the miniature through verl: one request instead of two, rows of thoughts and
answers to a number of tokens; and on two ranks of an untied twin adapters, dynamic sampling, rollout correction, and
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

pytestmark = pytest.mark.slow


def trained(runs: Path, base: str | Path = "shipped", again: bool = False, **settings: Any) -> Path:
    """The stage of a training; `again` it has nothing to do."""
    given = {"base": str(base)} | {f"train.{name}": value for name, value in settings.items()}
    words = [word for key, value in given.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    done = elastic("run", "train", "--preset", "smoke", *words, runs=runs, timeout=1200)
    assert done.returncode == 0, done.stdout[-6000:]
    assert ("train: done before, nothing to do" in done.stdout) is again
    (stage,) = runs.glob("smoke/train/*")
    return stage


def of_step(stage: Path, step: int) -> dict[str, float]:
    return dict(pl.read_parquet(stage / "metrics.parquet").filter(step=step).select("name", "value").iter_rows())


def test_one_request_has_the_law_of_two(tmp_path: Path) -> None:
    greedy = {"steps": 2, "validation_temperature": 0, "validate_every": 1}
    two, one = (trained(tmp_path / str(one_pass), **greedy, one_pass=one_pass) for one_pass in (False, True))
    before = {name: value for name, value in of_step(two, 0).items() if name.startswith("val")}
    assert before and {name: of_step(one, 0)[name] for name in before} == before, "a greedy model answers alike"
    first = of_step(one, 1)
    # A thought has the same seed either way; what follows it does not.
    for name in ("rollout/think_tokens", "rollout/forced"):
        assert first[name] == of_step(two, 1)[name]
    assert 0 < first["rollout/forced"] < 1
    assert first["actor/grad_norm"] > 0


def test_it_trains_to_the_tokens_it_may_generate_and_is_not_run_again(tmp_path: Path) -> None:
    most = 30_000  # Of about 13,000 a step.
    settings = {"algorithm": "anytime", "steps": 50, "max_generated_tokens": most, "save_every": 50}
    stage = trained(tmp_path, **settings)
    (last,) = checkpoint_steps(stage / "checkpoints")
    assert 1 < last < 50 and generated_tokens(stage / "checkpoints") >= most
    metrics = of_step(stage, last)
    assert of_step(stage, last - 1)[GENERATED] < most <= metrics[GENERATED]
    recorded = pl.read_parquet(stage / "metrics.parquet").filter(name=GENERATED)
    assert recorded["step"].to_list() == list(range(1, last + 1))
    by_cut = [metrics[f"rollout/acc_at_{cut}"] for cut in (12, 24, 36, 48)]
    assert metrics["critic/score/mean"] == pytest.approx(sum(by_cut) / 4)
    assert metrics["actor/grad_norm"] > 0
    trained(tmp_path, again=True, **settings)


@pytest.fixture
def untied(tmp_path: Path) -> Path:
    """The miniature with an output layer of its own, which has the embeddings' weights."""
    tied = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    config = AutoConfig.from_pretrained(BASE, tie_word_embeddings=False)
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(tied.state_dict())
    directory = Path(shutil.copytree(BASE, tmp_path / "untied"))
    model.save_pretrained(directory)
    return directory


def whole(stage: Path, step: int) -> dict[str, torch.Tensor]:
    """What both ranks saved, put together."""
    files = (stage / "checkpoints" / f"global_step_{step}" / "actor").glob("model_world_size_2_rank_*.pt")
    ranks = [torch.load(file, weights_only=False) for file in sorted(files)]
    return {name: torch.cat([rank[name].to_local() for rank in ranks]) for name in ranks[0]}


def test_as_published_every_cut_solution_has_one_token_more_in_verl_s_batch(untied: Path, tmp_path: Path) -> None:
    settings = {"gpus_per_node": 2, "steps": 3, "reuse_rollout_logprobs": False, "warmup_steps": 0}
    stage = trained(tmp_path / "runs", untied, as_published=True, **settings)
    assert checkpoint_steps(stage / "checkpoints")[-1] == 2, "one step fewer"
    before, after = (whole(stage, step) for step in (1, 2))
    base = load_file(untied / "model.safetensors")
    assert all(torch.equal(before[name], weight) for name, weight in base.items()), "the first step has a rate of 0"
    assert not all(torch.equal(after[name], weight) for name, weight in base.items())
    for step in (1, 2):
        found = of_step(stage, step)
        tokens = [found[f"rollout/{name}"] for name in ("think_tokens", "solution_tokens", "forced", "solution_cut")]
        assert found["response_length/mean"] == pytest.approx(sum(tokens)) and found["rollout/solution_cut"] > 0


def test_adapters_are_merged_into_the_export_and_discarded_problems_are_counted(untied: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "gpus_per_node": 2, "lora_rank": 4, "filter_groups": True, "steps": 2, "reuse_rollout_logprobs": False,
        "rollout_correction.rollout_is": "token", "rollout_dtype": "bfloat16", "learning_rate": 1e-3,
    }  # fmt: skip
    stage = trained(tmp_path / "runs", untied, **settings)
    parts = whole(stage, checkpoint_steps(stage / "checkpoints")[-1])
    (file,) = (stage / "model").glob("*.safetensors")
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
    last = of_step(stage, 2)
    assert last["rollout/groups"] == 8 + last["rollout/groups_discarded"]
    assert generated_tokens(stage / "checkpoints") == last[GENERATED]
    assert 0 < last["rollout_corr/rollout_is_max"] <= 2 and last["rollout_corr/rollout_is_min"] < 1
