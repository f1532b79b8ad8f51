"""From trajectories to graded rows of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from elastic_core.data.problems import Problem
from elastic_core.markers import Markers
from elastic_core.rewards import Answer, grade_many
from elastic_core.rewards.response import response_texts
from elastic_core.sweep.grid import Cell
from elastic_core.trajectory import SCHEMA, Trajectory


@dataclass(frozen=True)
class Sample:
    """One row to be: a cell's try at a problem."""

    cell: Cell
    problem: Problem
    number: int
    seed: int

    def __str__(self) -> str:
        return f"{self.cell} problem {self.problem.id} sample {self.number}"


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
        grades = grade_many(
            [
                Answer(sample.problem.grader, text.graded(trajectory.think_finish), sample.problem.truth)
                for sample, text, trajectory in zip(samples, texts, trajectories, strict=True)
            ]
        )
        columns = {
            **_sample_columns(samples),
            **_trajectory_columns(trajectories),
            "thinking": [text.thinking for text in texts],
            "solution": [text.solution for text in texts],
            "answer": [graded.answer for graded in grades],
            "score": [graded.score for graded in grades],
            "grade_status": [graded.status for graded in grades],
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
