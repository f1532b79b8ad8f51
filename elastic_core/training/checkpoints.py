"""Checkpoints of a training run on disk, `out_dir/global_step_<n>`, and their export.

verl writes into `out_dir/.saving`. `commit` flushes that to the disk, renames it and then names it in verl's marker
file: a checkpoint is complete or not there, and a run killed at any moment goes on from the newest.
"""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from elastic_core.errors import UserError, no_space
from elastic_core.models.families import copy_own
from elastic_core.models.files import let_others_read, tensors
from elastic_core.system.files import rename_durably, replacing_directory, write_text

_PREFIX = "global_step_"
_MARKER = "latest_checkpointed_iteration.txt"
"""Where verl looks for the step to resume from; without it verl starts over without a word."""
_SAVING = ".saving"
_DELETED = ".deleted_"
_VALIDATION = "validation.json"
_GENERATED = "generated_tokens.json"
_DATA_STATE = "data.pt"
"""Position in the training data; without it verl starts the data over, with a warning."""
_OF_RANK = re.compile(r"model_world_size_(\d+)_rank_\d+\.pt")
_NOT_WRITTEN = re.compile("file write failed|unexpected pos", re.IGNORECASE)
"""How a full disk reads in the errors of torch's writer."""
_GIB = 2**30
_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
"""safetensors' names of number formats, and transformers'."""


class Validation(NamedTuple):
    """What validation found at the step of a checkpoint: avg@k in [0, 1], the mean over validation sets, and k."""

    accuracy: float
    samples: int


def checkpoint_steps(out_dir: Path) -> list[int]:
    """Steps of the checkpoints in `out_dir`, ascending."""
    names = (path.name.removeprefix(_PREFIX) for path in out_dir.glob(f"{_PREFIX}*"))
    return sorted(int(name) for name in names if name.isdigit())


def checkpoint_step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix(_PREFIX))


def latest_checkpoint(out_dir: Path) -> Path | None:
    """The newest checkpoint; None when there is none."""
    steps = checkpoint_steps(out_dir)
    return _folder(out_dir, steps[-1]) if steps else None


def best_checkpoint(out_dir: Path) -> Path | None:
    """The checkpoint with the highest validation accuracy, the earliest of equals; None when none was validated."""
    folders = [_folder(out_dir, step) for step in checkpoint_steps(out_dir)]
    validated = [(found.accuracy, folder) for folder in folders if (found := validation_of(folder))]
    return max(validated, key=lambda of_folder: of_folder[0])[1] if validated else None


def validation_of(checkpoint: Path) -> Validation | None:
    """What validation found at the checkpoint's step, if there was one."""
    file = checkpoint / _VALIDATION
    return Validation(**json.loads(file.read_text())) if file.exists() else None


def is_finished(out_dir: Path, steps: int, max_generated_tokens: int | None = None) -> bool:
    """Whether the run in `out_dir` reached `steps`, or `max_generated_tokens` before."""
    if (checkpoint_steps(out_dir) or [0])[-1] >= steps:
        return True
    return max_generated_tokens is not None and generated_tokens(out_dir) >= max_generated_tokens


def generated_tokens(out_dir: Path) -> int:
    """Tokens sampled in training rollouts up to the newest checkpoint."""
    newest = latest_checkpoint(out_dir)
    file = newest / _GENERATED if newest else None
    return int(json.loads(file.read_text())) if file and file.exists() else 0


def note_generated(saving: Path, step: int, tokens: int) -> None:
    """Add `generated_tokens` to the checkpoint of `step`, which is being saved."""
    (_folder(saving, step) / _GENERATED).write_text(f"{tokens}\n")


def recover(out_dir: Path) -> None:
    """Make a killed run ready to resume: drop a half-saved checkpoint, and name the newest checkpoint.
    Raises UserError when that would not bring the position in the data back, or the disk is full."""
    for leftover in (out_dir / _SAVING, *out_dir.glob(f"{_DELETED}*")):
        shutil.rmtree(leftover, ignore_errors=True)
    newest = latest_checkpoint(out_dir)
    if newest is None:
        (out_dir / _MARKER).unlink(missing_ok=True)
        return
    if not (newest / _DATA_STATE).exists():
        raise UserError(f"{newest} lacks {_DATA_STATE}; delete the folder to resume from the checkpoint before it")
    with enough_room(out_dir, checkpoint_step(newest)):
        _mark(out_dir, checkpoint_step(newest))


