"""A small sweep of the miniature by one engine, for tests that hold engines against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from elastic_core.budget import parse_grid
from elastic_core.data.problems import Problem
from elastic_core.engines.base import Engine
from elastic_core.miniature.problems import generate
from elastic_core.miniature.warm_start import BASE
from elastic_core.models.special_tokens import load_markers
from elastic_core.strategies import Sampling
from elastic_core.sweep.executor import SweepResult, run_sweep
from elastic_core.sweep.grid import Cell, build_cells
from elastic_core.sweep.models import Prompts
from elastic_core.sweep.plan import plan_sweep
from elastic_core.sweep.rows import RowBuilder
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.trajectory import KEY

SAMPLING = Sampling(temperature=0.8, top_p=0.95)
NUM_PROBLEMS, NUM_SAMPLES = 8, 2
BUDGETS = ("0+24", "16+24", "48+24")
_PROBLEMS = {
    "miniature-easy": [
        Problem("miniature-easy", str(i), chain.question, str(chain.answer), "math")
        for i, chain in enumerate(generate("easy", NUM_PROBLEMS, seed=5, split="tune"))
    ]
}


@dataclass
class Swept:
    """The whole table, sorted, and what the run did."""

    rows: pl.DataFrame
    result: SweepResult


def grid(strategies: Sequence[str]) -> tuple[Cell, ...]:
    """Every strategy at every budget that it has."""
    return tuple(build_cells(["base"], ["miniature-easy"], strategies, parse_grid(list(BUDGETS))))


async def sweep(engine: Engine, directory: Path, strategies: Sequence[str]) -> Swept:
    """Draw the whole grid."""
    tokenizer, markers = load_markers(BASE)
    store = TrajectoryStore(directory)
    with store.writing(Manifest({"base": "model"}, {"base": "engine"}, {}, {})):
        plan = plan_sweep(grid(strategies), _PROBLEMS, num_samples=NUM_SAMPLES, seed=3, finished=store.finished())
        result = await run_sweep(
            plan,
            sampling=SAMPLING,
            prompts=Prompts(tokenizer),
            replicas=[{"base": engine}],
            rows=RowBuilder(tokenizer, markers, "model", "engine"),
            store=store,
        )
    return Swept(store.read().sort(KEY), result)
