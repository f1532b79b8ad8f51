"""A model behind a server is measured by `pip install elastic-reasoning[pipeline]` alone: no Ray, no vLLM, no torch."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from elastic_core.miniature.warm_start import BASE
from elastic_core.models.special_tokens import load_markers
from elastic_core.sweep.table import SweepTable
from elastic_core.trajectory import KEY as ROW_KEY
from tests.api_server import ApiServer, listening
from tests.exactness import broken_rules
from tests.plain_install import ENGINES, PACKAGES, install

KEY = "s3cret-key-of-the-server"
PRESET = """
extends = "embedded"
[sweep]
models = ["served"]
strategies = ["separate", "budget_forcing", "vanilla", "unconstrained"]
budgets = ["0+16", "16+16", "32+16"]
max_response_tokens = 64
samples = 2
problems = 5
[sweep.checkpoints]
served = "{address}"
[sweep.tokenizers]
served = "{tokenizer}"
[endpoint]
wait_seconds = 5
max_requests = 4
"""

ROWS = (3 * 3 + 1) * 2 * 5 * 2
"""Cells, benchmarks, problems, samples."""


class Plain:
    """The environment, a project in it that has packages with the names of ours, and the server."""

    def __init__(self, elastic: Path, directory: Path, api: ApiServer) -> None:
        self.elastic, self.directory, self.api = elastic, directory, api
        (directory / "mine.toml").write_text(PRESET.format(address=api.address, tokenizer=BASE))
        self.runs = directory / "runs"
        for name in PACKAGES:
            (directory / name).mkdir()
            (directory / name / "__init__.py").write_text(f"raise SystemExit('the {name} of the project')")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            [str(self.elastic), *arguments],
            cwd=self.directory,
            env=environment | {"ELASTIC_RUNS": str(self.runs), "ELASTIC_API_KEY_SERVED": KEY},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=600,
            check=False,
        )

    @property
    def table(self) -> SweepTable:
        (directory,) = self.runs.glob("mine/sweep/*/table")
        return SweepTable(directory)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plain]:
    elastic = install(tmp_path_factory.mktemp("environment"))
    with listening(ApiServer(load_markers(BASE)[0], key=KEY)) as api:
        yield Plain(elastic, tmp_path_factory.mktemp("project"), api)


@pytest.fixture(scope="module")
def swept(plain: Plain) -> subprocess.CompletedProcess[str]:
    return plain.run("run", "sweep", "--preset", "mine.toml")


def test_the_environment_has_nothing_that_runs_models(plain: Plain) -> None:
    look = f"import importlib.util as u, sys; sys.exit(bool([n for n in {ENGINES} if u.find_spec(n)]))"
    assert subprocess.run([plain.elastic.with_name("python"), "-c", look]).returncode == 0


@pytest.mark.slow
def test_a_server_that_goes_away_ends_the_sweep_with_what_is_stored_and_the_same_command_goes_on(
    plain: Plain, swept: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    another = Plain(plain.elastic, tmp_path, plain.api)
    plain.api.away_after = len(plain.api.drawn) + 40
    ended = another.run("run", "sweep", "--preset", "mine.toml")
    plain.api.away_after = None
    stored = another.table.read().height
    assert ended.returncode == 2 and "Traceback" not in ended.stdout, ended.stdout[-6000:]
    assert 0 < stored < ROWS
    waited = "did not answer for 5 s (endpoint.wait_seconds)"
    assert waited in ended.stdout and f"; {stored} rows are stored, and the same command goes on" in ended.stdout
    again = another.run("run", "sweep", "--preset", "mine.toml")
    assert again.returncode == 0, again.stdout[-6000:]
    key = list(ROW_KEY)
    assert another.table.read().sort(key).equals(plain.table.read().sort(key))


def test_it_measures_a_model_behind_a_server(plain: Plain, swept: subprocess.CompletedProcess[str]) -> None:
    assert swept.returncode == 0, swept.stdout[-6000:]
    rows = plain.table.read()
    assert rows.height == ROWS
    assert broken_rules(rows) == {}


def test_the_manifest_names_server_version_and_model_and_that_weights_were_not_hashed(
    plain: Plain, swept: subprocess.CompletedProcess[str]
) -> None:
    server = json.loads((plain.table.directory / "manifest.json").read_text())["servers"]["served"]
    assert server["address"] == plain.api.address and server["server"] == "vllm 1.2.3"
    assert (server["root"], server["context"]) == ("/models/drawn", 512)
    assert server["weights"].startswith("not hashed")


@pytest.mark.slow
def test_the_same_command_again_draws_nothing_and_needs_no_server(
    plain: Plain, swept: subprocess.CompletedProcess[str]
) -> None:
    plain.api.away_after = len(plain.api.drawn)
    again = plain.run("run", "sweep", "--preset", "mine.toml")
    plain.api.away_after = None
    assert again.returncode == 0 and "done before, nothing to do" in again.stdout


def test_its_report_is_written_there_too(plain: Plain, swept: subprocess.CompletedProcess[str]) -> None:
    written = plain.run("report", "--from", str(plain.table.directory), "--to", "report")
    assert written.returncode == 0, written.stdout[-6000:]
    assert (plain.directory / "report" / "report.html").stat().st_size > 100_000


def test_the_key_is_in_no_file(plain: Plain, swept: subprocess.CompletedProcess[str]) -> None:
    files = [file for file in plain.runs.rglob("*") if file.is_file()]
    assert len(files) > 20
    assert [file for file in files if KEY.encode() in file.read_bytes()] == []
    assert KEY not in swept.stdout
    texts = plain.table.scan().select(pl.col("solution").str.contains(KEY, literal=True).any()).collect().item()
    assert not texts
