"""Fine-tuning row by row, in padded micro-batches, cut our way, and in packed ones, cut verl's: the same weights."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import torch
from safetensors.torch import load_file

from elastic_core.miniature.warm_start import BASE
from elastic_core.training.sft_parameters import WarmStart

STEPS, ROWS = 3, 8


def trained(directory: Path, rows: Path, **form: Any) -> dict[str, torch.Tensor]:
    config = WarmStart(
        model=BASE, train_file=rows, work_dir=directory / "work", output_dir=directory / "model", total_steps=STEPS,
        batch_size=ROWS, micro_batch_tokens=64, max_length=64, learning_rate=1e-3, warmup_steps=0,
        **form,
    )  # fmt: skip
    file = directory / "config.json"
    file.write_text(config.model_dump_json())
    command = [sys.executable, "-W", "ignore", "-m", "elastic_core.training.sft", str(file)]
    environment = {**os.environ, "VERL_PLATFORM": "cpu"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return load_file(directory / "model" / "model.safetensors")


def test_the_cut_changes_no_gradient(tmp_path: Path) -> None:
    rng = random.Random(0)
    ids = [[rng.randrange(3, 50) for _ in range(rng.choice((4, 6, 30, 60)))] for _ in range(ROWS * STEPS)]
    mask = [[0, *[1] * (len(row) - 1)] for row in ids]
    rows = tmp_path / "rows.parquet"
    pl.DataFrame({"input_ids": ids, "loss_mask": mask}).write_parquet(rows)
    found = {}
    forms: dict[str, dict[str, Any]] = {
        "row by row": {"remove_padding": False, "device": "gpu"},
        "padded": {"remove_padding": False},
        "packed": {"remove_padding": True},
    }
    for form, settings in forms.items():
        directory = tmp_path / form
        directory.mkdir()
        found[form] = trained(directory, rows, **settings)
    base = load_file(BASE / "model.safetensors")
    for name, weight in found.pop("packed").items():
        moved = torch.linalg.norm(weight - base[name])
        for other in found.values():
            assert torch.linalg.norm(other[name] - weight) < 0.01 * moved, name
