"""Which trajectories the page holds: all of a small table, whole problems of a large one."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from elastic_core.statistics import sampled_tokens
from elastic_core.sweep.subset import problem_digest

MAX_TRAJECTORIES = 50_000
MAX_TOKENS = 30_000_000
"""Sampled tokens of all trajectories: what is in memory at a time is about 100 MB of text."""

PROBLEM = ["benchmark", "problem"]


@dataclass(frozen=True)
class Drawing:
    """Problems in the order in which the page takes them, as long as it has room.

    Attributes:
        problems: columns benchmark, problem, and turn: 1 for the first of its benchmark, and so on.
        num_problems: of the whole table.
        num_trajectories: of the whole table.
    """

    problems: pl.DataFrame
    num_problems: int
    num_trajectories: int

    def note(self, num_problems: int, num_trajectories: int) -> str:
        """What of the table is held, as a sentence."""
        if num_problems == self.num_problems:
            return f"Holds all {num_trajectories:,} trajectories of {num_problems:,} problems."
        return (
            f"Shows {num_trajectories:,} of {self.num_trajectories:,} trajectories: every one of {num_problems:,} of "
            f"the {self.num_problems:,} problems, drawn by a hash of their names and not by their results. Figures and "
            "tables are of all trajectories."
        )


def draw_problems(
    rows: pl.LazyFrame, max_trajectories: int = MAX_TRAJECTORIES, max_tokens: int = MAX_TOKENS
) -> Drawing:
    """All problems, or as many as keep both limits, the benchmarks in turn and at least one of each.

    The order within a benchmark is that of a hash of the problem's name: the same in every report, and blind to what
    became of the problem.
    """
    sizes = (
        rows.group_by(PROBLEM)
        .agg(pl.len().alias("trajectories"), sampled_tokens().cast(pl.Int64).sum().alias("tokens"))
        .collect(engine="streaming")
    )
    digests = pl.Series([problem_digest(*names) for names in sizes.select(PROBLEM).iter_rows()], dtype=pl.String)
    drawn = (
        sizes.with_columns(digest=digests)
        .sort("digest")
        .with_columns(turn=pl.int_range(1, pl.len() + 1).over("benchmark"))
        .sort("turn", "benchmark")
    )
    fits = (pl.col("trajectories").cum_sum() <= max_trajectories) & (pl.col("tokens").cum_sum() <= max_tokens)
    shown = drawn.filter(fits | (pl.col("turn") == 1)).select(*PROBLEM, "turn")
    return Drawing(shown, sizes.height, int(sizes["trajectories"].sum()))
