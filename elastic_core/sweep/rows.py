"""From trajectories to graded rows of the table."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from elastic_core.data.problems import Problem
from elastic_core.markers import Markers
from elastic_core.rewards import grade
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
        """Rows of the table's schema."""
        return pl.DataFrame([self.row(sample, trajectory) for sample, trajectory in finished], schema=SCHEMA)

    def row(self, sample: Sample, trajectory: Trajectory) -> dict[str, Any]:
        """One row. Its `thinking` and `solution` are the text before and after think-end; solution is null when none
        was begun."""
        cell, problem = sample.cell, sample.problem
        thinking, solution = self.texts(trajectory)
        response = thinking if solution is None else thinking + self._decode((self.markers.think_end,)) + solution
        graded = grade(problem.grader, response, problem.truth)
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
            "thinking": thinking,
            "solution": solution,
            "response_ids": trajectory.response_ids,
            "forced": trajectory.forced,
            "seed": sample.seed,
            "engine_fingerprint": self.engine_fingerprint,
            "model_fingerprint": self.model_fingerprint,
        }

    def texts(self, trajectory: Trajectory) -> tuple[str, str | None]:
        """Thinking and solution as text, special tokens included, without think-end and a last end-of-text."""
        ids, start = trajectory.response_ids, trajectory.solution_start
        if ids and ids[-1] in self.markers.end_of_text:
            ids = ids[:-1]
        if start is None:
            return self._decode(ids), None
        # From think-end on, then without its text: some tokenizers drop the space before the first token they decode.
        marker = self._decode((self.markers.think_end,))
        return self._decode(ids[: start - 1]), self._decode(ids[start - 1 :]).removeprefix(marker)

    def _decode(self, ids: tuple[int, ...]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def sample_seed(seed: int, benchmark: str, problem: str, number: int) -> int:
    """The seed of a sample from the sweep's: the same in every cell, so that cells of one sample draw the same thought
    and their differences are paired. Non-negative, below 2**63."""
    digest = hashlib.blake2b(f"{seed}\0{benchmark}\0{problem}\0{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
