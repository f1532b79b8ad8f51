"""The report as a whole: its files, its text, and that it can be made again."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from test_report_summary import make_rows

from elastic_core.budget import Budget
from reports.build import build_report

PROVENANCE: dict[str, Any] = {
    "preset": "embedded",
    "models": {"base": "1f2e", "trained": "3d4c"},
    "packages": ["polars 2.1.0", "verl 0.9.1"],
    "command": "elastic run pipeline --set a|b",
}
METRICS = pl.DataFrame({"step": [1, 2], "name": ["critic/score/mean"] * 2, "value": [0.1, 0.2]})


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    return make_rows(num_problems=10)


def test_a_report_is_its_figures_its_summary_and_its_text(rows: pl.DataFrame, tmp_path: Path) -> None:
    files = build_report(rows.lazy(), METRICS, tmp_path / "report", PROVENANCE, Budget(48, 32))
    assert sorted(path for path in files if path) == sorted((tmp_path / "report").iterdir())
    assert len(json.loads(files.summary.read_text())) == 100
    text = files.markdown.read_text()
    for figure in (files.accuracy_vs_tokens, files.accuracy_vs_budget, files.tokens_by_phase, files.training_curve):
        assert figure is not None
        assert f"]({figure.name})" in text


def test_the_text_shows_provenance_tables_and_claims(rows: pl.DataFrame, tmp_path: Path) -> None:
    lines = build_report(rows, None, tmp_path, PROVENANCE, Budget(48, 32)).markdown.read_text().splitlines()
    assert "| models | base 1f2e; trained 3d4c |" in lines
    assert r"| command | elastic run pipeline --set a\|b |" in lines
    assert "10 problems × 4 samples, 2000 trajectories in all. Budgets are thinking + solution tokens." in lines
    tables = [line for line in lines if line.startswith("| budget |")]
    assert len(tables) == 4  # accuracy and tokens, of two benchmarks
    assert tables[0].startswith("| budget | base, budget forcing | base, separate | base, unconstrained |")
    widths = {line.count("|") for line in lines if line.startswith(("| 16+32 |", "| unlimited |", "| budget |"))}
    assert widths == {10}
    assert sum(line.startswith(("| easy | ", "| hard | ")) for line in lines) == 11
    assert any("**does not hold**" in line for line in lines)


def test_only_base_and_no_training_is_a_report_too(tmp_path: Path) -> None:
    rows = make_rows(models=["base"], benchmarks=["hard"], strategies=["vanilla"], budgets=[16], num_problems=2)
    files = build_report(rows, None, tmp_path, {}, None)
    assert (files.tokens_by_phase, files.training_curve) == (None, None)
    assert "0 hold, 0 do not, 5 could not be measured." in files.markdown.read_text()


def test_the_same_table_makes_the_same_report_and_no_stale_figure(rows: pl.DataFrame, tmp_path: Path) -> None:
    build_report(rows, METRICS, tmp_path, PROVENANCE, None)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    build_report(rows, None, tmp_path, PROVENANCE, None)
    second = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(first) - set(second) == {"training_curve.png"}
    assert {name for name in second if first[name] != second[name]} == {"report.md"}  # it no longer shows the curve


def test_importing_the_report_does_not_import_matplotlib() -> None:
    code = "import sys, reports.build; sys.exit(bool({'matplotlib', 'jinja2', 'prefect', 'mlflow'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
