"""How responses end, and the use of their thinking.

A *ladder* is one strategy of one model on one benchmark at one solution budget; its *rungs* are the thinking budgets.
Unconstrained responses of the same model are its last rung, unlimited, unless the strategy has such a cell.
Only problems that were measured on every rung count. A rung *suffices* for a problem when its samples score
`SUFFICIENT` or more on average. For a problem p with a tokens of thought on rung t:

- b*(p), the sufficient budget: the smallest rung from which on this and every larger one suffice; infinite where only
  the unlimited one does. A problem has none where its last rung does not suffice.
- overthinking on rung t: max(0, a - b*); futile: a, for a problem without b*; needed: min(a, b*). They add up to a.
- starved on rung t: the thought was cut, and t < b*.
- solved within t: b* is at most t, and the samples on rung t score `SUFFICIENT` or more.

The names are those of marin-community/marin issue 8357. What differs: these are means over samples, then over problems.
b* is read off one half of the samples, everything else measured on the other, and the other way round: on the same
samples luck would count twice. One unlucky rung moves b* up, so it is too large rather than too small. Vanilla may
think t + s tokens: there the overthinking of a budget that just suffices is up to s.
"""

from __future__ import annotations

import math
from enum import StrEnum
from itertools import chain

import polars as pl

from elastic_core.models.special_tokens import FINAL_ANSWER_AFTER
from elastic_core.statistics.accuracy import avg_at_k, mean_score
from elastic_core.statistics.estimates import (
    LADDER,
    check_scores,
    estimates_table,
    forced_close,
    in_every_seed,
    mean_tokens,
    problem_table,
    seed_keys,
)
from elastic_core.strategies import FREE
from elastic_core.trajectory import CELL, SCHEMA, SolutionFinish, ThinkFinish

LEAK = 0.05
"""The share of responses that go on thinking in their solution, from which on a verdict says so and no level is
offered."""
SUFFICIENT = 0.5  # The mean score from which on a budget suffices for a problem: half of its samples right.

_RUNG = (*LADDER, "think_budget")
_TOKENS = ("needed", "overthinking", "futile")
_SPENT = (*_TOKENS, "starved", "solved_within")
"""What is told of the thinking on a rung: tokens per trajectory, and shares."""


class ResponseKind(StrEnum):
    """What became of a response; each has one, the first that is true."""

    CUT_THOUGHT = "cut in the thought"  # by the total limit, before a solution
    WENT_ON = "went on thinking"  # in the place of the solution, after a forced think-end
    CUT_SOLUTION = "cut in the solution"
    EMPTY = "empty solution"  # the model stopped and had written nothing, or stopped inside its thought
    ANSWERED = "answered"  # a solution that the model ended, right or wrong


_MARKERS = r"</?think>"
# A think-end by the model, after some text: it took that for a thought.
_MARKED = r"<think>|[^\s>]\s*</think>"
_THINKS = "|".join(
    (
        _MARKED,
        # At the beginning of a sentence.
        r"(?i:(?:^|[.!?\n])\s*(?:(?:but|oh|so|no|okay|ok),? )?(?:"
        r"wait(?:[,.!:…—-]| (?:no|a|but|maybe|that|is|if|i)\b)"
        r"|hmm+\b|hold on\b"
        r"|let me (?:think|see|check|double|verify|re-?\w+|try|compute|calculate|work|consider)\b))",
        # What reasoning models begin a thought with.
        r"(?i:^\s*(?:(?:okay|ok|alright),? (?:so|let)\b|got it, let))",
    )
)


_WRITTEN = pl.col("solution").fill_null("").str.strip_prefix(FINAL_ANSWER_AFTER)


def response_kind() -> pl.Expr:
    """The `ResponseKind` of a row of the trajectory table. Reads no text but that of the solution."""
    return (
        pl.when(pl.col("think_finish") == ThinkFinish.LENGTH)
        .then(pl.lit(ResponseKind.CUT_THOUGHT))
        .when(leaks())
        .then(pl.lit(ResponseKind.WENT_ON))
        .when(pl.col("solution_finish") == SolutionFinish.LENGTH)
        .then(pl.lit(ResponseKind.CUT_SOLUTION))
        .when(_WRITTEN.str.replace_all(_MARKERS, "").str.strip_chars() == "")
        .then(pl.lit(ResponseKind.EMPTY))
        .otherwise(pl.lit(ResponseKind.ANSWERED))
    )


