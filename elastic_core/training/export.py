"""Checkpoints of a training run on disk: which exist, whether the run is finished, and the export to Hugging Face."""

import shutil
from pathlib import Path

_PREFIX = "global_step_"
_TRACKER = "latest_checkpointed_iteration.txt"
"""verl writes it after everything else of a checkpoint; what it does not name may be incomplete."""


def checkpoint_steps(out_dir: str | Path) -> list[int]:
    """Steps of the checkpoint folders in `out_dir`, ascending; the last one may be incomplete."""
    names = (path.name.removeprefix(_PREFIX) for path in Path(out_dir).glob(f"{_PREFIX}*"))
    return sorted(int(name) for name in names if name.isdigit())


def latest_checkpoint(out_dir: Path) -> Path | None:
    """The newest complete checkpoint, `out_dir/global_step_<n>`; None when there is none."""
    tracker = out_dir / _TRACKER
    if not tracker.exists():
        return None
    checkpoint = out_dir / f"{_PREFIX}{int(tracker.read_text())}"
    return checkpoint if checkpoint.exists() else None


def checkpoint_step(checkpoint: Path) -> int:
    """The step a checkpoint folder was written at."""
    return int(checkpoint.name.removeprefix(_PREFIX))


def is_finished(out_dir: Path, steps: int) -> bool:
    """Whether the run in `out_dir` reached `steps`."""
    checkpoint = latest_checkpoint(out_dir)
    return checkpoint is not None and checkpoint_step(checkpoint) >= steps


def export(checkpoint: Path, output: Path) -> Path:
    """Copy a checkpoint's Hugging Face model, with tokenizer, to `output`, which appears complete or not at all.

    An existing `output` is replaced.

    Raises:
        FileNotFoundError: when the checkpoint holds no Hugging Face weights.
    """
    source = checkpoint / "actor" / "huggingface"
    if not any(source.glob("*.safetensors")):
        raise FileNotFoundError(f"{source}: no *.safetensors; was the run saved with hf_model in its save_contents?")
    temporary = output.with_name(f".{output.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, temporary)
    for file in temporary.rglob("*"):
        # safetensors writes files only their owner may read.
        file.chmod(0o755 if file.is_dir() else 0o644)
    shutil.rmtree(output, ignore_errors=True)
    return temporary.rename(output)
