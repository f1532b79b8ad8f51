"""Fine-tuning on an alpaca file for real: by `elastic run warm-start`, killed and resumed, on a CPU."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

SETTINGS = (
    "warm_start.initial=shipped", "warm_start.sft.chat_template=miniature", "warm_start.sft.device=cpu",
    "warm_start.sft.gpus=1", "warm_start.sft.precision=fp32", "warm_start.sft.epochs=30",
    "warm_start.sft.batch_size=4", "warm_start.sft.cutoff=64", "warm_start.sft.tokens_per_device=128",
    "warm_start.sft.learning_rate=1e-3", "warm_start.sft.save_every=3", 'data.benchmarks=["miniature-easy"]',
    "data.miniature.seed=3", "data.miniature.evaluation_seed=3", "data.miniature.num_train=4",
    "data.miniature.problems_per_benchmark=2",
)  # fmt: skip
STEPS = 60  # Thirty epochs of eight rows in batches of four; so many that a kill finds some left.


def start(file: Path, runs: Path) -> subprocess.Popen[str]:
    changes = [f"warm_start.sft.data={file}", *SETTINGS]
    command = [sys.executable, "-m", "flows.commands", "run", "warm-start", "--preset", "reasonflux-f1-7b"]
    return subprocess.Popen(
        command + [part for change in changes for part in ("--set", change)],
        env={**os.environ, "ELASTIC_RUNS": str(runs)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


def steps(log: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\bstep:(\d+) - ", log.read_text())]


def kill_after_step(process: subprocess.Popen[str], step: int, runs: Path) -> Path:
    """The trainer's log."""
    deadline = time.monotonic() + 600
    while True:
        logs = list(runs.glob("*/warm-start/*/train.log"))
        if logs and max(steps(logs[0]), default=0) >= step:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return logs[0]
        assert process.poll() is None and time.monotonic() < deadline, finish(process)
        time.sleep(0.02)


@pytest.mark.slow
def test_fine_tuning_on_an_alpaca_file_is_resumed_after_a_kill_and_learns(tmp_path: Path) -> None:
    file, runs = tmp_path / "alpaca.json", tmp_path / "runs"
    rows = [
        {"instruction": f"{n}+1+1=?", "input": "", "output": f"<think>Okay</think>{n}+1={n + 1}", "source": "test"}
        for n in range(10, 18)
    ]
    file.write_text(json.dumps(rows))
    log = kill_after_step(start(file, runs), 4, runs)
    before = steps(log)
    output = finish(start(file, runs))
    told = (runs / "reasonflux-f1-7b" / "warm-start.log").read_text()
    assert re.search(r"alpaca-file: 8 rows, \d+ tokens, \d+ of them trained on; 0 cut", told)
    assert re.search(r"fields that training does not read: source \(8 rows\)", output)
    after = steps(log)[len(before) :]
    assert after[-1] == STEPS and after[0] > 1, "the second run begins after a checkpoint of the first"

    directory = log.parent
    assert pl.read_parquet(directory / "rows.parquet").height == 8
    losses = [float(loss) for loss in re.findall(r"train/loss:([\d.e-]+)", log.read_text())]
    assert losses[-1] < losses[0] / 2, losses
    record = json.loads((directory / "model" / "warm_start.json").read_text())
    assert (record["total_steps"], record["max_length"], record["dtype"]) == (STEPS, 64, "fp32")
