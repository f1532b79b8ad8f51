"""Fine-tuning that is killed after every checkpoint ends with the weights of an undisturbed run, bit by bit."""

from pathlib import Path

import polars as pl
import pytest

from elastic_core.miniature.warm_start import BASE
from elastic_core.training.sft_parameters import WarmStart
from tests.processes import python

# Each training is a fork, so that torch and verl are imported once.
RUNS = """
import os, signal, sys
from pathlib import Path
import mlflow
from verl.trainer import sft_trainer
from elastic_core.training.sft import main

save = sft_trainer.CheckpointHandler.save_checkpoint

def train(file, change=lambda: None):
    child = os.fork()
    if child == 0:
        change()
        main(Path(file))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def die_when_saved():
    def save_and_die(self, step):
        save(self, step)
        os.kill(os.getpid(), signal.SIGKILL)
    sft_trainer.CheckpointHandler.save_checkpoint = save_and_die

undisturbed, killed, num_kills = sys.argv[1:]
assert train(undisturbed) == 0
for _ in range(int(num_kills)):
    assert train(killed, die_when_saved) == -signal.SIGKILL
assert train(killed) == 0
"""
ENDS_EARLY = """
import sys
from pathlib import Path
from verl.trainer import sft_trainer
from elastic_core.training.sft import main

sft_trainer.SFTTrainer.fit = lambda self: None
main(Path(sys.argv[1]))
"""


def fine_tuning(directory: Path, rows: Path, batch_size: int, total_steps: int) -> Path:
    """The file that describes a training which shuffles its rows and saves every step."""
    config = WarmStart(
        model=BASE,
        train_file=rows,
        work_dir=directory / "run",
        output_dir=directory / "model",
        total_steps=total_steps,
        batch_size=batch_size,
        max_length=64,
        keep_order=False,
        warmup_steps=0,
        save_every=1,
    )
    directory.mkdir()
    file = directory / "config.json"
    file.write_text(config.model_dump_json())
    return file


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    lengths = [9, 17, 12, 21]
    ids = [[(7 * row + place) % 50 + 5 for place in range(length)] for row, length in enumerate(lengths)]
    file = tmp_path / "rows.parquet"
    masks = [[0] * 3 + [1] * (length - 3) for length in lengths]
    pl.DataFrame({"input_ids": ids, "loss_mask": masks}).write_parquet(file)
    return file


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")


@pytest.mark.parametrize(
    ("batch_size", "total_steps"),
    [(2, 4), pytest.param(4, 2, marks=pytest.mark.slow)],
    ids=["two batches", "one batch an epoch"],
)
def test_kills_after_all_checkpoints_of_two_epochs_leave_no_trace_in_the_weights(
    batch_size: int, total_steps: int, rows: Path, tmp_path: Path
) -> None:
    files = [fine_tuning(tmp_path / name, rows, batch_size, total_steps) for name in ("undisturbed", "killed")]
    python(RUNS, *files, total_steps)
    undisturbed, killed = ((file.parent / "model" / "model.safetensors").read_bytes() for file in files)
    assert undisturbed != (BASE / "model.safetensors").read_bytes()
    assert killed == undisturbed


def test_a_training_that_ends_before_its_last_step_is_not_exported(rows: Path, tmp_path: Path) -> None:
    file = fine_tuning(tmp_path / "short", rows, 4, 2)
    done = python(ENDS_EARLY, file, status=None)
    assert "fine-tuning made 0 of 2 steps and is not exported" in done.stderr
    assert done.returncode and not (tmp_path / "short" / "model").exists()
