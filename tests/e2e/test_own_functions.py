"""The examples of a reward, a data set and a strategy, run as their READMEs say: to a trained model, to a parquet, and
to a report."""

import re
import shlex
import subprocess
from pathlib import Path

import polars as pl
import pytest

from tests.documents import REPOSITORY
from tests.elastic_command import ELASTIC, environment


@pytest.mark.slow  # The settings' own checks are unit tests.
@pytest.mark.parametrize("example", ["reward", "dataset", "strategy"])
def test_an_example_runs_as_its_readme_says(example: str, tmp_path: Path) -> None:
    directory, runs = REPOSITORY / "examples" / example, tmp_path / "runs"
    for command in re.findall(r"^    elastic (.+)$", (directory / "README.md").read_text(), re.MULTILINE):
        done = subprocess.run(
            [ELASTIC, *shlex.split(command)],
            cwd=directory,
            env=environment(runs),
            capture_output=True,
            text=True,
            timeout=1700,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    if example == "reward":
        (config,) = runs.glob("smoke/train/*/verl.yaml")
        assert "reward: mine:brief" in config.read_text() and "adv_estimator: mine:centred" in config.read_text()
        assert list(config.parent.glob("model/*.safetensors"))
    elif example == "strategy":
        report = (runs / "smoke/report/report.md").read_text()
        assert "mine:no thinking" in report.lower()
    else:
        (file,) = runs.glob("smoke/data/*/capitals.parquet")
        rows = pl.read_parquet(file)
        assert set(rows["extra_info"].struct.field("grader")) == {"mine:same_city"}
        assert rows["reward_model"].struct.field("ground_truth").to_list() == [
            "Paris",
            "Tokyo",
            "Lima",
            "Nairobi",
            "Oslo",
        ]
