"""From trajectories to graded rows of the table."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from elastic_core.data.problems import Problem
from elastic_core.markers import Markers
from elastic_core.rewards import Answer, Grade, grade_many
from elastic_core.rewards.response import ResponseText, response_text
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
        texts = [response_text(self.tokenizer, self.markers, trajectory) for _, trajectory in finished]
        grades = grade_many(
            [
                Answer(sample.problem.grader, text.graded, sample.problem.truth)
                for (sample, _), text in zip(finished, texts, strict=True)
            ]
        )
        rows = [
            self._row(sample, trajectory, text, graded)
            for (sample, trajectory), text, graded in zip(finished, texts, grades, strict=True)
        ]
        return pl.DataFrame(rows, schema=SCHEMA)

    def _row(self, sample: Sample, trajectory: Trajectory, text: ResponseText, graded: Grade) -> dict[str, Any]:
        cell, problem = sample.cell, sample.problem
        return {
            "model": cell.model,
            "benchmark": cell.benchmark,
            "problem": problem.id,
            "sample": sample.number,
            "strategy": cell.strategy,
            "think_budget": cell.budget.think,
            "solution_budget": cell.budget.solution,
            "prompt_tokens": len(trajectory.prompt_ids),
            "think_tokens": trajectory.think_tokens,
            "forced_tokens": trajectory.forced_tokens,
            "solution_tokens": trajectory.solution_tokens,
            "think_finish": trajectory.think_finish,
            "solution_finish": trajectory.solution_finish,
            "answer": graded.answer,
            "score": graded.score,
            "grade_status": graded.status,
            "thinking": text.thinking,
            "solution": text.solution,
            "response_ids": trajectory.response_ids,
            "forced": trajectory.forced,
            "seed": sample.seed,
            "engine_fingerprint": self.engine_fingerprint,
            "model_fingerprint": self.model_fingerprint,
        }


def sample_seed(seed: int, benchmark: str, problem: str, number: int) -> int:
    """The seed of a sample from the sweep's: the same in every cell, so that cells of one sample draw the same thought
    and their differences are paired. Non-negative, below 2**63."""
    digest = hashlib.blake2b(f"{seed}\0{benchmark}\0{problem}\0{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
