r"""The rules by which mathematical answers are right: what a careful human marker would do, each with its examples.

docs/data.md has the same rules in words; a rule that changes here changes there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from elastic_core.rewards import Answer, GradeStatus, grade_many
from elastic_core.rewards import math as rewards_math
from elastic_core.rewards.math.pool import Pool


class Rule(NamedTuple):
    """An accepted answer, answers that are right by it, and answers that are wrong."""

    accepted: str
    right: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


RULES: dict[str, tuple[Rule, ...]] = {
    "numbers are equal in value, however they are written": (
        Rule(
            "1234", ("1,234", "1{,}234", r"1\,234", "1 234", "1234.0", r"1.234\cdot 10^3"), ("1, 234", "12,34", "234")
        ),
        Rule("10080", (r"10,\,080", r"10,\!080", r"10\,080"), ("10, 080",)),
        Rule(
            r"\frac{1}{3}",
            (r"0.\overline{3}", r"0.\bar3", r".\overline{33}", "0.333333"),
            ("0.3", "0.33", r"0.\overline{4}"),
        ),
        Rule(r"\frac{6}{5}", (r"\frac{2(\frac65)}{2}", "1.2", r"1\frac15"), (r"\frac56",)),
        Rule(r"\frac{1}{6}", (r"0.1\overline{6}", "1/6"), (r"0.\overline{16}", "0.16")),
        Rule("0.5", ("½", r"\frac12", ".5", r"\frac{4}{8}"), ("¼", "5")),
        Rule(r"\frac{3}{2}", ("1½", r"1\frac12", "1 1/2", "1.5"), (r"11/2",)),
        Rule("10", (r"\binom52", r"\binom{5}{2}", r"\dbinom{5}{2}"), (r"\binom53 + 1", r"\binom{5}{1}")),
        Rule("5", (r"5\ ", " 5 ", "x=5", r"\text{5}", "(5)"), (r"5\pm 1", "-5", "5!")),
    ),
    "a decimal stands for a number that no decimal equals from six significant digits on": (
        Rule(r"\sqrt{2}", ("√2", "1.41421356", r"\frac{2}{\sqrt 2}"), ("1.414", r"\sqrt{3}", "√3")),
        Rule(r"\frac{1}{2}", ("0.5",), ("0.5000001",)),
    ),
    "expressions are equal as mathematics, and names of points and words as they are spelled": (
        Rule("x^2", ("x²", r"x\cdot x"), ("x^3", "x2", "2x")),
        Rule(r"3\sqrt{2}", ("3√2", r"\sqrt{18}", "√18"), ("3+√2",)),
        Rule(r"\frac{1}{2}", (r"\cos 60^\circ", r"\sin(30°)", r"\sin\frac{\pi}{6}"), (r"\cos 60", r"\sin 60^\circ")),
        Rule(r"\sin^2 x+\cos^2 x", ("1",), ("2", r"\sin x")),
        Rule(r"2\sqrt{13}", (r"\sqrt{52}", r"\sqrt{4}\sqrt{13}", r"\frac{26}{\sqrt{13}}"), (r"13\sqrt{2}",)),
        Rule("(a+5)(b+2)", ("ab+2a+5b+10", "(b+2)(a+5)"), ("ab+10",)),
        Rule(r"-8-8\sqrt{3}i", (r"-8(1+i\sqrt{3})", r"-8-8i\sqrt 3"), (r"-8+8i\sqrt 3",)),
        Rule(r"\frac{11+9a}{20}", (r"\frac{11}{20}+\frac{9a}{20}", "0.55+0.45a"), ("0.55+0.45b",)),
        Rule(
            r"\frac{\cos (2 t)}{15}", (r"\frac{1}{15}\cos(2t)", r"\cos(2t)/15", r"0+\frac{\cos(t+t)}{15}"), (r"\cos 2",)
        ),
        Rule(r"18+2\pi", (r"2(\pi+9)", "18+2π"), (r"20\pi", "24.28")),
        Rule("BA", ("BA", r"\text{BA}"), ("AB", "B", "A")),
        Rule("ba", ("ab",), ("a+b",)),
        Rule(r"1 \pm \sqrt{19}", (r"\sqrt{19}+1, -\sqrt{19}+1",), (r"1+\sqrt{19}", r"\pm\sqrt{19}")),
        Rule("2", (), ("2m", "2x")),
        Rule("x", (r"\frac{2x}{2}", "0+x", "√(x²)-|x|+x"), ("X", "f(x)", r"\cos x", "x^3")),
        Rule("e^{-3t}", ("e^{-t}e^{-2t}",), ("e^{-2t}",)),
        Rule("2^{89}-1", ("618970019642690137449562111",), ("618970019642690137449562110", "0")),
        # Equal modulo 46111359278910368495062042946635121401, and so once taken for equal.
        Rule(
            "46", (), ("46111359278910368495062042946635121447", "x(x^{46111359278910368495062042946635121400}-1)+46")
        ),
        Rule("46+x", ("x+46",), ("x+46111359278910368495062042946635121447",)),
    ),
    "equations are equal when one is a multiple of the other, whatever their solutions": (
        Rule(
            "y=2x+1",
            ("y-2x=1", "2x+1=y", "2y=4x+2", "-2x+y-1=0", "2x+1", "y=1+2x"),
            ("y=2x", "x=2y+1", "y+2x=1", "0=0"),
        ),
        Rule("x^2+1=0", ("2x^2+2=0", "x^2=-1"), ("x^2+2=0", "x^4+1=0")),
        Rule("xy=1", (r"y=\frac{1}{x}",), ("xy=2",)),
        Rule("x=5", ("5", "5=x", "x = 5"), ("y=5", "6")),
    ),
    "inequalities are the sets of numbers that meet them": (
        Rule(
            r"(-\infty,2)\cup(3,\infty)",
            (
                r"x<2\text{ or }x>3",
                r"x < 2, x > 3",
                r"x<2 \lor x>3",
                r"3<x\text{ or }2>x",
                r"(3,\infty)\cup(-\infty,2)",
            ),
            (
                r"x<2\text{ and }x>3",
                r"x\leq 2\text{ or }x>3",
                "x<2",
                r"(-\infty,2)\cup[3,\infty)",
                r"(-\infty,2),(3,4)",
            ),
        ),
        Rule(
            "(2,5]",
            (r"2<x\leq 5", r"x\in(2,5]", r"5\geq x>2", r"x>2\text{ and }x\le 5"),
            ("2<x<5", "(2,5)", "2,5", r"5\text{ or }2"),
        ),
        Rule("x>2", (r"(2,\infty)", "2<x", "x > 2"), ("x<2", r"x\geq 2", "t>2", r"[2,\infty)")),
    ),
    "a tuple has an order, a set or a list has none; an interval has its ends": (
        Rule("[1,2]", ("[1, 2]", r"\left[1,2\right]"), ("1,2", "(1,2)", "[1,2)", r"\{1,2\}")),
        Rule("(1,2)", ("(1, 2)", "1,2"), ("2,1", "(2,1)", r"\{1,2\}", "[1,2]")),
        Rule("1,2", ("2, 1", r"\{1,2\}", r"1\text{ or }2", "1 and 2"), ("[1,2]", "1", "1,2,3", "1,1", "12")),
        Rule("1, 234", ("234, 1", "1,234", r"1\text{ and }234"), ("1234", "1.234")),
        Rule(
            r"\begin{pmatrix}1\\2\end{pmatrix}",
            ("(1,2)", r"\begin{bmatrix}1\\2\end{bmatrix}", r"\langle 1,2\rangle"),
            ("(2,1)", r"\begin{pmatrix}1&2\end{pmatrix}", "1,2", "(1,2,3)"),
        ),
        Rule("(1,2)", (r"\begin{pmatrix}1\\2\end{pmatrix}",), (r"\begin{pmatrix}2\\1\end{pmatrix}",)),
        Rule(r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", (), ("(1,2,3,4)",)),
    ),
    "a unit may be left out or repeated, another one is converted, and what is no unit is wrong": (
        Rule(
            "5",
            (r"5\text{ cm}", "5 cm", r"5\text{ ways}", r"5\text{ square units}", r"\$5"),
            (r"5\text{ or 6}", r"5\text{ is wrong}", r"5\text{ million}", r"5\text{ or more}"),
        ),
        Rule(r"5\text{ or }6", ("5, 6", r"6\text{ or 5}"), ("5", "6")),
        Rule(
            r"3\text{ h}",
            (r"180\text{ min}", "3", r"3\text{ hours}", r"10800\text{ s}", r"\frac{1}{8}\text{ day}"),
            (r"3\text{ min}", r"180\text{ s}", "180", r"3\text{ m}"),
        ),
        Rule(
            r"5\text{ m}", (r"500\text{ cm}", r"0.005\text{ km}"), (r"5\text{ cm}", r"500\text{ mm}", r"5\text{ m}^2")
        ),
        Rule(r"36\text{ km/h}", (r"10\text{ m/s}", "36"), (r"36\text{ m/s}", r"10\text{ m}")),
        Rule(r"10\text{ m/s}", (r"10\text{ m s}^{-1}", r"10 \mathrm{~m} \mathrm{~s}^{-1}"), (r"10\text{ m s}",)),
        Rule("12", (r"\text{12 inches}",), (r"\text{12 or 13}",)),
        Rule(r"45^\circ, 60^\circ", ("45, 60", r"60^\circ, 45^\circ"), (r"45^\circ", r"45^\circ, 60\text{ m}")),
        Rule(r"2\pi\text{ m}", (r"200\pi\text{ cm}",), (r"2\pi\text{ cm}",)),
        Rule(r"\$5", (r"500\text{ cents}", r"5\text{ dollars}", "5.00"), (r"5\text{ cents}", "500")),
    ),
    "a per cent sign is a hundredth, or the unit of what was asked": (
        Rule("0.5", (r"50\%",), (r"0.5\%", r"5\%")),
        Rule("50", (r"50\%", r"50 \text{ percent}"), (r"5000\%", r"0.5\%")),
        Rule(r"50\%", ("50", "0.5", r"\frac12", "50%"), ("5", r"0.5\%", r"5000\%")),
        Rule(r"\frac{3}{2}", (r"150\%",), (r"1.5\%",)),
    ),
    "an angle is in degrees, or with \\pi in radians": (
        Rule(
            r"\frac{\pi}{6}",
            (r"30^\circ", r"\frac{\pi}{6}\text{ rad}", r"30\text{ degrees}"),
            (r"\frac{\pi}{6}^\circ", "30", r"60^\circ"),
        ),
        Rule(
            r"30^\circ",
            (r"\frac{\pi}{6}", "30", r"\frac{\pi}{6}\text{ radians}"),
            (r"\frac{\pi}{3}", r"30\text{ rad}", r"30^\circ C 5"),
        ),
        Rule("90", (r"90^\circ", "90"), (r"\frac{\pi}{2}",)),
    ),
}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pool that a busy machine does not hurry."""
    pool = Pool(deadline=60.0)
    monkeypatch.setattr(rewards_math, "shared_pool", lambda: pool)
    yield
    pool.close()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.usefixtures("patient")
def test_answers_are_marked_as_a_careful_human_marks_them(rule: str) -> None:
    cases = [
        (answer, one.accepted, expected)
        for one in RULES[rule]
        for answers, expected in (((one.accepted, *one.right), GradeStatus.CORRECT), (one.wrong, GradeStatus.WRONG))
        for answer in answers
    ]
    grades = grade_many([Answer("math", f"</think>\\boxed{{{answer}}}", accepted) for answer, accepted, _ in cases])
    assert [case for case, graded in zip(cases, grades, strict=True) if graded.status is not case[2]] == []
