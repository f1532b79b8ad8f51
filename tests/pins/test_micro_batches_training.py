"""Fine-tuning in padded micro-batches, cut our way, against packed ones, cut verl's: the same weights."""

import os
import random
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from elastic_core.miniature.warm_start import BASE
from elastic_core.training.sft_parameters import WarmStart

STEPS, ROWS = 3, 8


def trained(directory: Path, rows: Path, *, remove_padding: bool) -> dict[str, torch.Tensor]:
    config = WarmStart(
        model=BASE, train_file=rows, work_dir=directory / "work", output_dir=directory / "model", total_steps=STEPS,
        batch_size=ROWS, micro_batch_tokens=64, max_length=64, learning_rate=1e-3, warmup_steps=0, fused_loss=True,
        remove_padding=remove_padding,
    )  # fmt: skip
    file = directory / "config.json"
    file.write_text(config.model_dump_json())
    command = [sys.executable, "-W", "ignore", "-m", "elastic_core.training.sft", str(file)]
    environment = {**os.environ, "VERL_PLATFORM": "cpu"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return load_file(directory / "model" / "model.safetensors")


@pytest.mark.timeout(600)
def test_the_cut_changes_no_gradient(tmp_path: Path) -> None:
    rng = random.Random(0)
    ids = [[rng.randrange(3, 50) for _ in range(rng.choice((4, 6, 30, 60)))] for _ in range(ROWS * STEPS)]
    mask = [[0, *[1] * (len(row) - 1)] for row in ids]
    rows = tmp_path / "rows.parquet"
    pl.DataFrame({"input_ids": ids, "loss_mask": mask}).write_parquet(rows)
    found = {}
    for remove_padding in (False, True):
        directory = tmp_path / str(remove_padding)
        directory.mkdir()
        found[remove_padding] = trained(directory, rows, remove_padding=remove_padding)
    base = load_file(BASE / "model.safetensors")
    for name, weight in found[True].items():
        moved = torch.linalg.norm(weight - base[name])
        assert torch.linalg.norm(found[False][name] - weight) < 0.01 * moved, name
