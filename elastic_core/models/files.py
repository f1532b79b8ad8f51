"""A model's files: their directory or repository on the Hugging Face hub, tensors by the headers of its safetensors
without reading weights, and their modes."""

from __future__ import annotations

import json
import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from elastic_core.errors import UserError, first_line
from elastic_core.system.files import impostor

CARD = "README.md"
MODEL_FILES = ("*.json", "*.jinja", "*.safetensors", "*.model", "*.txt", "thought.toml", CARD)
"""Of a repository: weights in one format, tokenizer, configuration, and the card with the licence."""
TOKENIZER_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "chat_template*",
    "vocab*",
    "merges*",
    "thought.toml",
)
INDEX = "model.safetensors.index.json"
"""Names the files of weights that are split."""
ONE_THREAD = 10_000_000
"""Parameters up to which a second thread costs training more in waiting than it saves, on a busy machine."""
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def is_local(model: str) -> bool:
    """Whether it names a directory, there or not, and no repository of the hub."""
    return Path(model).exists() or not _REPOSITORY.fullmatch(model)


def locate(model: str, files: tuple[str, ...] = MODEL_FILES) -> Path:
    """Return the directory of a model, given as a directory or as OWNER/NAME on the hub. A complete model in the hub's
    cache is used; else its `files` (patterns) are downloaded, at the newest commit. UserError when that fails."""
    if is_local(model):
        return Path(model).resolve()
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    with suppress(LocalEntryNotFoundError):
        snapshot = Path(snapshot_download(model, allow_patterns=list(files), local_files_only=True))
        if _is_complete(snapshot, files):
            return snapshot
    try:
        return Path(snapshot_download(model, allow_patterns=list(files)))
    except OSError as error:  # All of the hub's errors are.
        reason = str(error).strip().splitlines()[0].partition(". ")[0]
        raise UserError(
            f"{model} is not a directory, and the hub did not give it ({type(error).__name__}: {reason}); get it with "
            f"`hf download {model}` (gated: `hf auth login` first) where there is internet, and copy it to "
            f"{constants.HF_HUB_CACHE}, or give a directory"
        ) from None


def _is_complete(snapshot: Path, files: tuple[str, ...]) -> bool:
    """Whether a directory of the hub's cache has configuration, tokenizer and, if they are among the `files`, weights.
    The hub's client cannot tell: it lists only repositories that it downloaded in one call, not file by file."""
    weights = (weight_files(snapshot) or [snapshot / INDEX]) if files == MODEL_FILES else []
    tokenizers = [file for pattern in ("tokenizer.json", "*.model", "vocab*") for file in snapshot.glob(pattern)]
    return bool(tokenizers) and all(file.exists() for file in (snapshot / "config.json", *weights))


def weight_files(model: Path) -> list[Path]:
    """Return the files of a checkpoint directory's weights: those named in its index, present or not, else all
    safetensors files. UserError for an invalid index."""
    index = model / INDEX
    if not index.exists():
        return sorted(model.glob("*.safetensors"))
    try:
        return [model / name for name in sorted(set(json.loads(index.read_bytes())["weight_map"].values()))]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(f"{index}: not an index of weights ({first_line(error)}); copy the checkpoint anew") from None


def licence(model: Path) -> str | None:
    """The licence that a checkpoint directory's card names in its head, as the hub writes it ("apache-2.0"), if any."""
    from huggingface_hub.repocard import metadata_load

    card = model / CARD
    try:
        named = (metadata_load(card) or {}).get("license") if card.exists() else None
    except ValueError:
        return None
    return named if isinstance(named, str) else None


class Tensor(TypedDict):
    """A tensor's number format, as safetensors writes it ("F32", "BF16"), and its shape."""

    dtype: str
    shape: list[int]


def tensors(model: Path) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint directory by name; none where it holds no safetensors files. UserError for a
    file that is missing, truncated or cannot be read."""
    from safetensors import SafetensorError, safe_open

    found: dict[str, Tensor] = {}
    for file in weight_files(model):
        try:
            with safe_open(file, framework="numpy") as opened:
                parts = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
                found |= {name: Tensor(dtype=part.get_dtype(), shape=part.get_shape()) for name, part in parts.items()}
        except (SafetensorError, OSError) as error:
            reason = str(error)  # Of a file that is not there, or not this user's.
            with suppress(OSError), file.open("rb") as stream:
                reason = impostor(stream.read(256)) or f"{file.stat().st_size} bytes that are not complete ({error})"
            raise UserError(f"{file}: {reason}; expected safetensors, copy or download the file anew") from None
    return found


def num_parameters(model: Path) -> int:
    return sum(math.prod(tensor["shape"]) for tensor in tensors(model).values())


def is_large(model: Path) -> bool:
    """Whether a pass on a CPU gains by a second thread."""
    return num_parameters(model) > ONE_THREAD


def num_threads(model: Path) -> int:
    """Threads to train it with on a CPU: one for a small model, every core of this process otherwise."""
    return len(os.sched_getaffinity(0)) if is_large(model) else 1


def let_others_read(model: Path) -> None:
    """Give everything in a checkpoint directory the usual modes: safetensors writes files only their owner may read."""
    for path in model.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
