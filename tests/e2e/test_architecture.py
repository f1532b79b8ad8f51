"""The sweep's path of docs/architecture.md, by a trace of the command."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import listed, shown
from tests.elastic_command import elastic, environment
from tests.traced import PROJECT

PRESET = """
base = "shipped"
data.benchmarks = ["miniature-easy"]
data.miniature = { seed = 2, num_train = 64, evaluation_seed = 2, problems_per_benchmark = 4 }
engine = { device = "cpu", max_num_seqs = 4 }
sweep = { models = ["base"], strategies = ["separate"], budgets = ["16+16"], problems = 1, samples = 1 }
"""


@pytest.mark.slow
def test_a_sweep_goes_through_the_files_of_the_page(tmp_path: Path) -> None:
    """Up to its first rows, with data that is built; files of two threads have no order."""
    preset, found = tmp_path / "path.toml", tmp_path / "files"
    preset.write_text(PRESET)
    built = elastic("run", "prepare-data", "--preset", str(preset), runs=tmp_path / "runs")
    assert built.returncode == 0, built.stdout
    command = [sys.executable, "-m", "tests.traced", str(found), "run", "sweep", "--preset", str(preset)]
    ended = subprocess.run(
        command, env=environment(tmp_path / "runs"), cwd=PROJECT, capture_output=True, text=True, timeout=900
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    traced, page = shown(found.read_text().splitlines()), listed("`elastic run sweep` → a row")
    assert sorted(page) == sorted(traced), "\n".join(traced)
    assert len(page) <= 36
