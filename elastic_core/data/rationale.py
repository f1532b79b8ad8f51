r"""GSM8K's form of an answer: a rationale, and in its last line `#### N`.

The rationale may hold calculator marks, `2+2=<<2+2=4>>4`, which are no part of what a person would write.
"""

from __future__ import annotations

import polars as pl

from elastic_core.data.dataset import ROW, bad_rows

_FORM = r"(?s)^(?:(.*)\n)?[ \t]*####[ \t]*([^\n]*)$"
_MARKS = r"<<[^<>]*>>"
_THOUSANDS = r"^[-+]?\$?\d{1,3}(?:,\d{3})+(?:\.\d+)?$"


def is_rationale(answer: str | None) -> bool:
    """Whether an answer has the form."""
    return answer is not None and bool(pl.Series([answer]).str.strip_chars().str.contains(_FORM).item())


def require_rationales(rows: pl.DataFrame, answer: str, expected: bool) -> None:
    """Hold the column `answer` to one form in every row: this one, or any but this.

    Raises:
        BadRow: naming the first row that is otherwise.
    """
    fits = pl.col(answer).str.strip_chars().str.contains(_FORM)
    if expected:
        bad_rows(rows, ~fits, f"{answer}: no last line `#### N`, which the first row has; expected it in every row")
    else:
        bad_rows(rows, fits, f"{answer}: a last line `#### N`, which the first row lacks; expected it in every row")


def truth_of(answer: str) -> pl.Expr:
    """What the last line gives, a number without commas between its thousands."""
    given = pl.col(answer).str.strip_chars().str.extract(_FORM, 2).str.strip_chars()
    return pl.when(given.str.contains(_THOUSANDS)).then(given.str.replace_all(",", "")).otherwise(given)


def conversation(question: str, answer: str) -> pl.Expr:
    r"""The question, and as response the rationale in think tags and then `The answer is \boxed{N}.`"""
    rationale = pl.col(answer).str.strip_chars().str.extract(_FORM, 1).str.replace_all(_MARKS, "").str.strip_chars()
    response = pl.concat_str(
        pl.lit("<think>\n"), rationale, pl.lit("\n</think>\n\nThe answer is \\boxed{"), truth_of(answer), pl.lit("}.")
    )
    return pl.concat_list(
        pl.struct(role=pl.lit("user"), content=pl.col(question).str.strip_chars()),
        pl.struct(role=pl.lit("assistant"), content=response),
    )


def require_thoughts(rows: pl.DataFrame, answer: str) -> None:
    """Raises:
    BadRow: naming the first row with nothing before its last line.
    """
    rationale = pl.col(answer).str.strip_chars().str.extract(_FORM, 1).fill_null("").str.strip_chars()
    bad_rows(rows.select(ROW, answer), rationale == "", f"{answer}: nothing before `#### N`; expected a rationale")
