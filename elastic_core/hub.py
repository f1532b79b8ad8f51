"""Where a model lies: a directory, or a repository of the Hugging Face hub in the hub's usual cache."""

from __future__ import annotations

import re
from pathlib import Path

from elastic_core.errors import UserError

MODEL_FILES = ("*.json", "*.jinja", "*.safetensors", "*.model", "*.txt")
"""Of a repository: weights in one format, tokenizer, configuration."""
TOKENIZER_FILES = ("config.json", "generation_config.json", "tokenizer*", "chat_template*", "vocab*", "merges*")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def is_local(model: str) -> bool:
    """Whether it names a directory, there or not, and no repository of the hub."""
    return Path(model).exists() or not _REPOSITORY.fullmatch(model)


def locate(model: str, files: tuple[str, ...] = MODEL_FILES) -> Path:
    """The directory of a model. What the cache holds already is taken as it is, so that a later commit on the hub
    changes nothing unasked; what it lacks is downloaded.

    Args:
        model: a directory, or OWNER/NAME on the hub.
        files: patterns of the files that are needed.

    Raises:
        UserError: when it is neither there nor to be had.
    """
    if is_local(model):
        return Path(model).resolve()
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, allow_patterns=list(files), local_files_only=True))
    except LocalEntryNotFoundError:
        pass  # It lacks something.
    try:
        return Path(snapshot_download(model, allow_patterns=list(files)))
    except OSError as error:  # All of the hub's own errors are.
        reason = str(error).strip().splitlines()[0].partition(". ")[0]
        raise UserError(
            f"{model} is no directory, and the hub did not give it ({type(error).__name__}: {reason}); get it with `hf "
            f"download {model}` (gated: `hf auth login` first) where there is internet, and copy it to "
            f"{constants.HF_HUB_CACHE}, or give a directory"
        ) from None
