"""Where a benchmark leaves its figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flows.environment import runs_directory


def write(name: str, figures: Mapping[str, Any]) -> None:
    """Into runs/bench/<name>.json, whose path is printed."""
    target = runs_directory() / "bench" / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(figures, indent=2) + "\n")
    print(target)
