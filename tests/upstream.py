"""Real upstream files, which tests read where they are and never copy into the project."""

import os
from pathlib import Path

import pytest

UPSTREAM = Path(os.environ.get("ELASTIC_DATA_MIRROR") or Path(__file__).resolve().parents[2] / "shared" / "data")

needs_upstream = pytest.mark.skipif(
    not (UPSTREAM / "agentica-project").is_dir(),
    reason=f"no upstream files at {UPSTREAM}; set ELASTIC_DATA_MIRROR to a tree of them",
)
