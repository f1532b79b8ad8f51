"""A finished sweep that is asked for more: other cells, two models together, narrower intervals."""

import os
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest

from elastic_core.errors import UserError
from elastic_core.sweep.table import SweepTable
from elastic_core.trajectory import CELL, KEY
from flows.presets import parse_override
from flows.sweep import sweep
from tests.elastic_command import ELASTIC, elastic, elastic_here, environment
from tests.exactness import broken_rules

FEWER = ("--set", 'sweep.models=["base","trained>base"]', "--set", 'sweep.strategies=["separate","unconstrained"]')
MORE = (*FEWER, "--set", "sweep.max_samples=3", "--until", "ci=25")


@pytest.fixture(scope="module")
def more_runs(first: subprocess.CompletedProcess[str], runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smoke pipeline's runs, to go on from."""
    assert first.returncode == 0, first.stdout[-6000:]
    return Path(shutil.copytree(runs, tmp_path_factory.mktemp("more") / "runs"))


@pytest.fixture(scope="module")
def more(more_runs: Path) -> subprocess.CompletedProcess[str]:
    return elastic("run", "sweep", "--preset", "smoke", *MORE, runs=more_runs)


@pytest.mark.slow  # The same on one engine is test_sweep_ray's, how many samples are enough the unit tests'.
def test_a_pair_of_models_and_more_samples_join_the_table(
    table: pl.DataFrame, more: subprocess.CompletedProcess[str], more_runs: Path
) -> None:
    assert more.returncode == 0, more.stdout[-6000:]
    # Without thought templates it is another sweep, over the same rows of the base.
    newest = max(more_runs.glob("smoke/sweep/*/table"), key=lambda path: path.stat().st_mtime)
    now, known = (
        SweepTable(newest).read(),
        table.filter(pl.col("strategy").is_in(["separate", "unconstrained"]), model="base"),
    )
    assert now.join(known, on=KEY, how="semi", nulls_equal=True).sort(KEY).equals(known.sort(KEY))
    assert broken_rules(now) == {}
    assert set(now["model"]) == {"base", "trained>base"}
    # Problems that are all wrong leave intervals wider than ±25 points: every cell has the samples that the cap allows.
    asked = pl.col("model").is_in(["base", "trained>base"]) & pl.col("strategy").is_in(["separate", "unconstrained"])
    for cells, num_samples in ((asked, 3), (~asked, 2)):
        assert set(now.filter(cells).group_by(*CELL, "problem").len()["len"]) == {num_samples}
    assert "3 samples: the widest interval is" in more.stdout
    assert "the cap" in more.stdout


@pytest.mark.slow
def test_nothing_of_it_is_missing(more: subprocess.CompletedProcess[str], more_runs: Path) -> None:
    asked = ("--preset", "smoke", *FEWER, "--set", "sweep.samples=3")
    assert "(100%)" in elastic_here("status", *asked, runs=more_runs).stdout


@pytest.mark.slow
def test_what_a_task_refuses_is_a_sentence_before_any_engine_starts(more_runs: Path) -> None:
    refused = elastic("run", "sweep", "--preset", "smoke", "--set", 'sweep.budgets=["4k+1k"]', runs=more_runs)
    assert refused.returncode == 2 and "do not fit the model's context" in refused.stdout
    narrow = elastic("run", "sweep", "--preset", "smoke", *FEWER, "--until", "ci=5", runs=more_runs)
    assert narrow.returncode == 2 and "cannot be narrower than" in narrow.stdout
    for said in (refused.stdout, narrow.stdout):
        assert "Traceback" not in said and "Connecting to existing Ray cluster" not in said


@pytest.mark.slow
def test_sweeps_of_one_benchmark_each_beside_each_other_leave_nothing_to_the_sweep_of_all(
    table: pl.DataFrame, tmp_path: Path
) -> None:
    """How a sweep that is too much for one driver is parted: docs/scale.md."""
    whole = ("run", "sweep", "--preset", "smoke", "--set", 'sweep.models=["base"]')
    whole += ("--set", 'sweep.strategies=["separate","unconstrained"]')
    parts = [
        subprocess.Popen(
            [ELASTIC, *whole, "--set", f'data.benchmarks=["{benchmark}"]'],
            env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) for benchmark in ("miniature-easy", "miniature-hard")
    ]  # fmt: skip
    for part in parts:
        said, _ = part.communicate(timeout=1700)
        assert part.returncode == 0, said[-6000:]
    drawn = set(tmp_path.glob("smoke/tables/*/*.parquet"))
    again = elastic(*whole, runs=tmp_path)
    assert again.returncode == 0, again.stdout[-6000:]
    assert set(tmp_path.glob("smoke/tables/*/*.parquet")) == drawn
    newest = max(tmp_path.glob("smoke/sweep/*/table"), key=lambda path: path.stat().st_mtime)
    expected = table.filter(pl.col("strategy").is_in(["separate", "unconstrained"]), model="base")
    assert SweepTable(newest).read().sort(KEY).equals(expected.sort(KEY))


def test_a_sweep_ends_with_the_comparison_of_its_models(first: subprocess.CompletedProcess[str], runs: Path) -> None:
    """In a pipeline it is in the log, and the report is in the terminal."""
    for found in (": cells", "accuracy over log2 tokens", "95 % interval"):
        assert found in (runs / "smoke" / "pipeline.log").read_text()
        assert found not in first.stdout


def test_status_and_plan_say_that_nothing_is_missing(more_runs: Path) -> None:
    for asked in ((), ("--set", 'sweep.strategies=["separate"]')):
        assert "(100%)" in elastic_here("status", "--preset", "smoke", *asked, runs=more_runs).stdout
    plan = elastic_here("plan", "sweep", "--preset", "smoke", "--set", "sweep.samples=3", runs=more_runs)
    assert plan.returncode == 0
    assert "tokens/s, measured on 1 engine(s)" in plan.stdout


def test_a_sweep_of_fewer_problems_finds_them_in_the_table(more_runs: Path) -> None:
    asked = ("--preset", "smoke", "--set", 'sweep.models=["base","trained"]', "--set", "sweep.problems=2")
    without_templates = ("--set", 'sweep.strategies=["separate"]')
    status = elastic_here("status", *asked, *without_templates, runs=more_runs).stdout
    assert "(100%)" in status
    plan = elastic_here("plan", "sweep", *asked, runs=more_runs).stdout
    assert "(2 problems) × 2 samples" in plan and "0 of " in plan


def test_rows_of_other_thought_templates_are_others_and_all_else_is_there(table: pl.DataFrame, more_runs: Path) -> None:
    shipped = (resources.files("elastic_core.reasonflux") / "miniature.json").read_text()
    library = more_runs / "library.json"
    library.write_text(shipped.replace("maximum", "at most", 1))
    other = f"sweep.templates.library={library}"
    planned = elastic_here("plan", "sweep", "--preset", "smoke", "--set", other, runs=more_runs).stdout
    for model in ("base", "trained"):
        rows = table.filter(model=model)
        missing = rows.filter(strategy="reasonflux_zero").height
        assert re.search(rf"│ {model} +│.*│ +{missing} of {rows.height} ", planned), planned


def refusal(runs: Path, setting: str) -> str:
    """Of the flow itself, before any of its tasks is started."""
    with patch.dict(os.environ, environment(runs)), pytest.raises(UserError) as refused:
        sweep.fn("smoke", dict([parse_override(setting)]))
    return str(refused.value)


@pytest.mark.parametrize(
    "setting, sentence",
    [
        ("sweep.samples=0", "sweep.samples: input should be greater than 0, found 0"),
        ('sweep.strategies=["seperate"]', 'no strategy "seperate", did you mean "separate"?'),
        ('sweep.models=["base>trained>base"]', "expected a name, or THINKER>SOLVER"),
        ('sweep.models=["other"]', 'no model "other"; expected base, best, trained'),
        ('data.benchmarks=["nothing"]', "nothing"),
        ('base="nowhere"', "nowhere"),
    ],
)
def test_a_sweep_that_cannot_be_run_is_refused_in_a_sentence_before_any_task_starts(
    more_runs: Path, setting: str, sentence: str
) -> None:
    assert sentence in refusal(more_runs, setting)
