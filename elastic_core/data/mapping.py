"""Mappings of raw rows to clean ones: problems that have an answer, and rows that are looked up or imitated rather than
solved (thought templates, ratings, conversations). Programs are in `mapping_code`."""

from __future__ import annotations

import hashlib
import random
from functools import partial

import orjson
import polars as pl

from elastic_core.data.dataset import CONVERSATIONS, ROW, BadRow, Mapper, Row, bad_rows, each_row, reads
from elastic_core.rewards.truth import LETTERS, MathTruth, split_answers

_WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_GPQA = ("Record ID", "Question", "Correct Answer", *_WRONG)
_AIME_RANGE = "answer {answer}; expected an integer from 0 to 999"
TEMPLATES = pl.Schema(
    {ROW: pl.UInt32, "id": pl.String, "chapter": pl.String, "section": pl.String, "name": pl.String, "json": pl.String}
)
ALPACA = ("instruction", "input", "output", "system")  # `input` and `system` are often empty or missing


@reads("problem", "answer")
def plain(raw: pl.DataFrame) -> pl.DataFrame:
    """Answers that are text already."""
    return raw.select(ROW, question="problem", truth=pl.col("answer").str.strip_chars())


@reads()
def arithmetic(raw: pl.DataFrame) -> pl.DataFrame:
    """The miniature's problems."""
    return raw.select(ROW, question="question", truth="answer")


@reads("problem", "answer", "unique_id")
def math500(raw: pl.DataFrame) -> pl.DataFrame:
    return raw.select(ROW, id="unique_id", question="problem", truth=pl.col("answer").str.strip_chars())


@reads("problem", answer=pl.Float64())
def number(raw: pl.DataFrame) -> pl.DataFrame:
    """Answers that are floats: 142.0 is 142, and 0.5 stays 0.5."""
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


@reads("problem", "answer", year=pl.Int64(), aime_number=pl.Int64(), problem_number=pl.Int64())
def aime_of_late(raw: pl.DataFrame) -> pl.DataFrame:
    """Contests of `aime` from 2022 on: enough problems to certify a difference of a few points."""
    return aime(raw.filter(pl.col("year") >= 2022))


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


@partial(Mapper, None)
def template_library(raw: pl.DataFrame) -> pl.DataFrame:
    """ReasonFlux's {chapter: {section: [template]}} as one row per template, its fields (irregular) as JSON.

    The id is chapter.section.position, each counted from 1: names repeat within a section.
    """
    rows = []
    for row, chapter, text in raw.select(ROW, "key", "json").iter_rows():
        sections = orjson.loads(text)
        if not isinstance(sections, dict) or not all(isinstance(templates, list) for templates in sections.values()):
            raise BadRow(row, f"chapter {chapter!r}; expected an object of sections, each a list of templates")
        for number, (section, templates) in enumerate(sections.items(), 1):
            for position, template in enumerate(templates, 1):
                name = template.get("template_name") if isinstance(template, dict) else None
                if not isinstance(name, str) or not name.strip():
                    where = f"{chapter} / {section}, template {position}"
                    raise BadRow(row, f"{where}: no template_name; expected text")
                content = orjson.dumps(template).decode()
                rows.append((row, f"{row}.{number}.{position}", chapter, section, name.strip(), content))
    return pl.DataFrame(rows, schema=TEMPLATES, orient="row")


@partial(Mapper, None)
def ids(raw: pl.DataFrame) -> pl.DataFrame:
    """A JSON list of texts as column id."""
    rows = raw.select(ROW, id=pl.col("json").str.json_decode(pl.String))
    bad_rows(rows, pl.col("id").is_null(), "null; expected an id")
    return rows


@partial(Mapper, None)
def ratings(raw: pl.DataFrame) -> pl.DataFrame:
    """Codeforces' {rating: number of users} as columns rating and users."""
    integer = {"rating": "key", "users": "json"}
    rows = raw.select(ROW, **{name: pl.col(column).cast(pl.Int64, strict=False) for name, column in integer.items()})
    bad_rows(rows, pl.any_horizontal(pl.all().is_null()), "rating {rating}, users {users}; expected two integers")
    return rows


@reads(*ALPACA)
def alpaca(raw: pl.DataFrame) -> pl.DataFrame:
    """instruction, input and output as a conversation of two messages, or three where `system` holds a prompt."""
    for name in ("instruction", "output"):
        bad_rows(raw, pl.col(name).str.strip_chars().fill_null("") == "", f"{name} is missing or empty; expected text")
    instruction = pl.when(pl.col("input").fill_null("") == "").then("instruction")
    user = instruction.otherwise(pl.format("{}\n{}", "instruction", pl.col("input").fill_null("")))
    messages = pl.concat_list(
        pl.struct(role=pl.lit("user"), content=user), pl.struct(role=pl.lit("assistant"), content="output")
    )
    if "system" in raw.columns:
        system = pl.struct(role=pl.lit("system"), content=pl.col("system").fill_null(""))
        is_given = pl.col("system").fill_null("").str.strip_chars() != ""
        messages = pl.when(is_given).then(pl.concat_list(system, messages)).otherwise(messages)
    return raw.select(pl.col(ROW).cast(pl.String).alias("id"), messages.alias("messages"), ROW).cast(CONVERSATIONS)
