"""`elastic plan serve` as a user runs it: how many servers a load takes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from elastic_core.sweep.cost import Throughput, throughput_file
from tests.elastic_command import elastic_here
from tests.unit.test_adaptive import LADDER
from tests.unit.test_sweep_executor import sweep


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("stage") / "table"
    sweep(found, cells=LADDER, num_samples=20)
    return found


def test_more_servers_are_better_and_elastic_ones_never_worse(directory: Path, tmp_path: Path) -> None:
    load = ("--rate", "40", "--latency", "0.5", "--step", "20", "5", "--concurrent", "16", "--accuracy", "50")
    done = elastic_here("plan", "serve", "--from", str(directory), *load, runs=tmp_path)
    assert done.returncode == 0, done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r"\d+ +\d", line)]
    shown = [[float(each) for each in row[1::2]] for row in rows]
    assert len(shown) > 1 and [int(row[0]) for row in rows] == sorted(int(row[0]) for row in rows)
    for fixed, elastic in ((row[:-1], row[-1]) for row in shown):
        assert elastic >= max(fixed) - 5
    assert shown[-1][-1] >= shown[0][-1]
    assert done.stdout.count("right in time\n") >= 2


def test_it_takes_what_the_sweep_timed(directory: Path, tmp_path: Path) -> None:
    asked = ("plan", "serve", "--from", str(directory), "--rate", "5", "--latency", "5")
    refused = elastic_here(*asked, runs=tmp_path)
    assert refused.returncode == 2 and "give --server ADDRESS, or --step ALONE EACH" in refused.stdout
    file = throughput_file(directory.parent, "base")
    timed = Throughput("model", "engine", 1, 100.0, 1.0, (0.01, 0.0, 0.02), None)
    timed.write(directory.parent, "base")
    assert "no seconds of steps" in elastic_here(*asked, runs=tmp_path).stdout
    file.write_text(json.dumps(json.loads(file.read_text()) | {"steps": [[1, 8], [0.02, 0.04], 0.001]}))
    done = elastic_here(*asked, runs=tmp_path)
    file.unlink()
    assert done.returncode == 0 and re.search(r"^1 +\d", done.stdout, re.M), done.stdout


def test_what_no_number_of_servers_keeps_is_one_sentence(directory: Path, tmp_path: Path) -> None:
    load = ("--rate", "5", "--latency", "0.1", "--step", "100", "0")
    done = elastic_here("plan", "serve", "--from", str(directory), *load, runs=tmp_path)
    assert done.returncode == 2 and "expected a later --latency than 0.1 s" in done.stdout
