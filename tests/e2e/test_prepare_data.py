"""prepare-data as a user runs it, on real upstream files."""

import json
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest
from mlflow import MlflowClient

from elastic_core.data.registry import REGISTRY
from tests.elastic_command import ELASTIC, elastic, elastic_here, environment
from tests.upstream import UPSTREAM, needs_upstream

COMMAND = ("run", "prepare-data", "--set", f"data.mirror={UPSTREAM}")
README_ROWS = {
    "aime-2024": 30,
    "amc": 83,
    "math500": 500,
    "minerva": 272,
    "aime-1983-2023": 975,
    "codeforces": 408,
    "leetcode": 200,
    "aime-2025": 30,
    "reasonflux-templates": 420,
    "codeforces-ids": 408,
    "codeforces-ratings": 2502,
}


def directory(output: str) -> Path:
    return Path(output.strip().splitlines()[-1])


def contents(built: Path) -> dict[str, bytes]:
    # The marker holds the id of the MLflow run.
    return {str(f.relative_to(built)): f.read_bytes() for f in built.rglob("*.*") if not f.name.startswith("result")}


def datasets_in_mlflow(runs: Path) -> dict[str, str]:
    client = MlflowClient(f"sqlite:///{runs}/mlflow.db")
    (run,) = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    return {given.dataset.name: given.dataset.digest for given in run.inputs.dataset_inputs}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of everything in the mirror, built without interruption."""
    built = elastic(*COMMAND, runs=tmp_path_factory.mktemp("whole"))
    assert built.returncode == 0, built.stdout
    return directory(built.stdout)


@pytest.mark.slow  # tests/unit/test_data_*.py read the same files.
@needs_upstream
def test_everything_in_the_mirror_is_built_once_and_recorded(whole: Path) -> None:
    manifest = json.loads((whole / "manifest.json").read_text())
    assert {name: manifest["datasets"][name]["rows"] for name in README_ROWS} == README_ROWS
    for name, entry in manifest["datasets"].items():
        rows = pl.read_parquet(whole / entry["file"]).height
        assert rows == entry["kept_rows"] == entry["rows"] - sum(entry["removed"].values())
        assert bool(entry["removed"]) <= (REGISTRY[name].split == "train")

    recorded = datasets_in_mlflow(whole.parents[2])
    assert recorded == {name: entry["sha256"][:36] for name, entry in manifest["datasets"].items()}
    runs = whole.parents[2]
    again = elastic_here(*COMMAND, runs=runs)
    assert again.stdout == f"prepare-data: done before, nothing to do: {whole}\n"
    built = {file: file.stat().st_mtime_ns for file in runs.glob("sets/*/*.parquet")}
    fewer = elastic("run", "prepare-data", "--set", "data.datasets=[]", runs=runs)
    assert fewer.returncode == 0 and directory(fewer.stdout) != whole, fewer.stdout
    assert {file: file.stat().st_mtime_ns for file in runs.glob("sets/*/*.parquet")} == built


@pytest.mark.slow
@needs_upstream
def test_a_kill_in_the_middle_loses_nothing(whole: Path, tmp_path: Path) -> None:
    flow = subprocess.Popen(
        [ELASTIC, *COMMAND], env=environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 600
    while len(list(tmp_path.glob("sets/*/clean-*.parquet"))) < 5:
        assert flow.poll() is None and time.monotonic() < deadline, "the flow ended before it could be killed"
        time.sleep(0.002)
    flow.send_signal(signal.SIGKILL)
    flow.wait()
    assert not list(tmp_path.glob("embedded/data/*/manifest.json"))
    finished = {file: file.stat().st_mtime_ns for file in tmp_path.glob("sets/*/clean-*.parquet")}
    again = elastic(*COMMAND, runs=tmp_path)
    assert again.returncode == 0, again.stdout
    assert contents(directory(again.stdout)) == contents(whole)
    assert finished and all(file.stat().st_mtime_ns == before for file, before in finished.items())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("run", "prepare-data", "--set", 'data.train=["amc"]'),
            "data.train: amc is for evaluation; expected a set for train",
        ),
        (
            ("run", "prepare-data", "--set", 'data.benchmarks=["math50"]'),
            'unknown data set "math50", did you mean "math500"',
        ),
        (("run", "prepare-data", "--set", 'data.benchmarks=["codeforces-ids"]'), "codeforces-ids is for reference"),
        (("run", "prepare-data", "--mirror", "nowhere"), "nowhere is not a directory"),
        (("data", "show", "nothing"), 'unknown data set "nothing"'),
        (("data", "add", "nowhere.csv", "--question", "q", "--answer", "a"), "nowhere.csv: no such file"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    result = elastic_here(*arguments, runs=tmp_path)
    assert result.returncode == 2
    (line,) = result.stdout.strip().splitlines()
    assert line.startswith("error: ") and reason in line
