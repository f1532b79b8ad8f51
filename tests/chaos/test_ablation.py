"""The ablations in small: trainings that differ in a setting, measured in one table."""

from pathlib import Path

from elastic_core.sweep.table import SweepTable
from tests.elastic_command import elastic

TWO = """ablation={
    drawn = { train = { budget = "24..96+32" } },
    l1 = { after = "drawn", train = {
        strategy = "vanilla", budget = "160+32", l1 = { form = "exact", lengths = "48..160", penalty = 1e-2 }
    } }
}""".replace("\n", "")
"""A budget drawn anew for every problem, then L1 from where that ended."""


def test_variants_are_trained_in_turn_measured_side_by_side_and_not_run_again(tmp_path: Path) -> None:
    command = ("run", "ablation", "--preset", "ablation-smoke", "--set", TWO)
    first = elastic(*command, runs=tmp_path, timeout=1500)
    assert first.returncode == 0, first.stdout[-6000:]
    assert first.stdout.count("train: finished in") == 2
    table = SweepTable(next(tmp_path.glob("ablation-smoke/sweep/*/table"))).read()
    assert set(table["model"]) == {"base", "drawn", "l1"}
    assert "drawn" in Path(first.stdout.strip().splitlines()[-1]).read_text()
    again = elastic(*command, runs=tmp_path)
    assert again.returncode == 0, again.stdout[-6000:]
    assert again.stdout.count("train: done before, nothing to do") == 2
