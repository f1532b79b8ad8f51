"""Rehearsals: a whole preset on a CPU before it costs a GPU. Here is which presets have passed theirs with just these
settings, on this machine or where the preset was made; `rehearse` runs one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from elastic_core.engines.parameters import vllm_version
from elastic_core.files import write_text
from elastic_core.fingerprint import hash_value
from flows.settings import Settings

SHIPPED = Path(__file__).parents[1] / "presets" / "rehearsed.json"
"""Rehearsals of the presets that come with the project, by name."""
REHEARSALS = "rehearsals"
"""Directory of this machine's, below that of all runs."""
_RECORD = "rehearsal.json"


class Step(NamedTuple):
    """A line of a rehearsal's table.

    Attributes:
        seconds: that it took, over all attempts.
        exercised: what was run and found as it must be.
    """

    stage: str
    seconds: float
    exercised: str = ""


def key(settings: Settings) -> str:
    """16 hex digits over what a rehearsal depends on."""
    values = settings.model_dump(mode="json", exclude={"ray", "mlflow"}, exclude_none=True)
    values["data"].pop("mirror", None)
    return hash_value([values, version("verl"), vllm_version()])[:16]


def note(directory: Path, settings: Settings, steps: Sequence[Step], *, passed: bool = False) -> None:
    """Note below `directory` how far a rehearsal is, and whether it passed."""
    _write(directory / _RECORD, {"key": key(settings), "passed": passed, "steps": list(steps)})


def interrupted(directory: Path, settings: Settings) -> list[Step] | None:
    """Steps of a rehearsal of just these settings that was begun there and not finished; None when there is none."""
    found = _read(directory / _RECORD)
    if found.get("key") != key(settings) or found["passed"]:
        return None
    return [Step(*step) for step in found["steps"]]


def ship(settings: Settings) -> None:
    """Record a rehearsal that passed among those that come with the project."""
    _write(SHIPPED, dict(sorted({**_read(SHIPPED), settings.preset: key(settings)}.items())))


def is_usable(settings: Settings, rehearsals: Path) -> bool:
    """Whether a preset has passed, here or where it was made.

    Args:
        rehearsals: directory of this machine's rehearsals.
    """
    here = _read(rehearsals / settings.preset / _RECORD)
    passed = bool(here.get("passed")) and here["key"] == key(settings)
    return passed or _read(SHIPPED).get(settings.preset) == key(settings)


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _write(file: Path, value: dict[str, Any]) -> None:
    write_text(file, json.dumps(value, indent=2) + "\n")
