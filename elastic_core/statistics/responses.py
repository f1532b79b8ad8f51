"""How responses end: with a solution, or cut before it. A cut response is counted as wrong, and that is not inability.

A forced think-end does not bind the model: it may go on with its thought in the place of the solution. That is told
from the text: it opens a thought again, closes the one that is closed, or says what only a thought says.
"""

from __future__ import annotations

from enum import StrEnum

import polars as pl

from elastic_core.models.special_tokens import FINAL_ANSWER_AFTER
from elastic_core.statistics.accuracy import avg_at_k
from elastic_core.statistics.estimates import forced_close
from elastic_core.statistics.seeds import in_every_seed
from elastic_core.trajectory import CELL, SCHEMA, SolutionFinish, ThinkFinish


class ResponseKind(StrEnum):
    """What became of a response; each has one, the first that is true."""

    CUT_THOUGHT = "cut in the thought"  # by the total limit, so that there is no solution
    WENT_ON = "went on thinking"  # in the place of the solution, after a forced think-end
    CUT_SOLUTION = "cut in the solution"
    EMPTY = "empty solution"  # the model stopped and had written nothing, or stopped inside its thought
    ANSWERED = "answered"  # a solution that the model ended, right or wrong


_MARKERS = r"</?think>"
_THINKS = "|".join(
    (
        "<think>",
        # A think-end of the model's own, after some text: it took that for a thought.
        r"[^\s>]\s*</think>",
        # At the beginning of a sentence.
        r"(?i:(?:^|[.!?\n])\s*(?:(?:but|oh|so|no|okay|ok),? )?(?:"
        r"wait(?:[,.!:…—-]| (?:no|a|but|maybe|that|is|if|i)\b)"
        r"|hmm+\b|hold on\b"
        r"|let me (?:think|see|check|double|verify|re-?\w+|try|compute|calculate|work|consider)\b))",
        # What reasoning models begin a thought with.
        r"(?i:^\s*(?:(?:okay|ok|alright),? (?:so|let)\b|got it, let))",
    )
)


def response_kind() -> pl.Expr:
    """The `ResponseKind` of a row of the trajectory table. Reads no text but that of the solution."""
    written = pl.col("solution").fill_null("").str.strip_prefix(FINAL_ANSWER_AFTER)
    return (
        pl.when(pl.col("think_finish") == ThinkFinish.LENGTH)
        .then(pl.lit(ResponseKind.CUT_THOUGHT))
        .when(forced_close() & written.str.contains(_THINKS))
        .then(pl.lit(ResponseKind.WENT_ON))
        .when(pl.col("solution_finish") == SolutionFinish.LENGTH)
        .then(pl.lit(ResponseKind.CUT_SOLUTION))
        .when(written.str.replace_all(_MARKERS, "").str.strip_chars() == "")
        .then(pl.lit(ResponseKind.EMPTY))
        .otherwise(pl.lit(ResponseKind.ANSWERED))
    )


def is_cut() -> pl.Expr:
    """Whether a limit ended a row's response, in its thought or its solution, gone on or not. A thought that was closed
    by force and has its solution is not cut."""
    return (pl.col("think_finish") == ThinkFinish.LENGTH) | (pl.col("solution_finish") == SolutionFinish.LENGTH)


_BOUNDED = [f"{name}{end}" for name in ("avg_at_k", "uncut_avg_at_k") for end in ("", "_low", "_high")]
_COUNTS = ("num_problems", "num_trajectories", "uncut_problems", "uncut_trajectories")
RESPONSES = pl.Schema(
    {
        **{name: SCHEMA[name] for name in CELL},
        **{str(kind): pl.Int64() for kind in ResponseKind},
        **dict.fromkeys(_BOUNDED, pl.Float64()),
        **dict.fromkeys(_COUNTS, pl.Int64()),
    }
)


def response_kinds(rows: pl.DataFrame) -> pl.DataFrame:
    """How the responses of each cell end, and its avg@k with and without those that were cut (`is_cut`).

    Problems all of whose responses were cut, under some seed of training, are not in the latter, and these are the hard
    ones: it is no estimate of what a larger budget would give.

    Args:
        rows: of the trajectory table, with `kind` and `cut`.

    Returns:
        A row per cell, in schema RESPONSES, sorted by CELL: trajectories of each kind; both accuracies in [0, 1] with
        their intervals, the second null where every response was cut.
    """
    cells = [_cell(cell) for cell in rows.partition_by(CELL)]
    return pl.DataFrame(cells, schema=RESPONSES).sort(CELL, nulls_last=True)


def _cell(rows: pl.DataFrame) -> dict[str, object]:
    uncut = in_every_seed(rows.filter(~pl.col("cut")))
    accuracy = avg_at_k(rows)
    without = None if uncut.is_empty() else avg_at_k(uncut)
    return {
        **{name: rows[name][0] for name in CELL},
        **{kind: rows.filter(kind=kind).height for kind in ResponseKind},
        **accuracy.columns("avg_at_k"),
        **(without.columns("uncut_avg_at_k") if without else {}),
        "num_problems": accuracy.num_problems,
        "num_trajectories": accuracy.num_trajectories,
        "uncut_problems": uncut["problem"].n_unique(),
        "uncut_trajectories": uncut.height,
    }
