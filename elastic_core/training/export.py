"""Checkpoints of a training run on disk: which exist, whether the run is finished, and the export to Hugging Face."""

import json
import shutil
from pathlib import Path

_PREFIX = "global_step_"
_TRACKER = "latest_checkpointed_iteration.txt"
"""verl writes it after everything else of a checkpoint; what it does not name may be incomplete."""
_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
"""safetensors' names of number formats, and transformers'."""


def checkpoint_steps(out_dir: str | Path) -> list[int]:
    """Steps of the checkpoint folders in `out_dir`, ascending; the last one may be incomplete."""
    names = (path.name.removeprefix(_PREFIX) for path in Path(out_dir).glob(f"{_PREFIX}*"))
    return sorted(int(name) for name in names if name.isdigit())


def prune_checkpoints(out_dir: str | Path, keep: int) -> None:
    """Delete all but the newest `keep` checkpoints."""
    for step in checkpoint_steps(out_dir)[:-keep]:
        shutil.rmtree(Path(out_dir) / f"{_PREFIX}{step}")


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
        ValueError: when the weights are of several number formats.
    """
    source = checkpoint / "actor" / "huggingface"
    if not any(source.glob("*.safetensors")):
        raise FileNotFoundError(f"{source}: no *.safetensors; was the run saved with hf_model in its save_contents?")
    temporary = output.with_name(f".{output.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, temporary)
    _correct_dtype(temporary)
    for file in temporary.rglob("*"):
        # safetensors writes files only their owner may read.
        file.chmod(0o755 if file.is_dir() else 0o644)
    shutil.rmtree(output, ignore_errors=True)
    return temporary.rename(output)


def _correct_dtype(model: Path) -> None:
    """verl 0.9.1 writes "bfloat16" into the configuration whatever the weights are, so whoever loads them rounds."""
    weights = next(iter(sorted(model.glob("*.safetensors"))))
    with weights.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    dtypes = {_DTYPES[tensor["dtype"]] for name, tensor in header.items() if name != "__metadata__"}
    if len(dtypes) != 1:
        raise ValueError(f"{weights}: tensors of {', '.join(sorted(dtypes)) or 'no format'}; expected one format")
    file = model / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"dtype": dtypes.pop()}, indent=2) + "\n")
