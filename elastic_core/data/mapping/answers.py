"""Problems that have an answer, mathematics and multiple choice: from upstream's answers, in whatever shape they come,
to a normal one."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

import polars as pl

from elastic_core.data.dataset import ROW, BadRow, bad_rows, reads
from elastic_core.rewards.extraction import LETTERS
from elastic_core.rewards.truth import MathTruth, split_answers

_WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_GPQA = ("Record ID", "Question", "Correct Answer", *_WRONG)
_AIME_RANGE = "answer {answer}; expected an integer from 0 to 999"


@reads("problem", "answer")
def plain(raw: pl.DataFrame) -> pl.DataFrame:
    """Answers that are text already."""
    return raw.select(ROW, question="problem", truth=pl.col("answer").str.strip_chars())


@reads("problem", "answer", "unique_id")
def math500(raw: pl.DataFrame) -> pl.DataFrame:
    return raw.select(ROW, id="unique_id", question="problem", truth=pl.col("answer").str.strip_chars())


@reads("problem", answer=pl.Float64())
def number(raw: pl.DataFrame) -> pl.DataFrame:
    """Answers that are floats: 142.0 is 142, and 0.5 stays what it is."""
    bad_rows(raw, ~pl.col("answer").is_finite(), "answer {answer}; expected a number")
    whole = pl.col("answer") == pl.col("answer").round()
    text = pl.when(whole).then(pl.col("answer").cast(pl.Int64, strict=False).cast(pl.String))
    return raw.select(ROW, question="problem", truth=text.otherwise(pl.col("answer").cast(pl.String)))


@reads("problem", "answer", year=pl.Int64(), aime_number=pl.Int64(), problem_number=pl.Int64())
def aime(raw: pl.DataFrame) -> pl.DataFrame:
    """Answers are integers from 0 to 999, some written with leading zeros. Problems are called like 2024-II-15."""
    answer = pl.col("answer").str.strip_chars()
    integer = answer.cast(pl.Int64, strict=False)
    bad_rows(raw, answer.is_not_null() & ~integer.is_between(0, 999).fill_null(False), _AIME_RANGE)
    contest = pl.col("aime_number").replace_strict({1: "I", 2: "II"}, default=None)
    bad_rows(raw, contest.is_null(), "aime_number {aime_number}; expected 1 or 2")
    name = pl.format("{}-{}-{}", "year", contest, "problem_number")
    return raw.select(ROW, id=name, question="problem", truth=integer.cast(pl.String))


@reads("problem", "id", answer=pl.Int64())
def aime25(raw: pl.DataFrame) -> pl.DataFrame:
    bad_rows(raw, ~pl.col("answer").is_between(0, 999), _AIME_RANGE)
    return raw.select(ROW, "id", question="problem", truth=pl.col("answer").cast(pl.String))


@reads("problem", answer=pl.List(pl.String()), idx=pl.Int64())
def minerva(raw: pl.DataFrame) -> pl.DataFrame:
    """Answers are lists of accepted variants, any of which counts."""
    truths = [
        MathTruth(_answers(row, answers)).encode()
        for row, answers in zip(raw[ROW], raw["answer"].to_list(), strict=True)
    ]
    return raw.select(
        ROW, id=pl.col("idx").cast(pl.String), question="problem", truth=pl.Series(truths, dtype=pl.String)
    )


@reads("problem", "id", "unit", "error", answer=pl.List(pl.String()), is_multiple_answer=pl.Boolean())
def olympiad(raw: pl.DataFrame) -> pl.DataFrame:
    """OlympiadBench: one answer, or several that are all wanted; some with a tolerance and a unit."""
    truths = [_olympiad_truth(row).encode() for row in raw.iter_rows(named=True)]
    return raw.select(ROW, "id", question="problem", truth=pl.Series(truths, dtype=pl.String))


@reads(*_GPQA)
def gpqa(raw: pl.DataFrame) -> pl.DataFrame:
    """The question followed by its choices, "A) …" to "D) …"; the truth is the right one's letter."""
    rows = [_choices(row) for row in raw.iter_rows(named=True)]
    return pl.DataFrame(rows, schema={ROW: pl.UInt32, "id": pl.String, "question": pl.String, "truth": pl.String})


def shuffled(question: str, choices: list[str]) -> list[str]:
    """Choices in an order that depends on the question alone, so that it is the same in every run and every subset."""
    seed = int.from_bytes(hashlib.sha256(question.encode()).digest()[:8], "big")
    return random.Random(seed).sample(choices, len(choices))


def _answers(row: int, answers: Sequence[str | None] | None) -> tuple[str, ...]:
    found = tuple(dict.fromkeys((text or "").strip() for text in answers or ()))
    if not found or not all(found):
        raise BadRow(row, f"answer {answers}; expected a list of accepted answers")
    return found


def _olympiad_truth(row: dict[str, Any]) -> MathTruth:
    answers = tuple(answer.removeprefix("$").removesuffix("$").strip() for answer in _answers(row[ROW], row["answer"]))
    if row["is_multiple_answer"]:
        answers = tuple(part for answer in answers for part in split_answers(answer))
    return MathTruth(
        answers,
        match="all" if row["is_multiple_answer"] else "any",
        tolerance=_tolerance(row[ROW], row["error"]),
        unit=row["unit"] or None,
    )


def _tolerance(row: int, error: str | None) -> float | None:
    """Several answers may each have a tolerance; as they come in any order, the largest serves all."""
    if not (error or "").strip():
        return None
    try:
        return max(float(part) for part in str(error).split(","))
    except ValueError:
        raise BadRow(row, f"error {error!r}; expected a tolerance such as 1e-3") from None


def _choices(row: dict[str, Any]) -> dict[str, Any]:
    for name in _GPQA:
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
