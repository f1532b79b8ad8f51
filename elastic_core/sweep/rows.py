"""From trajectories to graded rows of the table; and a finished table graded once more: a better grader needs no new
tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from elastic_core.data.problems import Problem
from elastic_core.models.special_tokens import Markers
from elastic_core.rewards import Answer, grade_many
from elastic_core.rewards.response import ResponseText, response_texts
from elastic_core.strategies.chat import ChatTrajectory
from elastic_core.sweep.grid import Cell
from elastic_core.sweep.table import Table
from elastic_core.trajectory import SCHEMA, Trajectory

CHANGES = pl.Schema({"before": pl.String(), "after": pl.String(), "rows": pl.UInt32()})
"""How many rows had one status and now have another (or the same)."""

Problems = Mapping[str, Mapping[str, Problem]]
"""Problems by benchmark and id."""


@dataclass(frozen=True)
class Sample:
    """One row to be: a cell's try at a problem."""

    cell: Cell
    problem: Problem
    number: int
    seed: int

    def __str__(self) -> str:
        return f"{self.cell} problem {self.problem.id} sample {self.number}"


class Rows(Protocol):
    """Makes rows of what one model's strategies return."""

    @property
    def markers(self) -> Any:
        """What they are given for markers."""
        ...

    def frame(self, finished: Sequence[tuple[Sample, Any]]) -> pl.DataFrame:
        """Rows of the table's schema, graded together."""
        ...


@dataclass(frozen=True)
class RowBuilder:
    """Decodes and grades the trajectories of one model."""

    tokenizer: Any
    markers: Markers
    model_fingerprint: str
    engine_fingerprint: str

    def frame(self, finished: Sequence[tuple[Sample, Trajectory]]) -> pl.DataFrame:
        """Rows of the table's schema, graded together."""
        samples, trajectories = [sample for sample, _ in finished], [trajectory for _, trajectory in finished]
        texts = response_texts(self.tokenizer, self.markers, trajectories)
        problems, finishes = [sample.problem for sample in samples], [each.think_finish for each in trajectories]
        columns = {
            **_sample_columns(samples),
            **_trajectory_columns(trajectories),
            "thinking": [text.thinking for text in texts],
            "solution": [text.solution for text in texts],
            **_grade_columns(problems, texts, finishes),
            "engine_fingerprint": [self.engine_fingerprint] * len(finished),
            "model_fingerprint": [self.model_fingerprint] * len(finished),
        }
        return pl.DataFrame({name: pl.Series(name, columns[name], dtype) for name, dtype in SCHEMA.items()})


@dataclass(frozen=True)
class ChatRows:
    """Rows of a model that is asked in text: counts are those of the server's usage, and ids are null."""

    model_fingerprint: str
    engine_fingerprint: str
    markers: None = None

    def frame(self, finished: Sequence[tuple[Sample, ChatTrajectory]]) -> pl.DataFrame:
        """As `RowBuilder.frame`."""
        samples, trajectories = [sample for sample, _ in finished], [trajectory for _, trajectory in finished]
        replies, problems = [each.reply for each in trajectories], [sample.problem for sample in samples]
        texts = [ResponseText(reply.thinking, reply.solution) for reply in replies]
        none = [0] * len(finished)
        columns = {
            **_sample_columns(samples),
            "prompt_tokens": [reply.prompt_tokens for reply in replies],
            "think_tokens": [each.think_tokens for each in trajectories],
            "forced_tokens": none,
            "solution_tokens": [each.reply.sampled - each.think_tokens for each in trajectories],
            "navigator_tokens": none,
            "think_finish": [each.think_finish for each in trajectories],
            "solution_finish": [each.solution_finish for each in trajectories],
            "response_ids": [None] * len(finished),
            "forced": [each.forced for each in trajectories],
            "dropped": [[]] * len(finished),
            "turns": [[]] * len(finished),
            "thinking": [text.thinking for text in texts],
            "solution": [text.solution for text in texts],
            **_grade_columns(problems, texts, [each.think_finish for each in trajectories]),
            "engine_fingerprint": [self.engine_fingerprint] * len(finished),
            "model_fingerprint": [self.model_fingerprint] * len(finished),
        }
        return pl.DataFrame({name: pl.Series(name, columns[name], dtype) for name, dtype in SCHEMA.items()})


def _sample_columns(samples: Sequence[Sample]) -> dict[str, list[Any]]:
    return {
        "model": [sample.cell.model for sample in samples],
        "benchmark": [sample.cell.benchmark for sample in samples],
        "problem": [sample.problem.id for sample in samples],
        "sample": [sample.number for sample in samples],
        "strategy": [sample.cell.strategy for sample in samples],
        "think_budget": [sample.cell.budget.think for sample in samples],
        "solution_budget": [sample.cell.budget.solution for sample in samples],
        "seed": [sample.seed for sample in samples],
    }


