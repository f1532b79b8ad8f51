"""Multiple choice."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import polars as pl

from elastic_core.data.dataset import ROW, BadRow
from elastic_core.rewards.choice import LETTERS

_WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
GPQA = {name: pl.String() for name in ("Record ID", "Question", "Correct Answer", *_WRONG)}


def gpqa(raw: pl.DataFrame) -> pl.DataFrame:
    """The question followed by its choices, "A) …" to "D) …"; the truth is the right one's letter."""
    rows = [_choices(row) for row in raw.iter_rows(named=True)]
    return pl.DataFrame(rows, schema={ROW: pl.UInt32, "id": pl.String, "question": pl.String, "truth": pl.String})


def shuffled(question: str, choices: list[str]) -> list[str]:
    """Choices in an order that depends on the question alone, so that it is the same in every run and every subset."""
    seed = int.from_bytes(hashlib.sha256(question.encode()).digest()[:8], "big")
    return random.Random(seed).sample(choices, len(choices))


def _choices(row: dict[str, Any]) -> dict[str, Any]:
    for name in GPQA:
        if not (row[name] or "").strip():
            raise BadRow(row[ROW], f"{name} is missing or empty; expected text")
    question, right = row["Question"].strip(), row["Correct Answer"].strip()
    choices = [right, *(row[name].strip() for name in _WRONG)]
    if choices.count(right) > 1:
        raise BadRow(row[ROW], f"the right answer {right[:60]!r} is also among the wrong ones")
    order = shuffled(question, choices)
    listed = "\n".join(f"{letter}) {choice}" for letter, choice in zip(LETTERS, order, strict=True))
    return {
        ROW: row[ROW],
        "id": row["Record ID"],
        "question": f"{question}\n\n{listed}",
        "truth": LETTERS[order.index(right)],
    }
