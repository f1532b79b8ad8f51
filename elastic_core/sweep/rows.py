"""Graded rows of the table from trajectories (`RowBuilder`, `ChatRows`), and a table graded again (`regrade`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from elastic_core.data.problems import Problem
from elastic_core.rewards import Answer, grade_many, on_all_cores
from elastic_core.rewards.as_published import grade_as_published
from elastic_core.rewards.response import ResponseText, response_texts
from elastic_core.strategies.chat import ChatTrajectory
from elastic_core.sweep.grid import Cell, rows_of
from elastic_core.sweep.table import Table
from elastic_core.trajectory import SCHEMA

CHANGES = pl.Schema({"before": pl.String(), "after": pl.String(), "rows": pl.UInt32()})
"""How many rows had one status before regrading and have another, or the same, after it. Of rows graded as published:
how many are "right" or "wrong" by our grade, `before`, and "right", "wrong" or "not graded" by the published one."""

Problems = Mapping[str, Mapping[str, Problem]]  # Problems by benchmark and id.


@dataclass(frozen=True)
class Sample:
    """A cell's attempt at a problem, which becomes one row."""

    cell: Cell
    problem: Problem
    number: int
    seed: int

    def __str__(self) -> str:
        return f"{self.cell} problem {self.problem.id} sample {self.number}"


@dataclass(frozen=True)
class RowBuilder:
    """Decodes and grades the trajectories of one model, `as_published` too where that is set."""

    tokenizer: Any
    markers: Any
    model_fingerprint: str
    engine_fingerprint: str
    as_published: bool = False

    def texts(self, trajectories: Sequence[Any]) -> Sequence[ResponseText]:
        return response_texts(self.tokenizer, self.markers, trajectories)

    def frame(self, finished: Sequence[tuple[Sample, Any]]) -> pl.DataFrame:
        """Rows of the table's schema, graded together."""
        samples, trajectories = [sample for sample, _ in finished], [trajectory for _, trajectory in finished]
        texts, finishes = self.texts(trajectories), [each.think_finish for each in trajectories]
        problems = [sample.problem for sample in samples]
        columns = {
            "model": [sample.cell.model for sample in samples],
            "benchmark": [sample.cell.benchmark for sample in samples],
            "problem": [sample.problem.id for sample in samples],
            "sample": [sample.number for sample in samples],
            "strategy": [sample.cell.strategy for sample in samples],
            "think_budget": [sample.cell.budget.think for sample in samples],
            "solution_budget": [sample.cell.budget.solution for sample in samples],
            "seed": [sample.seed for sample in samples],
            "think_finish": finishes,
            "solution_finish": [each.solution_finish for each in trajectories],
            **self.columns(trajectories),
            "thinking": [text.thinking for text in texts],
            "solution": [text.solution for text in texts],
            **_grade_columns(problems, texts, finishes),
            "published_score": [None] * len(finished),
            **(_published_column(problems, texts, finishes) if self.as_published else {}),
            "engine_fingerprint": [self.engine_fingerprint] * len(finished),
            "model_fingerprint": [self.model_fingerprint] * len(finished),
        }
        rows = pl.DataFrame({name: pl.Series(name, columns[name], dtype) for name, dtype in SCHEMA.items()})
        return rows.with_columns(pl.when(_ONE_THOUGHT).then("published_score"))

    def columns(self, trajectories: Sequence[Any]) -> dict[str, Any]:
        """All tokens as one array: a sweep has millions, too many to count or convert one by one."""
        bounds = _bounds([each.response_ids for each in trajectories])
        begins, ends = bounds[:-1], bounds[1:]
        starts = [len(t.response_ids) if t.solution_start is None else t.solution_start for t in trajectories]
        splits = begins + np.array(starts, np.int64)
        ids = np.fromiter(chain.from_iterable(t.response_ids for t in trajectories), np.uint32, bounds[-1])
        forced = np.frombuffer(b"".join(bytes(t.forced) for t in trajectories), np.bool_)
        forced_before = np.concatenate(([0], np.cumsum(forced)))
        forced_thinking = forced_before[splits] - forced_before[begins]
        forced_solution = forced_before[ends] - forced_before[splits]
        dropped, turns = [each.dropped for each in trajectories], [each.turns for each in trajectories]
        probes = [[probe._asdict() for probe in each.probes] or None for each in trajectories]
        dropped_at, dropped_ids = np.array(list(chain.from_iterable(dropped)), np.uint32).reshape(-1, 2).T
        turns_at = pa.array([at for row in turns for at, _ in row], pa.uint32())
        roles = pa.array([role for row in turns for _, role in row], pa.large_string())
        return {
            "prompt_tokens": [len(each.prompt_ids) for each in trajectories],
            "think_tokens": splits - begins - forced_thinking,
            "forced_tokens": forced_thinking + forced_solution,
            "solution_tokens": ends - splits - forced_solution,
            "navigator_tokens": [each.navigator_tokens if each.turns else 0 for each in trajectories],
            "response_ids": pa.LargeListArray.from_arrays(bounds, ids),
            "forced": pa.LargeListArray.from_arrays(bounds, forced),
            "dropped": _structs(dropped, at=dropped_at, id=dropped_ids),
            "turns": _structs(turns, at=turns_at, role=roles),
            "probes": probes,
            "solution_logprob": [each.solution_logprob for each in trajectories],
        }


