"""Where a benchmark leaves its figures, and what they are measured in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flows.runtime.environment import runs_directory

SKIPPED = "skipped: "
"""Begins the line that says what was not measured, and why."""
UNITS = {
    "seconds": "s",
    "ms": "ms",
    "mib": "MiB",
    "gib": "GiB",
    "second": "1/s",
    "ratio": "times",
    "speedup": "times",
    "share": "of 1",
}
"""By the last of these words in a figure's name; without one a figure is a count."""
BEFORE = Path(__file__).with_name("before.json")
"""What some figures were before the work that they show, on 2 cores and 24 GiB: `demo` idle and with twice the samples,
`scale` side by side with the new ones at a load of 4."""


def directory() -> Path:
    return runs_directory() / "bench"


def write(name: str, figures: Mapping[str, Any]) -> None:
    """Into runs/bench/<name>.json, whose path is printed."""
    target = directory() / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(figures, indent=2) + "\n")
    print(target)


def before(name: str) -> dict[str, str]:
    """What a benchmark's figures were, as `flat` shows them."""
    return {figure: value for figure, value, _ in flat(json.loads(BEFORE.read_text()).get(name, {}))}


def flat(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Name, value and unit of every figure; those inside others have a dotted name."""
    for key, value in figures.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        else:
            values = value if isinstance(value, list) else [value]
            is_number = all(isinstance(each, int | float) for each in values)
            yield name, ", ".join(map(_shown, values)), unit(name) if is_number else ""


def unit(name: str) -> str:
    """Of a figure, such as MiB of peak_mib."""
    words = name.replace(".", "_").split("_")
    return next((UNITS[word] for word in reversed(words) if word in UNITS), "count")


def _shown(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
