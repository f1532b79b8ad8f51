"""Right answers from real data sets, the same answers in another notation, and wrong ones that are nearly right."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import polars as pl

from elastic_core.data.clean import clean_batches, file_batches
from elastic_core.data.dataset import GitHub
from elastic_core.data.registry import REGISTRY
from elastic_core.rewards.truth import MathTruth
from tests.upstream import UPSTREAM

DATASETS = ("aime-2024", "aime-1983-2023", "amc", "math500", "minerva", "aime-2025")

_INTEGER = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"-?[0-9]*\.[0-9]+")
_FRACTION = re.compile(r"(-?)\\d?frac\{([0-9]+)\}\{([0-9]+)\}")
_TUPLE = re.compile(r"(\\left)?\(([^()\[\]]+),([^()\[\],]+)(\\right)?\)")
_WORD = re.compile(r"\\text\{\(?([A-Za-z]+)\)?\}")


def real_truths() -> list[str]:
    """Every encoded truth of the mathematical data sets whose files are at hand, as the registry's mappings make it."""
    return [truth for name in DATASETS for truth in _rows(name)["truth"]]


def boxed(answer: str) -> str:
    return f"so it is</think>The answer is $\\boxed{{{answer}}}$."


def other_notation(gold: str, draw: random.Random) -> str:
    """The same answer as a model might write it."""
    if _INTEGER.fullmatch(gold):
        spellings = [f" {gold} ", f"x={gold}", f"{gold}.0", f"\\text{{{gold}}}", f"\\frac{{{2 * int(gold)}}}{{2}}"]
        return draw.choice([*spellings, f"{int(gold):,}", f"{gold}\\text{{ units}}", f"({gold})"])
    if match := _FRACTION.fullmatch(gold):
        sign, over, under = match[1], int(match[2]), int(match[3])
        return draw.choice([f"{sign}{over}/{under}", f"{sign}\\dfrac{{{2 * over}}}{{{2 * under}}}"])
    if _DECIMAL.fullmatch(gold):
        return gold + "0"
    if _is_expression(gold):
        spaced = gold.replace("\\frac", "\\dfrac").replace("+", " + ")
        return draw.choice([spaced, spaced, f"\\frac{{2({gold})}}{{2}}", f"0+{gold}"])
    return draw.choice([f"${gold}$", gold.replace("\\frac", "\\dfrac").replace(",", ", "), f"{{{gold}}}"])


def wrong_answers(gold: str) -> Iterator[tuple[str, str]]:
    """Answers that are wrong whatever the question, each with how it came about."""
    if re.search(r"\\text|\\mbox|\\circ|\\\$|_", gold) is None:
        yield from _wrong_values(gold)
    if match := re.fullmatch(r"(.*[0-9}])(?:\^\\circ|\\text\{ ?degrees\}|\\mbox\{.*\}.*|\\text\{ cents\})", gold):
        yield "other unit", match[1] + r"\text{ kg}"
    if match := re.fullmatch(r"([0-9]+)_\{?([0-9])\}?", gold):
        yield "other base", f"{match[1]}_{int(match[2]) + 1}"
        yield "digit in base", f"1{gold}"
    if match := _WORD.fullmatch(gold):
        yield "other word", r"\text{none}" if len(match[1]) > 1 else chr(ord("A") + (ord(match[1]) - ord("A") + 1) % 5)
    if re.fullmatch(r"(\\left)?[\[(].*\\infty.*[\])]", gold) and "cup" not in gold:
        yield "other end", gold.replace("(", "[") if "(" in gold and "(-\\infty" not in gold else gold.replace("]", ")")


def _wrong_values(gold: str) -> Iterator[tuple[str, str]]:
    if _INTEGER.fullmatch(gold):
        value = int(gold)
        yield from (("one more", str(value + 1)), ("one less", str(value - 1)), ("ten times and one", f"{gold}1"))
        yield "first digit", re.sub("[0-9]", lambda digit: str((int(digit[0]) + 1) % 10), gold, count=1)
        if value:
            yield from (("sign", str(-value)), ("ten times", f"{gold}0"), ("in thousands", f"{value:,},000"))
        if abs(value) > 1:
            yield from (("reciprocal", f"\\frac{{1}}{{{gold}}}"), ("tuple", f"({gold}, {gold})"))
    elif match := _FRACTION.fullmatch(gold):
        sign, over, under = match[1], int(match[2]), int(match[3])
        yield "sign", f"{'' if sign else '-'}\\frac{{{over}}}{{{under}}}"
        yield "one more above", f"{sign}\\frac{{{over + 1}}}{{{under}}}"
        yield "one more below", f"{sign}\\frac{{{over}}}{{{under + 1}}}"
        if over != under:
            yield "reciprocal", f"{sign}\\frac{{{under}}}{{{over}}}"
    elif _DECIMAL.fullmatch(gold):
        yield from (("last digit", gold[:-1] + str((int(gold[-1]) + 1) % 10)), ("one digit more", f"{gold}1"))
        yield "sign", gold[1:] if gold.startswith("-") else f"-{gold}"
    elif match := _TUPLE.fullmatch(gold):
        parts = [part.strip() for part in f"{match[2]},{match[3]}".split(",")]
        if parts[0] != parts[-1]:
            yield "swapped", f"({','.join([parts[-1], *parts[1:-1], parts[0]])})"
        yield "one more part", f"({','.join([*parts, '1'])})"
        if "infty" not in gold:
            yield "one part changed", f"({','.join(['1+' + parts[0], *parts[1:]])})"
    elif _is_expression(gold):
        yield from (("plus one", f"{gold}+1"), ("sign", f"-({gold})"), ("twice", f"2({gold})"))
        yield "square", f"({gold})^2+7"
    elif re.fullmatch(r"[-0-9]+(, ?[-0-9]+)+", gold):
        yield from (("one part missing", gold.rpartition(",")[0]), ("one part more", f"{gold}, 99"))


def _is_expression(gold: str) -> bool:
    """Neither an equation nor a list, a set, an interval, a matrix, a word or a number with a unit."""
    return (
        re.search(r"[=,]|\\text|\\mbox|\\circ|\\begin|\\in\b|\\pm|\\\{|\\\$|_|\\cup|prime|[A-Z]{2}| Hz", gold) is None
    )


def _rows(name: str) -> pl.DataFrame:
    entry = REGISTRY[name]
    assert isinstance(entry.source, GitHub)
    files = [UPSTREAM / entry.source.repository / file.path for file in entry.files]
    return pl.concat(clean_batches(entry, file_batches(entry, files)))


def accepted_answers() -> list[tuple[str, str]]:
    """Each accepted answer with the truth that accepts it."""
    return [(answer, truth) for truth in real_truths() for answer in MathTruth.decode(truth).answers]
