"""The sweep's path of docs/architecture.md, by a trace of the command."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.architecture import listed, shown
from tests.elastic_command import environment
from tests.traced import PROJECT

PRESET = """
extends = "smoke"
engine.max_num_seqs = 4
sweep = { models = ["base"], strategies = ["separate"], budgets = ["16+16"], problems = 1, samples = 1 }
"""


def test_a_sweep_goes_through_the_files_of_the_page(
    first: subprocess.CompletedProcess[str], runs: Path, tmp_path: Path
) -> None:
    """Up to its first rows, with the data of the smoke pipeline; files of two threads have no order."""
    assert first.returncode == 0, first.stdout[-6000:]
    shutil.copytree(runs / "smoke" / "data", tmp_path / "runs" / "path" / "data")
    preset, found = tmp_path / "path.toml", tmp_path / "files"
    preset.write_text(PRESET)
    command = [sys.executable, "-m", "tests.traced", str(found), "run", "sweep", "--preset", str(preset)]
    ended = subprocess.run(
        command, env=environment(tmp_path / "runs"), cwd=PROJECT, capture_output=True, text=True, timeout=900
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    traced, page = shown(found.read_text().splitlines()), listed("`elastic run sweep` → a row")
    assert sorted(page) == sorted(traced), "\n".join(traced)
    assert len(page) <= 37
