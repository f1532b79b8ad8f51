"""Checkpoints on disk: whole or not there, wherever a training is killed; and their export."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from elastic_core.errors import UserError
from elastic_core.training import checkpoints
from elastic_core.training.checkpoints import Validation, export

MARKER = "latest_checkpointed_iteration.txt"
NO_ROOM = r"^no room for the checkpoint of step \d0: .* step 10$"


def write(out_dir: Path, step: int) -> Path:
    """What verl writes, where it is told to."""
    weights = out_dir / f"global_step_{step}" / "actor" / "huggingface"
    weights.mkdir(parents=True)
    save_file({"weight": np.full(2, step, np.float32)}, weights / "model.safetensors")
    (weights / "model.safetensors").chmod(0o600)
    (weights / "config.json").write_text('{"dtype": "bfloat16", "vocab_size": 2}')
    (out_dir / f"global_step_{step}" / "data.pt").write_text("position")
    (out_dir / MARKER).write_text(str(step))
    return weights.parent.parent


def save(out_dir: Path, step: int, accuracy: float | None = None, keep: int = 2) -> Path:
    with checkpoints.saving(out_dir, step) as temporary:
        write(temporary, step)
    validation = None if accuracy is None else Validation(accuracy, samples=8)
    checkpoints.commit(out_dir, step, validation, keep)
    return out_dir / f"global_step_{step}"


def test_a_checkpoint_counts_once_it_is_committed(tmp_path: Path) -> None:
    assert checkpoints.latest_checkpoint(tmp_path) is None and not checkpoints.is_finished(tmp_path, 1)
    first = save(tmp_path, 10)
    with checkpoints.saving(tmp_path, 20) as temporary:
        write(temporary, 20)
    assert checkpoints.latest_checkpoint(tmp_path) == first
    assert (tmp_path / MARKER).read_text() == "10"
    assert checkpoints.is_finished(tmp_path, 10) and not checkpoints.is_finished(tmp_path, 20)
    checkpoints.commit(tmp_path, 20, None, keep=2)
    assert checkpoints.checkpoint_steps(tmp_path) == [10, 20]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_10", "global_step_20", MARKER]


def test_a_run_may_end_at_a_number_of_generated_tokens_that_its_checkpoints_remember(tmp_path: Path) -> None:
    assert checkpoints.generated_tokens(tmp_path) == 0
    with checkpoints.saving(tmp_path, 10) as temporary:
        write(temporary, 10)
        checkpoints.note_generated(temporary, 10, 5000)
    assert not checkpoints.is_finished(tmp_path, 20, 5000), "it is not committed"
    checkpoints.commit(tmp_path, 10, None, keep=2)
    assert checkpoints.generated_tokens(tmp_path) == 5000
    assert checkpoints.is_finished(tmp_path, 20, 5000) and not checkpoints.is_finished(tmp_path, 20, 5001)
    assert not checkpoints.is_finished(tmp_path, 20)


def test_a_run_killed_while_saving_resumes_from_the_checkpoint_before_and_one_without_starts(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text("10")
    checkpoints.recover(tmp_path)
    assert not (tmp_path / MARKER).exists()
    checkpoints.require_resumed(tmp_path, 0)
    save(tmp_path, 10)
    with checkpoints.saving(tmp_path, 20) as temporary:
        write(temporary, 20)
    checkpoints.recover(tmp_path)
    assert checkpoints.checkpoint_steps(tmp_path) == [10] and not temporary.exists()
    save(tmp_path, 20)  # Nothing is in its way.


@pytest.mark.parametrize("marker", [None, "", "10"])
def test_a_run_killed_before_the_marker_was_written_resumes_from_what_is_there(
    tmp_path: Path, marker: str | None
) -> None:
    for step in (10, 20):
        save(tmp_path, step)
    (tmp_path / MARKER).unlink()
    if marker is not None:
        (tmp_path / MARKER).write_text(marker)
    checkpoints.recover(tmp_path)
    assert (tmp_path / MARKER).read_text() == "20"


def test_data_that_would_start_over_is_refused(tmp_path: Path) -> None:
    (save(tmp_path, 10) / "data.pt").unlink()
    with pytest.raises(UserError, match=r"global_step_10 .*data\.pt"):
        checkpoints.recover(tmp_path)


@pytest.mark.parametrize("resumed_from", [0, 10, 30])
def test_a_run_that_resumed_anywhere_but_after_its_newest_checkpoint_is_refused(
    tmp_path: Path, resumed_from: int
) -> None:
    for step in (10, 20):
        save(tmp_path, step)
    checkpoints.require_resumed(tmp_path, 20)
    with pytest.raises(RuntimeError, match=rf"\[10, 20\].* {resumed_from}"):
        checkpoints.require_resumed(tmp_path, resumed_from)


def test_the_newest_stay_and_the_best(tmp_path: Path) -> None:
    for step, accuracy in enumerate([0.2, 0.6, 0.6, None, 0.1, 0.3], start=1):
        save(tmp_path, step, accuracy)
    assert checkpoints.checkpoint_steps(tmp_path) == [2, 5, 6]
    best = checkpoints.best_checkpoint(tmp_path)
    assert best is not None and checkpoints.validation_of(best) == Validation(0.6, 8)
    assert checkpoints.checkpoint_step(best) == 2
    assert checkpoints.best_checkpoint(tmp_path / "none") is None


def test_a_disk_that_is_or_fills_up_while_saving_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 10)
    with pytest.raises(UserError, match=NO_ROOM), checkpoints.saving(tmp_path, 20) as temporary:
        write(temporary, 20)
        with Path("/dev/full").open("w") as disk:  # Every write fails as on a full disk.
            disk.write("weights")
    assert checkpoints.checkpoint_steps(tmp_path) == [10] and not temporary.exists()
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100))
    with pytest.raises(UserError, match=NO_ROOM), checkpoints.saving(tmp_path, 20):
        raise AssertionError("it is not tried")
    monkeypatch.undo()
    with pytest.raises(KeyError, match="weight"), checkpoints.saving(tmp_path, 20):
        raise KeyError("weight")  # Another error stays what it is.


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize(
    "work",
    [
        lambda out_dir: checkpoints.commit(out_dir, 20, Validation(0.5, 8), keep=2),
        checkpoints.recover,
        lambda out_dir: export(out_dir / "global_step_10", out_dir.parent / "model", out_dir),
    ],
    ids=["commit", "recover", "export"],
)
def test_a_disk_that_is_found_full_when_it_is_flushed_is_one_sentence(
    work: Callable[[Path], Any], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out_dir = tmp_path / "out"
    save(out_dir, 10)
    with checkpoints.saving(out_dir, 20) as temporary:
        write(temporary, 20)

    def full(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(UserError, match=NO_ROOM):
            work(out_dir)
    assert checkpoints.checkpoint_steps(out_dir) == [10] and not (tmp_path / "model").exists()
    checkpoints.recover(out_dir)
    save(out_dir, 20)  # Nothing is in its way.


def test_an_export_is_complete_readable_and_replaces_the_old_one_and_there_is_none_without_weights(
    tmp_path: Path,
) -> None:
    output = tmp_path / "models" / "trained"
    for step in (1, 2):
        assert export(save(tmp_path / "out", step), output, tmp_path) == output
    assert [path.name for path in output.parent.iterdir()] == ["trained"]
    assert (output / "model.safetensors").stat().st_mode & 0o777 == 0o644
    # What verl writes there is not what the weights are.
    assert json.loads((output / "config.json").read_text()) == {"dtype": "float32", "vocab_size": 2}
    checkpoint = save(tmp_path / "other", 1)
    (checkpoint / "actor" / "huggingface" / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="hf_model"):
        export(checkpoint, tmp_path / "model", tmp_path)
    assert not (tmp_path / "model").exists()


def test_as_many_processes_go_on_as_wrote(tmp_path: Path) -> None:
    checkpoints.require_processes(tmp_path, 2)
    actor = tmp_path / "global_step_10" / "actor"
    actor.mkdir(parents=True)
    for rank in range(2):
        (actor / f"model_world_size_2_rank_{rank}.pt").touch()
    checkpoints.require_processes(tmp_path, 2)
    with pytest.raises(UserError, match=r"global_step_10 .* 2 processes.* 16 "):
        checkpoints.require_processes(tmp_path, 16)
