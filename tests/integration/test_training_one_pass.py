"""Rollouts of training in one request, against two, on the miniature through verl."""

from pathlib import Path

import polars as pl
import pytest

from tests.elastic_command import elastic

TRAINING = ("run", "train", "--preset", "smoke", "--set", "train.steps=2")
GREEDY = ("--set", "train.validation_temperature=0", "--set", "train.validate_every=1")


def trained(runs: Path, *more: str) -> dict[tuple[int, str], float]:
    """Metrics by step and name."""
    done = elastic(*TRAINING, *GREEDY, *more, runs=runs, timeout=900)
    assert done.returncode == 0, done.stdout[-6000:]
    (file,) = runs.glob("smoke/train/*/metrics.parquet")
    return {(step, name): value for step, name, value in pl.read_parquet(file).iter_rows()}


@pytest.mark.slow
def test_one_request_has_the_law_of_two(tmp_path: Path) -> None:
    two = trained(tmp_path / "two")
    one = trained(tmp_path / "one", "--set", "train.one_pass=true")
    before = {name: value for (step, name), value in two.items() if step == 0 and name.startswith("val")}
    assert before and {name: one[0, name] for name in before} == before, "a greedy model answers alike"
    # A thought has the same seed either way; what follows it does not.
    for name in ("rollout/think_tokens", "rollout/forced"):
        assert one[1, name] == two[1, name]
    assert 0 < one[1, "rollout/forced"] < 1
    assert one[1, "actor/grad_norm"] > 0
