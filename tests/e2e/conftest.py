"""The smoke pipeline, run once for all end-to-end tests."""

import subprocess
from pathlib import Path

import polars as pl
import psutil
import pytest

from elastic_core.sweep.table import SweepTable
from tests.browser import browser, page  # noqa: F401 (fixtures)
from tests.elastic_command import elastic
from tests.listening import Left, Place, left, watched

WatchedRun = tuple[subprocess.CompletedProcess[str], set[Place], set[Left]]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def watched_run(runs: Path) -> WatchedRun:
    """The smoke pipeline, where any of its processes listened, and what they left in shared directories."""
    process = psutil.Process()
    # Twice a second would take a fifth of a core from what it looks at.
    with watched(process, 2) as places, watched(process, 2, left) as files:
        return elastic("run", "pipeline", "--preset", "smoke", runs=runs), places, files


@pytest.fixture(scope="session")
def first(watched_run: WatchedRun) -> subprocess.CompletedProcess[str]:
    """`elastic run pipeline --preset smoke` in a runs directory of its own."""
    return watched_run[0]


@pytest.fixture(scope="session")
def table(first: subprocess.CompletedProcess[str], runs: Path) -> pl.DataFrame:
    assert first.returncode == 0, first.stdout[-6000:]
    return read_table(runs)


def read_table(runs: Path) -> pl.DataFrame:
    """The trajectory table of the smoke pipeline."""
    (directory,) = runs.glob("smoke/sweep/*/table")
    return SweepTable(directory).read()
