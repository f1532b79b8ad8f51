"""`make bench`: what a bench lacks is said with how to get it, whatever fails leaves the others alone, and every figure
is in the table at the end."""

import json
import os
import time
from pathlib import Path

import pytest

from tests.bench import __main__ as bench
from tests.bench import bench_data, bench_retrieval, inputs, results


@pytest.mark.parametrize("main", [bench_data.main, bench_retrieval.main])
def test_files_that_are_missing_are_named_with_the_command_that_fetches_them(
    main: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(inputs, "UPSTREAM", tmp_path)
    main()  # type: ignore[operator]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"skipped: no {tmp_path}/") and "elastic run prepare-data" in line


def test_every_figure_has_a_name_a_value_and_a_unit() -> None:
    figures = {"step_seconds_gen": 1.5, "rollout_tokens_per_second": 12345.6, "model": "twin", "cells": 48}
    nested = {"million": {"peak_gib": 2.0, "seconds": [3.0, 4.0]}}
    assert list(results.flat(figures | nested)) == [
        ("step_seconds_gen", "1.5", "s"),
        ("rollout_tokens_per_second", "1.235e+04", "1/s"),
        ("model", "twin", ""),
        ("cells", "48", "count"),
        ("million.peak_gib", "2", "GiB"),
        ("million.seconds", "3, 4", "s"),
    ]


def test_one_that_fails_leaves_the_others_alone_and_old_figures_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path))
    results.write("old", {"peak_gib": 1.0})
    os.utime(tmp_path / "bench" / "old.json", (0, 0))

    def run(name: str) -> tuple[int, list[str]]:
        if name == "a":
            return 1, []
        (tmp_path / "bench" / "b.json").write_text(json.dumps({"peak_mib": 7.0}))
        return 0, ["programs: no bubblewrap"]

    monkeypatch.setattr(bench, "run", run)
    monkeypatch.setattr(time, "time", lambda: 1.0)
    assert bench.main(["a", "b"]) == 1
    told = capsys.readouterr().out
    assert "peak_mib" in told and "MiB" in told and "peak_gib" not in told
    assert "b: skipped: programs: no bubblewrap" in told and "a: failed" in told


def test_a_figure_stands_beside_what_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(results, "BEFORE", tmp_path / "before.json")
    results.BEFORE.write_text('{"demo": {"demo_seconds": 1200}, "scale": {"demo_seconds": 7}}')
    results.write("demo", {"demo_seconds": 641.0, "peak_gib": 9.0})
    columns = {column.header: list(column.cells) for column in bench.figures(since=0).columns}
    assert columns["before"] == ["1,200", ""] and columns["value"] == ["641", "9"]


def test_what_figures_were_is_known_of_benches_that_are_run() -> None:
    before = json.loads(results.BEFORE.read_text())
    assert before.keys() <= set(bench.BENCHES)