def require_resumed(out_dir: Path, step: int) -> None:
    """Raises RuntimeError unless verl resumed after the newest checkpoint."""
    steps = checkpoint_steps(out_dir)
    if step != (steps or [0])[-1]:
        raise RuntimeError(f"{out_dir} holds checkpoints of steps {steps}, but verl resumed from step {step}")


def require_processes(out_dir: Path, number: int) -> None:
    """Raises UserError when another number of processes wrote the newest checkpoint: each reads what one wrote."""
    newest = latest_checkpoint(out_dir)
    found = [_OF_RANK.fullmatch(file.name) for file in newest.glob("actor/*")] if newest else []
    wrote = {int(match[1]) for match in found if match}
    if wrote and wrote != {number}:
        raise UserError(
            f"{newest} was written by {min(wrote)} processes, and {number} cannot go on from it "
            "(train.nodes * train.gpus_per_node); give as many as before, or delete the folder above to start over"
        )


@contextmanager
def enough_room(out_dir: Path, step: int) -> Iterator[None]:
    """Raises UserError when a write inside finds the disk full, for the checkpoint of `step`."""
    try:
        yield
    except Exception as error:
        if no_space(error) or _NOT_WRITTEN.search(str(error)):
            raise _disk_full(out_dir, step) from error
        raise


@contextmanager
def saving(out_dir: Path, step: int) -> Iterator[Path]:
    """The directory for verl to save the checkpoint of `step` in, in place of `out_dir`; UserError as `enough_room`."""
    temporary = out_dir / _SAVING
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    newest = latest_checkpoint(out_dir)
    if newest and shutil.disk_usage(out_dir).free < _size(newest):
        raise _disk_full(out_dir, step)
    with enough_room(out_dir, step):
        try:
            yield temporary
        except Exception:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def commit(out_dir: Path, step: int, validation: Validation | None, keep: int) -> None:
    """Make the checkpoint saved at `step` the newest one; keep `keep`, and the best. UserError as `enough_room`."""
    saved, checkpoint = _folder(out_dir / _SAVING, step), _folder(out_dir, step)
    with enough_room(out_dir, step):
        if validation is not None:
            (saved / _VALIDATION).write_text(json.dumps(validation._asdict()) + "\n")
        rename_durably(saved, checkpoint)
        _mark(out_dir, step)
    shutil.rmtree(out_dir / _SAVING)
    best = best_checkpoint(out_dir)
    for step in checkpoint_steps(out_dir)[:-keep]:
        if (folder := _folder(out_dir, step)) != best:
            # A deletion that is interrupted must not leave half a checkpoint under its name.
            shutil.rmtree(folder.rename(out_dir / f"{_DELETED}{step}"))


def export(checkpoint: Path, output: Path, base: Path) -> Path:
    """Copy a checkpoint's Hugging Face model, with tokenizer and what else says the marks of its `base`, to `output`,
    which is replaced completely or not at all.
    Raises FileNotFoundError without weights, ValueError for several number formats, UserError for a full disk."""
    source = checkpoint / "actor" / "huggingface"
    if not any(source.glob("*.safetensors")):
        raise FileNotFoundError(f"{source}: no *.safetensors; was the run saved with hf_model in its save_contents?")
    room = enough_room(checkpoint.parent, checkpoint_step(checkpoint))
    with room, replacing_directory(output, durable=True) as temporary:
        shutil.copytree(source, temporary, dirs_exist_ok=True)
        copy_own(base, temporary)
        dtypes = {_DTYPES[tensor["dtype"]] for tensor in tensors(temporary).values()}
        if len(dtypes) != 1:
            raise ValueError(f"{source}: tensors of {', '.join(sorted(dtypes)) or 'no format'}; expected one format")
        # verl 0.9.1 writes "bfloat16" whatever the weights are: loading would round them.
        file = temporary / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"dtype": dtypes.pop()}, indent=2) + "\n")
        let_others_read(temporary)
    return output


def _mark(out_dir: Path, step: int) -> None:
    write_text(out_dir / _MARKER, str(step), durable=True)


def _folder(out_dir: Path, step: int) -> Path:
    return out_dir / f"{_PREFIX}{step}"


def _size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def _disk_full(out_dir: Path, step: int) -> UserError:
    newest = latest_checkpoint(out_dir)
    needed = f"about {_size(newest) / _GIB:.2g} GiB" if newest else "more"
    after = f"goes on after step {checkpoint_step(newest)}" if newest else "starts again"
    return UserError(
        f"no room for the checkpoint of step {step}: {out_dir} has {shutil.disk_usage(out_dir).free / _GIB:.2g} GiB "
        f"free and it needs {needed}; free some and run the same command, which {after}"
    )