def leaks(marked: bool = False) -> pl.Expr:
    """Whether a row's solution goes on thinking after a think-end that we wrote: it has a think marker, which is
    certain, or words with which thoughts begin or doubt, which is an estimate; `marked`: the former alone."""
    return forced_close() & _WRITTEN.str.contains(_MARKED if marked else _THINKS)


def leaked(rows: pl.DataFrame) -> pl.DataFrame:
    """What a forced think-end does to solutions, per cell that has one, from rows with `leak`, `marked` and `kind`.

    Columns: CELL, num_problems, num_trajectories; leak, marked (`leaks`) and empty, shares of all responses of the
    cell; after_forced, tokens of its solutions after forced think-ends, and after_own, of those after ends that the
    model wrote, of any strategy and budget, on the same problems (null where there is none); and 95 % intervals.
    """
    ends, forced = pl.col("think_finish"), forced_close()
    own = rows.filter(ends == ThinkFinish.CLOSED)
    rows = rows.with_columns(empty=pl.col("kind") == ResponseKind.EMPTY)
    found = []
    for key, cell in rows.filter(forced.any().over(CELL)).partition_by(CELL, as_dict=True).items():
        table = problem_table(cell, ["leak", "marked", "empty"])
        shares = [mean_score(table, name) for name in ("leak", "marked", "empty")]
        place = dict(zip(CELL, key, strict=True))
        theirs = own.filter(model=place["model"], benchmark=place["benchmark"])
        ours = in_every_seed(cell.filter(forced))
        sides = ours, in_every_seed(theirs.join(ours.select("problem"), on="problem", how="semi"))
        lengths = [mean_tokens(problem_table(side, [_SOLVED]), _SOLVED) if side.height else None for side in sides]
        values = [each[:3] if each else (None,) * 3 for each in (*shares, *lengths)]
        found.append((*key, *chain.from_iterable(values), shares[0].num_problems, shares[0].num_trajectories))
    columns = [f"{name}{end}" for name in LEAKED for end in ("", "_low", "_high")]
    return estimates_table(found, {name: rows.schema[name] for name in CELL}, columns)


LEAKED = ("leak", "marked", "empty", "after_forced", "after_own")
"""What is told of the solutions of a cell after forced think-ends."""
_SOLVED = "solution_tokens"


def is_cut() -> pl.Expr:
    """Whether a limit ended a row's response, in its thought or its solution, gone on or not. A thought that was closed
    by force and has its solution is not cut."""
    return (pl.col("think_finish") == ThinkFinish.LENGTH) | (pl.col("solution_finish") == SolutionFinish.LENGTH)


RESPONSES = pl.Schema(
    {
        **{name: SCHEMA[name] for name in CELL},
        **{str(kind): pl.Int64() for kind in ResponseKind},
        **{f"{name}{end}": pl.Float64() for name in ("avg_at_k", "uncut_avg_at_k") for end in ("", "_low", "_high")},
        **dict.fromkeys(("num_problems", "num_trajectories", "uncut_problems", "uncut_trajectories"), pl.Int64()),
    }
)


def response_kinds(rows: pl.DataFrame) -> pl.DataFrame:
    """Kinds of the responses of each cell, and its avg@k with and without those that were cut, from rows with `kind`
    and `cut`: in schema RESPONSES, sorted by CELL. Problems of which a seed of training has only cut responses are not
    in the latter. These are the hard ones, so it does not estimate accuracy at a larger budget."""
    return pl.DataFrame([_cell(cell) for cell in rows.partition_by(CELL)], schema=RESPONSES).sort(CELL, nulls_last=True)


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


