"""Answers that try to hang a grader, to crash it, to run code in it, or to be taken for right without being right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elastic_core.rewards.truth import MathTruth


class Hostile(NamedTuple):
    """`answer` is in no box yet; `truth` is not what it says."""

    answer: str
    truth: str = "46"

    @property
    def response(self) -> str:
        return f"46</think>So the answer is \\boxed{{{self.answer}}}"


_LISTED: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text())
"""Answers by what they try."""


def hostile_answers(canary: str) -> Iterator[Hostile]:
    """All of them; `canary` is a path that code in an answer would create."""
    for text in _LISTED["code"]:
        yield Hostile(text.replace("{canary}", canary).replace("{{", "{").replace("}}", "}"))
    yield from (Hostile(text) for kind in ("towers", "factorials", "unbalanced", "texts") for text in _LISTED[kind])
    yield from _large()
    yield from (Hostile(answer, r"\frac{e^{2it}}{2+2i} + Ce^{-2t}") for answer in _LISTED["towers"])
    yield from (Hostile(answer, r"(-\infty, 2) \cup (3, \infty)") for answer in _LISTED["factorials"])
    several = MathTruth(tuple(map(str, range(12))), "all", 0.5).encode()
    yield from (Hostile(",".join([part] * 12), several) for part in ("\\sqrt{9^{9^9}}", "x", "0.4", "100000!"))
    yield from (Hostile(answer, json.dumps(several)) for answer in ("46", "\\{" * 50))


def _large() -> Iterator[Hostile]:
    """Much of something, below and above the length that is parsed."""
    for times in (30, 300, 10_000):
        yield from (
            Hostile("(" * times + "45" + ")" * times),
            Hostile("{" * times + "45" + "}" * times),
            Hostile("[" * times + "1,2" + "]" * times),
            Hostile("\\{" * times + "45" + "\\}" * times),
            Hostile("\\frac{1}{" * times + "2" + "}" * times),
            Hostile("\\frac{" * times + "45" + "}{1}" * times),
            Hostile("\\sqrt{" * times + "2" + "}" * times),
            Hostile("\\frac" * times),
            Hostile("\\left(" * times),
            Hostile("1+" * times + "1"),
            Hostile("-" * times + "46-1"),
            Hostile("2^{" * times + "2" + "}" * times),
            Hostile("x_{" * times + "1" + "}" * times),
            Hostile("\\text{" * times + "a" + "}" * times),
            Hostile("\\boxed{" * times + "45" + "}" * times),
            Hostile("$" * (2 * times) + "45"),
            Hostile("1," * times + "1"),
            Hostile("x," * times + "x", "y," * times + "y"),
            Hostile(" " * times + "45" + " " * times),
            Hostile("\t\n" * times),
            Hostile("\\," * times + "45"),
            Hostile("~" * times + "45"),
            Hostile("9" * times),
            Hostile("0" * times + "45"),
            Hostile("0." + "0" * times + "46"),
            Hostile("46." + "0" * times + "1"),
            Hostile("1" * times + "/" + "2" * times),
            Hostile("\\frac{" + "1" * times + "}{" + "2" * times + "}"),
            Hostile("1,000" + ",000" * times),
            Hostile("!" * times),
            Hostile("5" + "!" * times),
            Hostile("\\pm " * times + "46"),
            Hostile("a" * times),
            Hostile("\\" * times),
            Hostile("|" * times + "46"),
            Hostile("x=" * times + "46-1"),
            Hostile("4\u0301" * times),
            Hostile("\x00" * times),
            Hostile("\\begin{pmatrix}" + "1&" * times + "1\\end{pmatrix}"),
            Hostile("\\begin{pmatrix}" * times + "1" + "\\end{pmatrix}" * times),
            Hostile("and " * times + "45"),
            Hostile("5" + "\\text{ m}" * times + "x"),
            Hostile("5" + " m/s" * times),
        )
    yield from (Hostile("9" * 1_000_000), Hostile("4" + "6" * 99_999), Hostile("x" * 100_000), Hostile("46 " * 33_000))
