"""The `elastic` command as a user runs it, in a runs directory of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ELASTIC = str(Path(sys.executable).with_name("elastic"))


def environment(runs: Path) -> dict[str, str]:
    return {**os.environ, "ELASTIC_RUNS": str(runs)}


def elastic(*arguments: str, runs: Path, timeout: float = 1700) -> subprocess.CompletedProcess[str]:
    """Run to the end; stdout and stderr together."""
    return subprocess.run(
        [ELASTIC, *arguments],
        env=environment(runs),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        check=False,
    )