def thinking_spent(rows: pl.DataFrame) -> pl.DataFrame:
    """Thinking of every cell of a trajectory table by its use; problems with a single sample are left out. ValueError
    on a score that is missing or outside [0, 1].

    A row per ladder and rung. Columns: LADDER, think_budget (null: unlimited), responses (the strategy that sampled the
    rung: the ladder's, or "unconstrained"), num_problems, num_trajectories; needed, overthinking, futile in tokens per
    trajectory; starved, the share of trajectories; solved_within, the share of problems; and the 95 % interval of each,
    as <name>_low and <name>_high. Sorted by LADDER and budget.

    Many problems waste nothing and a few all of a thought, so tokens are taken as a share of the longest thought on the
    rung, with the interval of a share (`mean_score`): where no problem wastes any, one of those not seen yet may.
    """
    rungs = _rungs(rows)
    best, here = pl.col("sufficient_budget"), pl.col("rung")
    needed = pl.min_horizontal("think_tokens", best)
    cut = forced_close() | (pl.col("think_finish") == ThinkFinish.LENGTH)
    # Another seed of training gives another model, with another b*.
    known = [*LADDER, *seed_keys(rungs), "problem", "half"]
    scores = rungs.group_by([*known, "rung"]).agg(enough=pl.col("score").mean() >= SUFFICIENT).sort("rung")
    from_here_on = pl.col("enough").reverse().cum_min().reverse()
    # Infinite where only unlimited thinking suffices, null where that does not.
    sufficient = scores.group_by(known).agg(sufficient_budget=pl.col("rung").filter(from_here_on).min())
    other = sufficient.with_columns(half=1 - pl.col("half"))
    enough = pl.col("score").mean().over([*known, "rung"]) >= SUFFICIENT
    parts = rungs.join(other, on=known, nulls_equal=True, maintain_order="left").with_columns(
        needed=pl.when(best.is_null()).then(0.0).otherwise(needed),
        overthinking=pl.when(best.is_null()).then(0.0).otherwise(pl.col("think_tokens") - needed),
        futile=pl.when(best.is_null()).then(pl.col("think_tokens")).otherwise(0.0),
        starved=(cut & (here < best)).fill_null(False),
        solved_within=((best <= here) & enough).fill_null(False),
        longest=pl.max_horizontal(1, pl.col("think_tokens").max().over(_RUNG)),
    )
    parts = parts.with_columns(pl.col(_TOKENS) / pl.col("longest"))
    found = []
    cells = problem_table(parts, [*_SPENT, "longest"], _RUNG).partition_by(_RUNG, as_dict=True) if parts.height else {}
    for key, problems in cells.items():
        estimates = [mean_score(problems, name) for name in _SPENT]
        scales = [problems["longest"][0] if name in _TOKENS else 1.0 for name in _SPENT]
        values = [scale * value for scale, one in zip(scales, estimates, strict=True) for value in one[:3]]
        found.append((*key, *values, *estimates[0][3:5]))
    columns = [f"{name}{bound}" for name in _SPENT for bound in ("", "_low", "_high")]
    table = estimates_table(found, {name: rows.schema[name] for name in _RUNG}, columns)
    responses = rungs.group_by(_RUNG).agg(pl.col("responses").first())
    table = table.join(responses, on=_RUNG, how="left", nulls_equal=True, maintain_order="left")
    return table.select(*_RUNG, "responses", "num_problems", "num_trajectories", *columns)


def _rungs(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of every ladder, `rung` its budget in tokens or infinite, `half` that of their samples and `responses`
    the strategy that sampled them; unconstrained rows once on each ladder."""
    check_scores(rows)
    rows = rows.with_columns(responses="strategy")
    limited = rows.filter(pl.col("strategy") != FREE)
    ladders = limited.group_by(LADDER).agg(free=pl.col("think_budget").is_null().any())
    free = rows.filter(pl.col("strategy") == FREE).drop("strategy", "solution_budget")
    added = free.join(ladders.filter(~pl.col("free")).drop("free"), on=["model", "benchmark"])
    rungs = pl.concat([limited, added.select(limited.columns)]).with_columns(
        rung=pl.col("think_budget").cast(pl.Float64).fill_null(math.inf), half=pl.col("sample") % 2
    )
    seeds = seed_keys(rows)
    halves = pl.struct("rung", "half", *seeds).n_unique().over([*LADDER, "problem"])
    return rungs.filter(halves == 2 * pl.struct("rung", *seeds).n_unique().over(LADDER))
