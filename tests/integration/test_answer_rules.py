r"""The rules by which mathematical answers are right: what a careful human marker would do, each with its examples.

The table of docs/data.md has them in words, each with examples, and here are more of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from elastic_core.rewards import Answer, GradeStatus, grade_many
from elastic_core.rewards import math as rewards_math
from elastic_core.rewards.math import Pool
from tests.documents import REPOSITORY


class Rule(NamedTuple):
    """An accepted answer, answers that are right by it, and answers that are wrong."""

    accepted: str
    right: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


RULES: dict[str, tuple[Rule, ...]] = {
    "Numbers": (
        Rule(
            "1234", ("1,234", "1{,}234", r"1\,234", "1 234", "1234.0", r"1.234\cdot 10^3"), ("1, 234", "12,34", "234")
        ),
        Rule("10080", (r"10,\,080", r"10,\!080", r"10\,080"), ("10, 080",)),
        Rule(
            r"\frac{1}{3}",
            (r"0.\overline{3}", r"0.\bar3", r".\overline{33}"),
            ("0.3", "0.33", "0.333333", r"0.\overline{4}"),
        ),
        Rule(r"\frac{6}{5}", (r"\frac{2(\frac65)}{2}", "1.2", r"1\frac15"), (r"\frac56",)),
        Rule(r"\frac{1}{6}", (r"0.1\overline{6}", "1/6"), (r"0.\overline{16}", "0.16")),
        Rule("0.5", ("½", r"\frac12", ".5", r"\frac{4}{8}"), ("¼", "5")),
        Rule(r"\frac{3}{2}", ("1½", r"1\frac12", "1 1/2", "1.5"), (r"11/2",)),
        Rule("10", (r"\binom52", r"\binom{5}{2}", r"\dbinom{5}{2}"), (r"\binom53 + 1", r"\binom{5}{1}")),
        Rule("5", (r"5\ ", " 5 ", "x=5", r"\text{5}", "(5)"), (r"5\pm 1", "-5", "5!")),
    ),
    "Size": (
        Rule(r"3\cdot 2^{2019}", (r"2^{2019}\cdot 3", r"6\cdot 2^{2018}"), (r"3\cdot 2^{2018}", r"3\cdot 2^{2019}+1")),
        Rule("2^{2004}", ("4^{1002}",), ("4^{1001}", "2^{2004}+1")),
        Rule("2000!", (r"2000\cdot1999!",), ("1999!", "2000!+1")),
        Rule(r"\frac{1}{1999!}", (r"\frac{2000}{2000!}",), (r"\frac{1}{2001!}", "0")),
        Rule("3^{-800}", ("9^{-400}", r"\frac{1}{3^{800}}"), ("3^{-799}", "0")),
        Rule(r"1-\frac{1}{2^{100}}", (r"\frac{2^{100}-1}{2^{100}}",), (r"1-\frac{1}{2^{99}}", "1")),
        Rule(r"\sqrt{2}\cdot 2^{2000}", (r"\sqrt8\cdot 2^{1999}", "2^{2000.5}"), (r"\sqrt2\cdot 2^{2000}+1",)),
        Rule(r"1-\pi^{-2000}", (r"1-\frac{1}{\pi^{2000}}",), (r"1-\pi^{-2001}", "1")),
        Rule(r"\sqrt{3+2\sqrt2}", (r"1+\sqrt2",), (r"1+\sqrt2+10^{-40}", r"1+\sqrt2+2^{-300}")),
        Rule(r"\cos 20^\circ\cos 40^\circ\cos 80^\circ", (r"\frac18",), (r"\frac18+10^{-60}",)),
        Rule(r"(1+\sqrt2)x", (r"\sqrt{3+2\sqrt2}x",), (r"(1+\sqrt2+10^{-30})x",)),
        Rule(r"x+\frac{1}{2^{100}}", ("2^{-100}+x",), (r"x+\frac{1}{2^{99}}", "x")),
        Rule(r"x+y<10^{-20}", ("y+x<10^{-20}",), ("x+y<10^{-21}",)),
        Rule(r"\{3^{-800},1\}", (r"\{1,9^{-400}\}",), (r"\{3^{-799},1\}",)),
        Rule("4.5e-7", ("4.5*10^-7", r"4.5 \times 10^-7"), ("4.5*10^-6", "4.5*10^7")),
        Rule("2xe^{-x}", ("2xe^-x",), ("2xe^x",)),
        Rule("e^{-2000}", ("(e^{-1000})^2",), ("e^{-2001}", "0")),
        Rule("0", (r"\sin\pi", "e^{i\\pi}+1"), ("10^{-400}", r"\infty-\infty", r"\sin 3.14159265358979")),
        Rule(r"\infty", (r"+\infty",), (r"2\infty", "10^{400}")),
        Rule(r"\int_0^{\infty} e^{-x^2} dx", (r"\frac{\sqrt\pi}{2}",), (r"\frac{\sqrt\pi}{2}+10^{-9}",)),
    ),
    "Roots": (
        Rule(r"2\sqrt[3]{4}", (r"2\sqrt[3]4", r"2\sqrt[ 3 ] 4", "2∛4"), (r"2\sqrt34", r"\sqrt[3]4", r"2\sqrt[3]45")),
    ),
    "Plain text": (
        Rule(r"2\sqrt{3}", ("2 * sqrt(3)", "2sqrt3", "sqrt(12)"), ("2*sqrt(2)", r"2\text{sqrt}(3)")),
        Rule(r"\frac{\pi}{4}", ("pi / 4",), ("pi/3", "pie/4")),
        Rule(r"\sin x+x^{10}", ("sin(x)+x**10", "x ** 10 + sin x"), ("cos(x)+x**10", "sin(x)+x*10")),
        Rule("46", ("４６", "（46）"), ("４５", "46！")),
        Rule("-0.5", ("－０．５",), ("０．５",)),
    ),
    "Large numbers in words": (
        Rule("1000000", (r"1\text{ million}", "1 million", r"\text{1 million dollars}"), (r"1\text{ billion}", "1")),
        Rule("1", (), (r"1\text{ million}", r"1\text{ hundred}")),
        Rule(r"2.5\text{ million}", ("2500000", r"2.5\cdot 10^6"), ("2.5", r"2.5\text{ thousand}")),
    ),
    "Without some": (
        Rule(
            r"\mathbb{R}\setminus\{2\}",
            (r"\mathbb{R}\backslash\{2\}", r"\mathbb{R}-\{2\}", r"(-\infty,2)\cup(2,\infty)", r"x\neq 2"),
            (r"\mathbb{R}\backslash\{3\}", r"\mathbb{R}", r"\mathbb{R}/2"),
        ),
        Rule(
            r"(-\infty,-1)\cup(-1,1)\cup(1,\infty)", (r"\mathbb{R}\backslash\{1,-1\}",), (r"\mathbb{R}\setminus\{1\}",)
        ),
    ),
    "Rounding": (
        Rule(r"\sqrt{2}", ("√2", "1.41421356", r"\frac{2}{\sqrt 2}"), ("1.414", r"\sqrt{3}", "√3")),
        Rule(r"\frac{1}{2}", ("0.5", r"0.5=\frac12"), ("0.5000001", r"\frac{2}{4}1", r"\frac12\approx 0.6")),
        Rule(r"\frac{1}{3}", ("1/3", r"\frac13\approx 0.333"), ("0.333333", "0.33333333", r"33.3333\%", "0.333333+0")),
        Rule(r"\frac{1}{99}", (r"0.\overline{01}",), ("0.010101",)),
        Rule(r"\frac{1}{7}", (r"0.\dot{1}4285\dot{7}", "0.(142857)"), ("0.142857", r"x\approx 0.142857")),
        Rule("0.333333", (r"\frac{1}{3}",), ("0.33",)),
        Rule("33.33", ("33.330",), ("33.333333", r"\frac{100}{3}")),
        Rule(r"2\sqrt{3}", (r"2\sqrt3\approx 3.46", r"\sqrt{12}\approx 3.464"), ("3.46", r"3.46\approx 2\sqrt3")),
    ),
    "Expressions": (
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
    "Equations": (
        Rule(
            "y=2x+1",
            ("y-2x=1", "2x+1=y", "2y=4x+2", "-2x+y-1=0", "2x+1", "y=1+2x"),
            ("y=2x", "x=2y+1", "y+2x=1", "0=0"),
        ),
        Rule("x^2+1=0", ("2x^2+2=0", "x^2=-1"), ("x^2+2=0", "x^4+1=0")),
        Rule("xy=1", (r"y=\frac{1}{x}",), ("xy=2",)),
        Rule("x=5", ("5", "5=x", "x = 5"), ("y=5", "6")),
    ),
    "Inequalities": (
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
    "Order": (
        Rule(
            "(2,3)",
            ("(x,y)=(2,3)", r"\left(x, y\right) = \left(2, 3\right)", "(2; 3)"),
            ("(x,y)=(3,2)", "(x,y)=(2,3,4)"),
        ),
        Rule("(x_1,x_2)=(2,3)", ("(2,3)", "2,3"), ("(3,2)", "(y,x)=(2,3)")),
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
        Rule(
            r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
            (
                r"\left[\begin{array}{cc}1&2\\3&4\end{array}\right]",
                r"\left(\!\begin{array}{c|c} 1 & 2 \\[4pt] \hline 3 & 4 \end{array}\!\right)",
            ),
            (
                "(1,2,3,4)",
                r"\left|\begin{array}{cc}1&2\\3&4\end{array}\right|",
                r"\left[\begin{array}{cc}1&2\\3&5\end{array}\right]",
            ),
        ),
    ),
    "Units": (
        Rule(
            "5",
            (
                *(
                    r"5\text{ cm}",
                    "5 cm",
                    r"5\text{ ways}",
                    r"5\text{ square units}",
                    r"\$5",
                    r"5\text{ kcal}",
                    r"5\text{ sq. cm}",
                ),
                *(r"5\text{ different ways}", r"5\text{ meters per second squared}", r"5\text{ N}\cdot\text{m}"),
            ),
            (r"5\text{ or 6}", r"5\text{ is wrong}", r"5\text{ million}", r"5\text{ or more}", r"5\text{ zorkmids}"),
        ),
        Rule(
            "46",
            (),
            tuple(
                rf"46\text{{ {words}}}"
                for words in (
                    *("squared", "cubed", "factorial", "dozens", "hundreds", "halves", "thirds", "negated", "rejected"),
                    *(
                        "over two",
                        "times two",
                        "choose two",
                        "divided",
                        "inverted",
                        "reciprocal",
                        "pairs",
                        "percent off",
                    ),
                )
            ),
        ),
        Rule(r"5\text{ zorkmids}", ("5", "5 zorkmids", r"\text{5 zorkmids}"), (r"5\text{ squared}", r"5\text{ kg}")),
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
    "Per cent": (
        Rule("0.5", (r"50\%",), (r"0.5\%", r"5\%")),
        Rule("50", (r"50\%", r"50 \text{ percent}"), (r"5000\%", r"0.5\%")),
        Rule(r"50\%", ("50", "0.5", r"\frac12", "50%"), ("5", r"0.5\%", r"5000\%")),
        Rule(r"\frac{3}{2}", (r"150\%",), (r"1.5\%",)),
    ),
    "Angles": (
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
    "Fractions and binomials": (
        Rule(
            "6", (r"4\choose 2", r"{4\choose 2}", r"_4C_2", r"{}^4C_2", r"{}_{4}\mathrm{C}_{2}"), (r"x^4C_2", r"C_4^2")
        ),
        Rule(r"\frac12", (r"\nicefrac{1}{2}", r"\sfrac12", r"\cfrac{1}{2}"), (r"(1/2)1", r"\frac{1}{2}\frac{2}{2}1")),
        Rule("5", ("5/1",), ("5/", r"5\text{ m}/", "5+", r"5\ldots", "5^")),
        Rule("1024", ("2^{10}",), ("2^{1}0", r"2\cdot512\ldots")),
    ),
    "Dress": (
        Rule(
            "42",
            (
                r"\textcolor{blue}{42}",
                r"\textcolor{red}{\mathbf{42}}",
                r"{\color{red}42}",
                r"\text{Answer: }42",
                r"\Huge{42}",
            ),
            (
                r"\mathbf{4}2+1",
                r"\text{The answer is not }42",
                r"\color{red}{42}3",
                "145$solution:",
                r"\text{42 or 43}",
            ),
        ),
        Rule("145", ("$145$",), ("145$solution:",)),
    ),
    "Choices": (
        Rule(
            "B",
            (r"(B)\ 7", r"\textbf{(B) } \frac{7}{2}", r"\text{B) 7}", r"\text{Option B}"),
            ("(B)(C)", r"\text{(A) or (B)}", "B. x (or A)", r"\text{B. x or A}"),
        ),
        Rule(r"(C)\ 5", ("C", r"\text{(C)}"), ("B", r"(C)\ 6")),
    ),
    "Sides": (
        Rule(
            "5",
            (
                "AB=5",
                "|A|=5",
                r"m\angle ABC=5",
                "a_{n+1}=5",
                "P(X=2)=5",
                "x=2+3=5",
                r"\text{area}=5",
                "5=x",
                r"x\approx 5",
            ),
            (
                "5=6",
                "x=5=6",
                "a-b=5",
                "x^2=5",
                r"\sqrt{x}=5",
                "=5",
                r"5\approx",
                r"5\approx 5.6",
                r"4.5\approx 5",
                "0=0",
            ),
        ),
        Rule("x+y=5", ("y+x=5",), ("5", "x+y")),
        Rule("8", ("2^3=8",), ("2^3=9", "8=8")),
    ),
    "Intervals": (
        Rule("(-1,1)", ("]-1,1[", r"\{x\mid -1<x<1\}", r"\{x\in\mathbb{R}:-1<x<1\}"), (r"]-1,1]", r"\{x\mid -1<y<1\}")),
        Rule("]-1,1[", ("(-1,1)", "-1<x<1"), ("[-1,1]",)),
        Rule("[0,1)", ("[0;1)", r"\left[0; 1\right)", r"[0;1[", r"x\in[0;1)"), ("(0;1)", "[0;1]", "[0;10)")),
        Rule(r"\{x\mid -1<x<1\}", ("(-1,1)",), (r"\{x\in\mathbb{Z}\mid -1<x<1\}",)),
        Rule(r"(1,+\infty)", ("x>1", r"(1,\infty)", r"]1,+\infty["), (r"(1,-\infty)", "x>=1")),
        Rule(r"(-1,1)\cup(2,3]", (r"]-1,1[\cup]2,3]",), (r"[-1,1]\cup[2,3]",)),
    ),
    "The empty set": (
        Rule(
            r"\text{no solution}",
            (r"\emptyset", r"\text{No solutions.}", "no real solutions"),
            (r"\text{one solution}", "{}"),
        ),
        Rule(r"\{\emptyset\}", (r"\{\{\}\}",), (r"\emptyset",)),
    ),
    "All numbers": (
        Rule(
            r"\text{all real numbers}",
            (r"\mathbb R", r"x\in\mathbb{R}", r"(-\infty,+\infty)"),
            (r"\text{all real numbers except }0", r"[-\infty,\infty]", r"\mathbb{R}^2"),
        ),
    ),
    "No value": (Rule(r"\text{does not exist}", (r"\text{DNE}", "D.N.E."), (r"\text{exists}",)),),
    "Columns": (
        Rule(r"(1,2)^T", (r"\begin{pmatrix}1\\2\end{pmatrix}", r"[1,2]^{\top}"), ("(2,1)^T", "(1,2)^2")),
        Rule(
            r"\begin{pmatrix}1&3\\2&4\end{pmatrix}",
            (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^T",),
            (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",),
        ),
    ),
    "Bases": (
        Rule("1011_2", ("(1011)_2", r"(1011)_{\text{two}}", r"\overline{1011}_2"), ("(1011)_3", "11_2", "11")),
        Rule("2A_{16}", ("2a_{16}", r"\text{2A}_{16}", "2A"), ("A2_{16}", "2B_{16}", "42")),
        Rule("a_{12}", (), ("b_{12}", "A_{12}", "a")),
    ),
    "Moduli": (
        Rule(r"4\pmod{7}", ("4", r"4\bmod 7", r"4 (\text{mod }7)", r"11\bmod 7"), (r"4\pmod{8}", "7", r"7\bmod 4")),
        Rule("1", (r"46\bmod 45", r"1\pmod{45}"), (r"46\bmod 44",)),
        Rule("46", (r"46\pmod{47}",), (r"46\bmod 45", r"46\pmod{45}", r"46\text{ mod }45")),
    ),
}


def documented() -> dict[str, Rule]:
    """By its name, what the table of docs/data.md says of a rule."""
    section = (REPOSITORY / "docs" / "data.md").read_text().partition("### When a mathematical answer is right")[2]
    rows = re.findall(r"^\| \*\*(.*?)\*\*.*?(?<!\\)\| (.*) \|$", section.partition("\n###")[0], re.MULTILINE)
    cells = {name: re.split(r" (?<!\\)\| ", examples) for name, examples in rows}
    shown = {name: [re.findall("`(.*?)`", cell.replace(r"\|", "|")) for cell in row] for name, row in cells.items()}
    return {name: Rule(accepted, tuple(right), tuple(wrong)) for name, ((accepted,), right, wrong) in shown.items()}


DOCUMENTED = documented()


def test_every_rule_is_a_row_of_the_table() -> None:
    assert RULES.keys() <= DOCUMENTED.keys()
    assert len(DOCUMENTED) > 20
    assert all(rule.right and rule.wrong for rule in DOCUMENTED.values())


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pool that a busy machine does not hurry."""
    pool = Pool(deadline=60.0)
    monkeypatch.setattr(rewards_math, "shared_pool", lambda: pool)
    yield
    pool.close()


@pytest.mark.parametrize("rule", DOCUMENTED)
@pytest.mark.usefixtures("patient")
def test_answers_are_marked_as_a_careful_human_marks_them(rule: str) -> None:
    cases = [
        (answer, one.accepted, expected)
        for one in (DOCUMENTED[rule], *RULES.get(rule, ()))
        for answers, expected in (((one.accepted, *one.right), GradeStatus.CORRECT), (one.wrong, GradeStatus.WRONG))
        for answer in answers
    ]
    grades = grade_many([Answer("math", f"</think>\\boxed{{{answer}}}", accepted) for answer, accepted, _ in cases])
    assert [case for case, graded in zip(cases, grades, strict=True) if graded.status is not case[2]] == []