class ChatRows(RowBuilder):
    """Rows of a model behind a chat API: counts are those of the server's usage, and ids are null."""

    def texts(self, trajectories: Sequence[ChatTrajectory]) -> Sequence[ResponseText]:
        return [ResponseText(each.reply.thinking, each.reply.solution) for each in trajectories]

    def columns(self, trajectories: Sequence[ChatTrajectory]) -> dict[str, Any]:
        count = len(trajectories)
        return {
            "prompt_tokens": [each.reply.prompt_tokens for each in trajectories],
            "think_tokens": [each.think_tokens for each in trajectories],
            "solution_tokens": [each.reply.sampled - each.think_tokens for each in trajectories],
            "forced": [each.forced for each in trajectories],
            **dict.fromkeys(("forced_tokens", "navigator_tokens"), [0] * count),
            **dict.fromkeys(("dropped", "turns"), [[]] * count),
            **dict.fromkeys(("response_ids", "probes", "solution_logprob"), [None] * count),
        }


def _structs(lists: Sequence[Sequence[Any]], **fields: Any) -> pa.Array:
    """Lists of structs from fields that are joined over all lists."""
    joined = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    return pa.LargeListArray.from_arrays(_bounds(lists), joined)


def _bounds(lists: Sequence[Sequence[Any]]) -> np.ndarray:
    """Offsets of lists that are joined, and the end of the last one. Shape (lists + 1,), int64."""
    return np.cumsum([0, *map(len, lists)])


_HAS_TEXT = pl.any_horizontal(pl.col("thinking", "solution").is_not_null())
_ONE_THOUGHT = pl.col("turns").list.len().fill_null(0) == 0
"""A conversation of roles is no response of the authors' program, which reads between two think-ends."""


def lacks_published(problems: Problems) -> pl.Expr:
    """Whether a row of a table can be graded as published, and is not."""
    ids = {name: [each.id for each in given.values() if gradable(each)] for name, given in problems.items()}
    return pl.col("published_score").is_null() & _HAS_TEXT & _ONE_THOUGHT & rows_of(ids)


def gradable(problem: Problem) -> bool:
    """Whether the authors grade problems of this kind: they have no choices."""
    return problem.grader in ("math", "code")


def regrade(
    store: Table,
    problems: Problems,
    on_rows: Callable[[int], None] = lambda rows: None,
    before_change: Callable[[], None] = lambda: None,
    *,
    as_published: bool = False,
    only: pl.Expr | None = None,
) -> pl.DataFrame:
    """Rewrite answer, score and status of every row, or that `as_published` alone, shard by shard; all else stays, and
    so do grades of rows without text. Returns `CHANGES`. After an interruption the same call finishes the rest.

    Args:
        on_rows: called with the number of rows of each finished shard.
        before_change: called before a shard with changed grades is written, while no sweep writes the table.
        only: leave shards alone that have no such row; `on_rows` counts these.

    Raises:
        KeyError: on a row of a problem that is not given.
        TableLocked: when a sweep is writing the table.
        GradingFailed: when the grader failed; rewritten shards stay.
    """
    changes, columns_of = [pl.DataFrame(schema=CHANGES)], _published_column if as_published else _grade_columns
    compared = map(_verdict, ("score", "published_score")) if as_published else [pl.col("grade_status")] * 2
    before, after = (each.alias(name) for each, name in zip(compared, ("before", "after"), strict=True))

    def anew(rows: pl.DataFrame) -> pl.DataFrame:
        count = rows.height if only is None else rows.filter(only).height
        if not count:
            return rows
        keys = rows.select("benchmark", "problem").iter_rows()
        of_rows = [problems[benchmark][problem] for benchmark, problem in keys]
        texts = [ResponseText(*row) for row in rows.select(pl.col("thinking").fill_null(""), "solution").iter_rows()]
        columns = columns_of(of_rows, texts, rows["think_finish"])
        new = [pl.Series(name, values, rows.schema[name]) for name, values in columns.items()]
        can = _HAS_TEXT & _ONE_THOUGHT if as_published else _HAS_TEXT
        graded = rows.with_columns(pl.when(can).then(each).otherwise(each.name).alias(each.name) for each in new)
        statuses = rows.select(before).hstack(graded.select(after))
        changes.append(statuses.group_by("before", "after").agg(pl.len().alias("rows")))
        on_rows(count)
        if not graded.equals(rows):
            before_change()
        return graded

    store.rewrite(anew)
    return pl.concat(changes).group_by("before", "after").agg(pl.col("rows").sum()).sort("before", "after")


def _verdict(score: str) -> pl.Expr:
    return pl.col(score).replace_strict({1.0: "right", None: "not graded"}, default="wrong")


def _grade_columns(
    problems: Sequence[Problem], texts: Sequence[ResponseText], think_finishes: Iterable[str]
) -> dict[str, list[Any]]:
    given = zip(problems, texts, think_finishes, strict=True)
    grades = grade_many([Answer(each.grader, text.graded(finish), each.truth) for each, text, finish in given])
    return {
        "answer": [graded.answer for graded in grades],
        "score": [graded.score for graded in grades],
        "grade_status": [graded.status for graded in grades],
    }


def _published_column(problems: Sequence[Problem], texts: Sequence[ResponseText], _: Any) -> dict[str, list[Any]]:
    answers = [(each, *text) for each, text in zip(problems, texts, strict=True)]
    return {"published_score": on_all_cores(_published_score, answers)}


def _published_score(problem: Problem, thinking: str, solution: str | None) -> float | None:
    if not gradable(problem):
        return None
    return grade_as_published(problem.grader, problem.benchmark, thinking, solution, problem.truth)
