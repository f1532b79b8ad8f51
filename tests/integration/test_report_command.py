"""`elastic report --from TABLE` as a user runs it, on the table of a half-done sweep."""

import json
from pathlib import Path

from tests.bench.bench_report import Shape, write_table
from tests.elastic_command import elastic, elastic_here

SHAPE = Shape({"hard": 6}, samples=2, thought=48, solution=32, max_seconds=0, max_gib=0)


def test_a_half_done_sweep_is_reported_and_says_how_much_of_it_is_there(tmp_path: Path) -> None:
    sweep = tmp_path / "runs" / "mine" / "sweep" / "key"
    rows = write_table(SHAPE, sweep / "table")
    request = {
        "models": ["base", "trained"],
        "strategies": ["separate", "unconstrained"],
        "budgets": ["12+32", "48+32"],
        "samples": 4,
    }
    (sweep / "inputs.json").write_text(json.dumps({"inputs": {"benchmarks": {"hard": ""}}, "request": request}))
    out = tmp_path / "out"
    done = elastic(
        *("report", "--from", str(sweep / "table"), "--to", str(out), "--price", "1", "0.1", "2", "--latex"),
        runs=tmp_path / "runs",
    )
    assert done.returncode == 0, done.stdout
    found, to_set, told, verdict, undecided, coverage, markdown, page = done.stdout.splitlines()
    assert rows == 2 * 25 * 12
    assert found.startswith("Under a token budget training makes the model ")
    assert "leave thinking unlimited" in to_set and f"**{found} {to_set}**" in (out / "report.md").read_text()
    assert "trained over base" in verdict and told.startswith("hard: ")
    assert "72 of 144 trajectories (50 %)" in coverage and "0 of 6 cells" in coverage
    text = (out / "report.md").read_text()
    assert markdown == str(out / "report.md")
    assert page.endswith("report.html")
    assert "budgets of trained are undecided" in undecided
    assert verdict in text
    assert coverage in text
    assert "0.1 per cached input and 2 per output token" in text
    assert (out / "figures" / "thinking_spent.svg").exists()
    for name in ("model_comparison", "model_differences", "costs"):
        assert rf"\label{{tab:{name}}}" in (out / "tables" / f"{name}.tex").read_text()
    assert "tables/costs.tex" in json.loads((out / "files.json").read_text())


def test_a_table_of_a_preset_is_reported_as_its_section_report_says(tmp_path: Path) -> None:
    expected = {}
    for preset in ("embedded", "nobodys"):
        table = tmp_path / "runs" / preset / "sweep" / "key" / "table"
        write_table(SHAPE, table)
        done = elastic_here("report", "--from", str(table), runs=tmp_path / "runs")
        assert done.returncode == 0, done.stdout
        expected[preset] = (table.parent / "report" / "report.md").read_text()
    assert "15 points" in expected["embedded"]
    assert "15 points" not in expected["nobodys"] and "7 points" in expected["nobodys"]


def test_what_is_no_table_is_one_sentence(tmp_path: Path) -> None:
    done = elastic_here("report", "--from", str(tmp_path), runs=tmp_path / "runs")
    assert done.returncode == 2
    assert done.stdout.startswith(f"error: {tmp_path} is not a trajectory table")
    assert len(done.stdout.splitlines()) == 1
