"""Our own correct trajectories as fine-tuning data in the alpaca form, as ReasonFlux-F1 was made from those of Zero.

A conversation of navigator and solver becomes one thought: their replies, without the requests that led them. The model
learns to think so by itself, from the bare question.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from elastic_core.errors import UserError
from elastic_core.files import write_text
from elastic_core.reasonflux.chat_templates import ChatTemplate
from elastic_core.rewards.grade import THINK_END, GradeStatus

_BETWEEN_REPLIES = "\n\n"
COLUMNS = ("benchmark", "problem", "strategy", "grade_status", "thinking", "solution")
"""Of the trajectory table."""


def alpaca_rows(
    rows: pl.DataFrame, questions: Mapping[tuple[str, str], str], template: ChatTemplate, strategy: str
) -> list[dict[str, str]]:
    """An alpaca row for every distinct correct response.

    Args:
        rows: `COLUMNS` of a trajectory table.
        questions: the whole prompt of each (benchmark, problem).
        template: of the model that wrote them, and is to be fine-tuned.

    Returns:
        instruction (the question), input (empty) and output (thought and solution).

    Raises:
        UserError: when no row is correct.
    """
    correct = rows.filter(
        pl.col("strategy") == strategy,
        pl.col("grade_status") == GradeStatus.CORRECT.value,
        pl.col("solution").is_not_null(),
    )
    if correct.is_empty():
        found = ", ".join(sorted(rows["strategy"].unique())) or "none"
        raise UserError(f"no correct row of strategy {strategy}; the table's strategies are: {found}")
    distinct = correct.unique(["benchmark", "problem", "thinking", "solution"], keep="first", maintain_order=True)
    return [
        {
            "instruction": questions[benchmark, problem],
            "input": "",
            "output": response(thinking, solution, template),
        }
        for benchmark, problem, thinking, solution in distinct.select(
            "benchmark", "problem", "thinking", "solution"
        ).iter_rows()
    ]


def response(thinking: str, solution: str, template: ChatTemplate) -> str:
    """What the model should have written without anybody's requests.

    Args:
        thinking: of a row: a thought, or a conversation in the template's markers, each of whose replies follows a
            thought that was closed at once.
    """
    turns = [turn.rpartition(THINK_END)[2].strip() for turn in thinking.split(template.end) if THINK_END in turn]
    if not turns:
        return f"{template.opening}{thinking.removeprefix(template.opening)}{THINK_END}{solution}"
    return f"{template.opening}{_BETWEEN_REPLIES.join(filter(None, turns))}{template.closing}{solution.strip()}"


def write_alpaca(rows: list[dict[str, str]], file: Path) -> None:
    """A JSON list."""
    write_text(file, json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
