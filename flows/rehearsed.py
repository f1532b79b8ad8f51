"""Which presets have passed their rehearsal, with just these settings: here, or where the preset was made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from elastic_core.engines.parameters import vllm_version
from elastic_core.files import write_text
from elastic_core.fingerprint import hash_value
from flows.settings import Settings

SHIPPED = Path(__file__).parent / "presets" / "rehearsed.json"
"""Rehearsals of the presets that come with the project, by name."""
REHEARSALS = "rehearsals"
"""Directory of this machine's, below that of all runs."""
_RECORD = "rehearsal.json"


def key(settings: Settings) -> str:
    """16 hex digits over what a rehearsal depends on."""
    values = settings.model_dump(mode="json", exclude={"ray", "mlflow"})
    values["data"].pop("mirror")
    return hash_value([values, version("verl"), vllm_version()])[:16]


def note(directory: Path, settings: Settings, steps: Sequence[tuple[str, float, str]], *, passed: bool = False) -> None:
    """Note below `directory` how far a rehearsal is: its steps, with seconds and what was exercised; if it passed."""
    _write(directory / _RECORD, {"key": key(settings), "passed": passed, "steps": list(steps)})


def interrupted(directory: Path, settings: Settings) -> list[tuple[str, float, str]] | None:
    """Steps of a rehearsal of just these settings that was begun there and not finished; None when there is none."""
    found = _read(directory / _RECORD)
    if found.get("key") != key(settings) or found["passed"]:
        return None
    return [(stage, seconds, text) for stage, seconds, text in found["steps"]]


def passed(directory: Path, settings: Settings) -> bool:
    """Whether a rehearsal of just these settings passed there."""
    found = _read(directory / _RECORD)
    return bool(found.get("passed")) and found["key"] == key(settings)


def ship(settings: Settings) -> None:
    """Record a rehearsal that passed among those that come with the project."""
    _write(SHIPPED, dict(sorted({**_read(SHIPPED), settings.preset: key(settings)}.items())))


def is_usable(settings: Settings, rehearsals: Path) -> bool:
    """Whether a preset has passed, here or where it was made.

    Args:
        rehearsals: directory of this machine's rehearsals.
    """
    shipped = _read(SHIPPED).get(settings.preset) == key(settings)
    return shipped or passed(rehearsals / settings.preset, settings)


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _write(file: Path, value: dict[str, Any]) -> None:
    write_text(file, json.dumps(value, indent=2) + "\n")
