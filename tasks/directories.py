"""What lies where below the runs directory, beside the stages of each preset."""

from __future__ import annotations

from pathlib import Path


def sources_directory(runs: Path) -> Path:
    """Downloaded files, for every preset; laid out like a mirror, so that it can be one elsewhere."""
    return runs / "sources"


def built_directory(runs: Path) -> Path:
    """Built data sets, for every preset: each is built once for all that it depends on."""
    return runs / "sets"


def user_datasets_directory(runs: Path) -> Path:
    """Records of the user's data sets."""
    return runs / "datasets"


def user_templates_file(runs: Path) -> Path:
    """The user's thought templates. Lines may be edited or deleted; the next command checks them."""
    return runs / "templates" / "own.jsonl"


def embeddings_directory(runs: Path) -> Path:
    """Where embeddings of names of thought templates are kept."""
    return runs / "templates" / "embeddings"


def standings_directory(runs: Path) -> Path:
    """Where the standings of Codeforces contests are kept."""
    return sources_directory(runs) / "codeforces-standings"
