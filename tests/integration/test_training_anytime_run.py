"""Anytime training for real, on the miniature: rows of thoughts and answers through verl, to a number of tokens."""

from pathlib import Path

import polars as pl
import pytest

from elastic_core.training.checkpoints import checkpoint_steps, generated_tokens
from elastic_core.training.grpo.step_metrics import GENERATED
from tests.elastic_command import elastic

MOST = 30_000
"""Of about 13,000 a step."""
TRAINING = (
    *("run", "train", "--preset", "smoke", "--set", "train.algorithm=anytime"),
    *("--set", "train.steps=50", "--set", f"train.max_generated_tokens={MOST}", "--set", "train.save_every=50"),
)


@pytest.mark.slow
def test_it_trains_to_the_tokens_it_may_generate_and_is_not_run_again(tmp_path: Path) -> None:
    first = elastic(*TRAINING, runs=tmp_path, timeout=900)
    assert first.returncode == 0, first.stdout[-6000:]
    (directory,) = tmp_path.glob("smoke/train/*")
    (last,) = checkpoint_steps(directory / "checkpoints")
    assert 1 < last < 50 and generated_tokens(directory / "checkpoints") >= MOST
    values = pl.read_parquet(directory / "metrics.parquet")
    tokens = dict(values.filter(name=GENERATED).select("step", "value").iter_rows())
    assert list(tokens) == list(range(1, last + 1)) and tokens[last - 1] < MOST <= tokens[last]
    metrics = dict(values.filter(step=last).select("name", "value").iter_rows())
    by_cut = [metrics[f"rollout/acc_at_{cut}"] for cut in (12, 24, 36, 48)]
    assert metrics["critic/score/mean"] == pytest.approx(sum(by_cut) / 4)
    assert metrics["actor/grad_norm"] > 0
    again = elastic(*TRAINING, runs=tmp_path)
    assert "train: done before, nothing to do" in again.stdout
