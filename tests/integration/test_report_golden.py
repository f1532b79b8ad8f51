"""The text of a report and of a comparison, line by line as in `tests/golden`, which
`python -m tests.integration.test_report_golden` writes anew: look at the difference before it is committed."""

import re
import tempfile
from pathlib import Path

import polars as pl
import pytest

from elastic_core.budget import TrainingBudget
from elastic_core.statistics.cost import CostModel
from reports.build import build_report
from reports.comparison import render_comparison
from reports.content import ReportParameters, ReportSources, Training
from tests.unit.test_report_summary import make_rows

DECIMAL = re.compile(r"[-+]?\d+\.\d+")
GOLDEN = Path(__file__).parents[1] / "golden"
METRICS = pl.DataFrame({"step": [1, 2], "name": ["critic/score/mean"] * 2, "value": [0.1, 0.2]})
PRICES = CostModel(input=0.5, cached_input=0.05, output=2.5)


def rows() -> pl.DataFrame:
    """Base, two seeds of a training and a control; pairs of models; every kind of strategy; graded as published too."""
    rows = make_rows(["base", "trained@1", "trained@2", "control"], ["hard"], budgets=[16, 64], num_problems=8)
    separate = rows.filter(strategy="separate")
    of_base, of_control = separate.filter(model="base"), separate.filter(model="control")
    uncut = pl.lit(False).repeat_by(pl.col("think_tokens") + pl.col("solution_tokens"))
    pairs = [of_base.with_columns(model=pl.lit(f"base>trained@{seed}")) for seed in (1, 2)]
    guided = of_base.with_columns(strategy=pl.lit("reasonflux_zero"), navigator_tokens=pl.lit(3, pl.Int32), score=1.0)
    asked = {"strategy": pl.lit("l1_exact"), "think_finish": pl.lit("closed"), "forced_tokens": pl.lit(0, pl.Int32)}
    answers = pl.when(pl.col("score") > 0).then(pl.lit("7")).otherwise(pl.lit("8"))
    every = pl.concat([rows, *pairs, guided, of_control.with_columns(**asked, forced=uncut)])
    return every.with_columns(benchmark=pl.lit("aime-2024"), answer=answers, published_score=1 - pl.col("score"))


def texts() -> dict[str, str]:
    one = Training(TrainingBudget.parse("64+32"), asks_length=False, base="base", metrics=METRICS)
    trainings = dict.fromkeys(["trained@1", "trained@2", "control"], one)
    pairs = [("base", "trained"), ("control", "trained")]
    parameters = ReportParameters(pairs=pairs, prices=PRICES, parallel=["majority_2", "short_1_at_4"])
    with tempfile.TemporaryDirectory() as directory:
        build_report(
            ReportSources(rows().lazy(), trainings, parameters=parameters, preset="e1-math-1.5b"), Path(directory)
        )
        report = (Path(directory) / "report.md").read_text(encoding="utf-8")
    return {"report.md": report, "compare.txt": render_comparison(rows())}


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return texts()


@pytest.mark.parametrize("name", ["report.md", "compare.txt"])
def test_every_line_is_the_golden_one(written: dict[str, str], name: str) -> None:
    """A last digit may differ by one: sums in another order, as other processors have them, round otherwise."""
    found, golden = written[name].splitlines(), (GOLDEN / name).read_text(encoding="utf-8").splitlines()
    assert [DECIMAL.sub("#", line) for line in found] == [DECIMAL.sub("#", line) for line in golden]
    for line, expected in zip(found, golden, strict=True):
        for one, other in zip(DECIMAL.findall(line), DECIMAL.findall(expected), strict=True):
            assert abs(float(one) - float(other)) < 1.5 * 10 ** -len(other.partition(".")[2]), line


if __name__ == "__main__":
    for file, text in texts().items():
        (GOLDEN / file).write_text(text, encoding="utf-8")
