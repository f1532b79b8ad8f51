"""Trajectory tables that mislead, what is true of them, and what a report writes on its first screen."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from elastic_core.budget import parse_grid
from elastic_core.errors import UserError
from elastic_core.sweep.grid import build_cells
from elastic_core.sweep.plan import plan_sweep
from elastic_core.sweep.table import TrajectoryStore
from elastic_core.trajectory import KEY, SCHEMA
from reports.build import read_report
from reports.content import Asked, ReportSources
from tasks.report import report_sources
from tests import simulated
from tests.simulated import SimulatedEngine, swept
from tests.tables import sweep_of
from tests.unit.test_report_summary import make_rows

BUDGETS = (16, 32, 64)
_CLOSED = {"think_finish": "closed", "forced_tokens": 0}


class Told(NamedTuple):
    what: str
    truth: str
    said: str


def first_screen(sources: ReportSources) -> str:
    """The two sentences on top of a report, and what it says of rows that it leaves out; or why there is none."""
    try:
        report = read_report(sources, Path())
    except UserError as error:
        return str(error)
    return " ".join(filter(None, [*report.brief, report.coverage]))


def said(rows: pl.DataFrame, asked: Asked | None = None) -> str:
    return first_screen(ReportSources(rows.lazy(), asked=asked))


def table(num_problems: int = 40) -> pl.DataFrame:
    """A model without a limit and under three budgets, twice: trained is base by another name."""
    base = make_rows(["base"], ["hard"], ["separate", "unconstrained"], BUDGETS, num_problems=num_problems)
    return pl.concat([base, base.with_columns(model=pl.lit("trained"))])


def missing_where_wrong() -> str:
    lost = (pl.col("model") == "trained") & (pl.col("strategy") == "separate") & (pl.col("score") == 0)
    return said(table().filter(~lost))


@lru_cache
def _replayed() -> pl.DataFrame:
    """Rows of a sweep of 100 problems × 4 samples in the order in which they were stored, 64 samples in flight. A
    response is right if its thought ended in time, and long thoughts end late."""
    cells = build_cells(["base"], ["simulated"], ["separate", "unconstrained"], parse_grid(["16+32", "64+32"]))
    nothing = pl.DataFrame(schema={name: SCHEMA[name] for name in KEY})
    plan = plan_sweep(cells, simulated.problems(100), num_samples=4, seed=0, finished=nothing)

    def lengths(problem: int, seed: int) -> tuple[int, int]:
        typical = random.Random(problem).gauss(np.log(80), 0.5)
        return int(np.clip(np.exp(typical + random.Random(seed).gauss(0, 0.4)), 4, 400)), 16

    with tempfile.TemporaryDirectory() as directory:
        swept(Path(directory), plan, [SimulatedEngine(lengths)], max_in_flight=64)
        rows = TrajectoryStore(Path(directory)).read()
    return rows.with_columns(score=(pl.col("think_finish") == "closed").cast(pl.Float64), grade_status=pl.lit("graded"))


def half_done(share: float) -> pl.DataFrame:
    """Base is measured, and of trained, which is base by another name, so much."""
    base = _replayed()
    return pl.concat([base, base.head(round(share * base.height)).with_columns(model=pl.lit("trained"))])


def half_done_said(share: float) -> str:
    cells = build_cells(
        ["base", "trained"], ["simulated"], ["separate", "unconstrained"], parse_grid(["16+32", "64+32"])
    )
    return said(half_done(share), Asked(cells, {"simulated": 100}, 4))


def equal_models() -> str:
    generator, base = np.random.default_rng(0), make_rows(["base"], ["easy"], ["separate"], [16, 128], 30, 4)
    skill = dict(zip(base["problem"].unique().sort(), generator.beta(2, 1, 30), strict=True))
    chance = base["problem"].replace_strict(skill).to_numpy()
    drawn = [
        base.with_columns(model=pl.lit(name), score=pl.Series((generator.random(base.height) < chance).astype(float)))
        for name in ("base", *(f"m{number}" for number in range(10)))
    ]
    return said(pl.concat(drawn))


def saves_nothing() -> str:
    """Every thought is shorter than every budget."""
    thought = {"think_tokens": 10, "forced": [False] * 20, "solution_tokens": 10, **_CLOSED, "score": 1.0}
    rows = table(400).filter(model="base")
    return said(rows.with_columns(**{name: pl.lit(value) for name, value in thought.items()}))


def beaten_budget() -> str:
    """Without a limit every other problem is right, as at 16 tokens; at 64 all of them."""
    half = (pl.col("problem").cast(pl.Int64) % 2).cast(pl.Float64)
    return said(
        table(400)
        .filter(model="base")
        .with_columns(score=pl.when(pl.col("think_budget") == 64).then(1.0).otherwise(half))
    )


def all_wrong() -> str:
    return said(table(400).with_columns(score=pl.lit(0.0)))


def over_budget() -> str:
    first = (pl.col("model") == "base") & (pl.col("think_budget") == 16) & (pl.col("problem") == "007")
    return said(table().with_columns(think_tokens=pl.when(first).then(99).otherwise("think_tokens").cast(pl.Int32)))


def key_twice() -> str:
    rows = table()
    return said(pl.concat([rows, rows[:1]]))


def not_a_number() -> str:
    lost = (pl.col("model") == "base") & (pl.col("think_budget") == 16) & (pl.col("problem") == "007")
    return said(table().with_columns(score=pl.when(lost).then(float("nan")).otherwise("score")))


def copied_problems() -> str:
    """Ten questions, each under ten names: 100 rows of data, and a sweep of them."""
    rows = table(10).filter(model="base")
    names = (pl.format("0{}{}", pl.lit(i), pl.col("problem").str.slice(-1)) for i in range(10))
    copies = pl.concat([rows.with_columns(problem=name) for name in names])
    with tempfile.TemporaryDirectory() as directory:
        sources = report_sources(sweep_of(Path(directory), copies, [f"1 + {i % 10}?" for i in range(100)]), {})
        counted = sources.rows.select("problem").unique().collect().height
        return f"{first_screen(sources)} ({counted} problems counted)"


def disjoint_problems() -> str:
    rows = table()
    first = pl.col("problem") < "020"
    return said(rows.filter(first == (pl.col("model") == "base")))


def one_problem() -> str:
    return said(table().filter(problem="000"))


TRUTHS: dict[str, tuple[str, Callable[[], str]]] = {
    "rows of wrong samples are missing in trained's budgets": ("no difference", missing_where_wrong),
    "trained's sweep is 10 % done, 64 samples in flight": ("no difference", lambda: half_done_said(0.1)),
    "trained's sweep is 30 % done": ("no difference", lambda: half_done_said(0.3)),
    "trained's sweep is 60 % done": ("no difference", lambda: half_done_said(0.6)),
    "ten models and base, each with draws of its own": ("all are equal", equal_models),
    "every thought is shorter than every budget": ("a budget saves nothing", saves_nothing),
    "unlimited thinking and 16 tokens are half right, 64 tokens all": ("16 is beaten by 64", beaten_budget),
    "every response is wrong": ("no budget is worth setting", all_wrong),
    "a thought has 99 tokens under t = 16": ("the table is broken", over_budget),
    "a row is there twice": ("the table is broken", key_twice),
    "a score is NaN": ("the table is broken", not_a_number),
    "ten problems, each under ten names": ("10 problems, not 100", copied_problems),
    "base and trained were measured on different problems": ("nothing can be compared", disjoint_problems),
    "one problem": ("nothing can be told", one_problem),
}
"""By what is in the table: what is true, and what is said of it."""


def all_told() -> list[Told]:
    return [Told(what, truth, say()) for what, (truth, say) in TRUTHS.items()]
