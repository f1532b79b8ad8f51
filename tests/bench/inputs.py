"""What a bench may lack on a fresh machine, and how to get it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from elastic_core.data.dataset import GitHub
from elastic_core.data.registry import REGISTRY
from tests.upstream import UPSTREAM


def missing_upstream(*names: str) -> str | None:
    """Which of these data sets' files are not at hand, and what fetches them; None when all are there."""
    files = [file for name in names for file in upstream_files(name) if not file.is_file()]
    if not files:
        return None
    chosen = json.dumps(list(names), separators=(",", ":"))
    return (
        f"no {files[0]}; fetch it: .venv/bin/elastic run prepare-data --set 'data.datasets={chosen}', "
        "and name what that fills: export ELASTIC_DATA_MIRROR=$PWD/runs/sources"
    )


def upstream_files(name: str) -> list[Path]:
    """Where the files of a data set are read."""
    entry = REGISTRY[name]
    assert isinstance(entry.source, GitHub)
    return [UPSTREAM / entry.source.repository / file.path for file in entry.files]


def missing_browser() -> str | None:
    """Why no page can be opened; None when one can."""
    if shutil.which("chromium"):
        return None
    return "no chromium on the PATH; get it: sudo apt-get install --no-install-recommends chromium"
