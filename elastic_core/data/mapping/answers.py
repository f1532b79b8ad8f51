"""Problems that have an answer, mathematics and multiple choice: from upstream's answers, in whatever shape they come,
to a normal one."""

from __future__ import annotations

import hashlib
import random

import polars as pl

from elastic_core.data.dataset import ROW, Row, bad_rows, each_row, reads
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
@each_row("id", "question", "truth")
def minerva(row: Row) -> Row:
    """Answers are lists of accepted variants, any of which counts."""
    name = None if row["idx"] is None else str(row["idx"])
    return {"id": name, "question": row["problem"], "truth": MathTruth(_answers(row)).encode()}


@reads("problem", "id", "unit", "error", answer=pl.List(pl.String()), is_multiple_answer=pl.Boolean())
@each_row("id", "question", "truth")
def olympiad(row: Row) -> Row:
    """OlympiadBench: one answer, or several that are all wanted; some with a tolerance and a unit."""
    answers = tuple(answer.removeprefix("$").removesuffix("$").strip() for answer in _answers(row))
    if row["is_multiple_answer"]:
        answers = tuple(part for answer in answers for part in split_answers(answer))
    truth = MathTruth(
        answers,
        match="all" if row["is_multiple_answer"] else "any",
        tolerance=_tolerance(row["error"]),
        unit=row["unit"] or None,
    )
    return {"id": row["id"], "question": row["problem"], "truth": truth.encode()}


@reads(*_GPQA)
@each_row("id", "question", "truth")
def gpqa(row: Row) -> Row:
    """The question followed by its choices, "A) …" to "D) …"; the truth is the right one's letter."""
    for name in _GPQA:
        if not (row[name] or "").strip():
            raise ValueError(f"{name} is missing or empty; expected text")
    question, right = row["Question"].strip(), row["Correct Answer"].strip()
    choices = [right, *(row[name].strip() for name in _WRONG)]
    if choices.count(right) > 1:
        raise ValueError(f"the right answer {right[:60]!r} is also among the wrong ones")
    order = shuffled(question, choices)
    listed = "\n".join(f"{letter}) {choice}" for letter, choice in zip(LETTERS, order, strict=True))
    return {"id": row["Record ID"], "question": f"{question}\n\n{listed}", "truth": LETTERS[order.index(right)]}


def shuffled(question: str, choices: list[str]) -> list[str]:
    """Choices in an order that depends on the question alone, so that it is the same in every run and every subset."""
    seed = int.from_bytes(hashlib.sha256(question.encode()).digest()[:8], "big")
    return random.Random(seed).sample(choices, len(choices))


def _answers(row: Row) -> tuple[str, ...]:
    found = tuple(dict.fromkeys((text or "").strip() for text in row["answer"] or ()))
    if not found or not all(found):
        raise ValueError(f"answer {row['answer']}; expected a list of accepted answers")
    return found


def _tolerance(error: str | None) -> float | None:
    """Several answers may each have a tolerance; as they come in any order, the largest serves all."""
    if not (error or "").strip():
        return None
    try:
        return max(float(part) for part in str(error).split(","))
    except ValueError:
        raise ValueError(f"error {error!r}; expected a tolerance such as 1e-3") from None