def _trajectory_columns(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """All tokens as one array: a sweep has millions, too many to count or convert one by one."""
    bounds = _bounds([trajectory.response_ids for trajectory in trajectories])
    begins, ends = bounds[:-1], bounds[1:]
    splits = np.array(
        [
            end if trajectory.solution_start is None else begin + trajectory.solution_start
            for begin, end, trajectory in zip(begins, ends, trajectories, strict=True)
        ],
        np.int64,
    )
    ids = np.fromiter(chain.from_iterable(t.response_ids for t in trajectories), np.uint32, bounds[-1])
    forced = np.frombuffer(b"".join(bytes(t.forced) for t in trajectories), np.bool_)
    forced_before = np.concatenate(([0], np.cumsum(forced)))
    forced_thinking = forced_before[splits] - forced_before[begins]
    forced_solution = forced_before[ends] - forced_before[splits]
    return {
        "prompt_tokens": [len(trajectory.prompt_ids) for trajectory in trajectories],
        "think_tokens": splits - begins - forced_thinking,
        "forced_tokens": forced_thinking + forced_solution,
        "solution_tokens": ends - splits - forced_solution,
        "navigator_tokens": [trajectory.navigator_tokens if trajectory.turns else 0 for trajectory in trajectories],
        "think_finish": [trajectory.think_finish for trajectory in trajectories],
        "solution_finish": [trajectory.solution_finish for trajectory in trajectories],
        "response_ids": pa.LargeListArray.from_arrays(bounds, ids),
        "forced": pa.LargeListArray.from_arrays(bounds, forced),
        "dropped": _dropped([trajectory.dropped for trajectory in trajectories]),
        "turns": _turns([trajectory.turns for trajectory in trajectories]),
    }


def _dropped(pairs: Sequence[tuple[tuple[int, int], ...]]) -> pa.Array:
    at, ids = np.array(list(chain.from_iterable(pairs)), np.uint32).reshape(-1, 2).T
    return pa.LargeListArray.from_arrays(_bounds(pairs), pa.StructArray.from_arrays([at, ids], ["at", "id"]))


def _turns(turns: Sequence[tuple[tuple[int, str], ...]]) -> pa.Array:
    at = pa.array([at for row in turns for at, _ in row], pa.uint32())
    roles = pa.array([role for row in turns for _, role in row], pa.large_string())
    return pa.LargeListArray.from_arrays(_bounds(turns), pa.StructArray.from_arrays([at, roles], ["at", "role"]))


def _bounds(lists: Sequence[Sequence[Any]]) -> np.ndarray:
    """Where each list begins when all are joined, and where the last one ends. Shape (lists + 1,), int64."""
    return np.cumsum([0, *map(len, lists)])


def regrade(
    store: Table,
    problems: Problems,
    on_rows: Callable[[int], None] = lambda rows: None,
    before_change: Callable[[], None] = lambda: None,
) -> pl.DataFrame:
    """Rewrite answer, score and status of every row, shard by shard; texts and tokens stay.

    An interrupted run leaves whole shards, some graded anew and some not; the same call finishes them.

    Args:
        on_rows: called with the number of rows of each shard that is done.
        before_change: called before each shard whose grades change is written, while no sweep writes the table.

    Returns:
        `CHANGES`.

    Raises:
        KeyError: a row of a problem that is not given.
        TableLocked: when a sweep is writing the table.
        GradingFailed: when the grader failed; what was rewritten before stays.
    """
    changes = [pl.DataFrame(schema=CHANGES)]

    def anew(rows: pl.DataFrame) -> pl.DataFrame:
        graded = _graded_anew(rows, problems)
        statuses = pl.DataFrame({"before": rows["grade_status"], "after": graded["grade_status"]})
        changes.append(statuses.group_by("before", "after").agg(pl.len().alias("rows")))
        on_rows(rows.height)
        if not graded.equals(rows):
            before_change()
        return graded

    store.rewrite(anew)
    return pl.concat(changes).group_by("before", "after").agg(pl.col("rows").sum()).sort("before", "after")


def _graded_anew(rows: pl.DataFrame, problems: Problems) -> pl.DataFrame:
    of_rows = [problems[benchmark][problem] for benchmark, problem in rows.select("benchmark", "problem").iter_rows()]
    texts = [ResponseText(*row) for row in rows.select("thinking", "solution").iter_rows()]
    columns = _grade_columns(of_rows, texts, rows["think_finish"])
    return rows.with_columns(pl.Series(name, values, rows.schema[name]) for name, values in columns.items())


def _grade_columns(
    problems: Sequence[Problem], texts: Sequence[ResponseText], think_finishes: Iterable[str]
) -> dict[str, list[Any]]:
    grades = grade_many(
        [
            Answer(problem.grader, text.graded(finish), problem.truth)
            for problem, text, finish in zip(problems, texts, think_finishes, strict=True)
        ]
    )
    return {
        "answer": [graded.answer for graded in grades],
        "score": [graded.score for graded in grades],
        "grade_status": [graded.status for graded in grades],
    }
