"""A model behind a server is measured by `pip install elastic-reasoning[pipeline]` alone: no Ray, no vLLM, no torch."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic_core.miniature.warm_start import BASE
from elastic_core.models.special_tokens import load_markers
from elastic_core.sweep.table import SweepTable
from elastic_core.trajectory import KEY as ROW_KEY
from tests.api_server import ApiServer, listening
from tests.exactness import broken_rules
from tests.plain_install import PACKAGES, install

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

pytestmark = pytest.mark.slow  # Every day tests/e2e/test_tour.py evaluates a server in such an environment.


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


def test_the_same_command_again_draws_nothing_and_needs_no_server(
    plain: Plain, swept: subprocess.CompletedProcess[str]
) -> None:
    plain.api.away_after = len(plain.api.drawn)
    again = plain.run("run", "sweep", "--preset", "mine.toml")
    plain.api.away_after = None
    assert again.returncode == 0 and "done before, nothing to do" in again.stdout
