"""From a checkpoint of a training run to a Hugging Face model that others can load."""

import json
import shutil
from pathlib import Path

from elastic_core.safetensors import tensors
from elastic_core.training.checkpoints import checkpoint_step, enough_room, flush

_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
"""safetensors' names of number formats, and transformers'."""


def export(checkpoint: Path, output: Path) -> Path:
    """Copy a checkpoint's Hugging Face model, with tokenizer, to `output`, which appears complete or not at all.

    An existing `output` is replaced.

    Raises:
        FileNotFoundError: when the checkpoint holds no Hugging Face weights.
        ValueError: when the weights are of several number formats.
        UserError: when the disk is too full for it.
    """
    source = checkpoint / "actor" / "huggingface"
    if not any(source.glob("*.safetensors")):
        raise FileNotFoundError(f"{source}: no *.safetensors; was the run saved with hf_model in its save_contents?")
    temporary = output.with_name(f".{output.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    with enough_room(checkpoint.parent, checkpoint_step(checkpoint)):
        shutil.copytree(source, temporary)
        _correct_dtype(temporary)
        for file in temporary.rglob("*"):
            # safetensors writes files only their owner may read.
            file.chmod(0o755 if file.is_dir() else 0o644)
        flush(temporary)
    shutil.rmtree(output, ignore_errors=True)
    return temporary.rename(output)


def _correct_dtype(model: Path) -> None:
    """verl 0.9.1 writes "bfloat16" into the configuration whatever the weights are, so whoever loads them rounds."""
    dtypes = {_DTYPES[tensor["dtype"]] for tensor in tensors(model).values()}
    if len(dtypes) != 1:
        raise ValueError(f"{model}: tensors of {', '.join(sorted(dtypes)) or 'no format'}; expected one format")
    file = model / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"dtype": dtypes.pop()}, indent=2) + "\n")
