"""From a checkpoint of a training run to a Hugging Face model that others can load."""

import json
import shutil
from pathlib import Path

from elastic_core.files import replacing_directory
from elastic_core.safetensors import let_others_read, tensors
from elastic_core.training.checkpoints import checkpoint_step, enough_room

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
    room = enough_room(checkpoint.parent, checkpoint_step(checkpoint))
    with room, replacing_directory(output, durable=True) as temporary:
        shutil.copytree(source, temporary, dirs_exist_ok=True)
        _correct_dtype(temporary)
        let_others_read(temporary)
    return output


def _correct_dtype(model: Path) -> None:
    """verl 0.9.1 writes "bfloat16" into the configuration whatever the weights are, so whoever loads them rounds."""
    dtypes = {_DTYPES[tensor["dtype"]] for tensor in tensors(model).values()}
    if len(dtypes) != 1:
        raise ValueError(f"{model}: tensors of {', '.join(sorted(dtypes)) or 'no format'}; expected one format")
    file = model / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"dtype": dtypes.pop()}, indent=2) + "\n")
