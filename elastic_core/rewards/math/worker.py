"""A process that compares answers by computer algebra (math-verify), one at a time: `python -m` this module.

It imports what that takes, compares a few answers to fill the parser's caches, and forks a child, which reads requests
from standard input and writes verdicts, a line of JSON each. The kernel ends a child at the end of its processor time;
another one, as warm, takes its place within milliseconds.

Nothing here evaluates Python: math-verify's LaTeX parser gives the digits of numbers to sympy, which reads text by
`eval`; that function is replaced by one that reads numbers and refuses everything else.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TextIO

from elastic_core.rewards.math import AS_PUBLISHED, DIED, OURS, READY
from elastic_core.rewards.math.as_published import same_value
from elastic_core.rewards.math.compare import CLOSE_ENOUGH, accepts
from elastic_core.rewards.math.normal import TRIGONOMETRY
from elastic_core.rewards.truth import MathTruth
from elastic_core.system.processes import end_with_parent

MEMORY_LIMIT = 2 << 30  # bytes of address space
SPARE_BITS = 200  # beyond the size of two numbers, up to which all must be equal for these to be
RECURSION_LIMIT = 3000
"""Frames; what is nested deeper cannot be parsed. Far more would end in a full stack, which kills the process."""
MAX_REQUESTS = 5000  # answers after which a child is replaced: the parser remembers a little of every text
_NO_MEMORY, _ENOUGH = 3, 4  # exit codes of a child: its memory did not suffice; it has answered `MAX_REQUESTS`
_TYPICAL = (
    (r"\frac{1}{x}+2", "x^2+2x-1"),
    (r"\frac{\sqrt{8}}{2}", r"\sqrt[3]{2}+1"),
    (r"2\sin(x)\cos(x)", r"\sin(2x)"),
    (r"(-\infty,\sqrt{2})\cup(3,\infty)", r"(-\infty,\sqrt{2})\cup[3,\infty)"),
    ("2y-4x=2", "y=2x+1"),
    (r"e^{-2t}\ln(4)", r"\log_2(8)"),
    (r"3+4i", r"(2+i)^2"),
    (r"\binom{5}{2}\cdot 4!", r"\frac{\pi}{6}"),
)
"""Answers and accepted ones that are compared before the first fork: a cold parser takes ten times as long."""


def main(parent: int) -> None:
    """Answer requests until standard input ends or the parent does."""
    _end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(RECURSION_LIMIT)
    _prepare()
    verdicts = os.fdopen(os.dup(1), "w", encoding="ascii")
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    for answer, accepted in _TYPICAL:
        _verdict(answer, accepted)
    print(READY, file=verdicts, flush=True)
    # 0 is the end of standard input.
    while code := os.waitstatus_to_exitcode(os.waitpid(_fork(verdicts), 0)[1]):
        if code != _ENOUGH:
            print("null" if code in (-signal.SIGPROF, _NO_MEMORY) else DIED, file=verdicts, flush=True)


def _fork(verdicts: TextIO) -> int:
    """The process identifier of a child that serves, in the parent; the child does not come back."""
    this = os.getpid()
    child = os.fork()
    if child:
        return child
    _end_with(this)
    for number, request in enumerate(sys.stdin, 1):
        answer, truth, seconds, rules = json.loads(request)
        # The kernel ends this process, also within one long operation of C. Not after the verdict: a request gets one
        # line.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            verdict = _verdict(answer, truth, rules)
        except MemoryError:
            os._exit(_NO_MEMORY)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(verdict), file=verdicts, flush=True)
        if number == MAX_REQUESTS:
            os._exit(_ENOUGH)
    os._exit(0)


def _end_with(parent: int) -> None:
    end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that took effect
        os._exit(0)


def _verdict(answer: str, truth: str, rules: str = OURS) -> bool:
    """Whether the truth accepts the answer. Raises MemoryError when memory did not suffice to find out."""
    try:
        if rules == AS_PUBLISHED:
            return same_value(answer, truth)
        # What even computer algebra does not know is not shown to be equal.
        return accepts(answer, MathTruth.decode(truth), _equal) is True
    except MemoryError:
        raise
    except Exception:  # such as too deep a recursion: were this to end the process, an answer could fail a run
        return False


def _prepare() -> None:
    """Import what comparing takes, and replace sympy's `eval` and math-verify's comparison of values."""
    import logging

    import math_verify.grader
    import pylatexenc.latex2text  # noqa: F401
    import sympy.parsing.sympy_parser
    import sympy.physics.units

    logging.disable(logging.CRITICAL)
    sympy.parsing.sympy_parser.eval_expr = _number_of_code
    math_verify.grader.sympy_numeric_eq = partial(_same_value, math_verify.grader.sympy_numeric_eq)


_NUMBER_CODE = re.compile(r"(?:Integer|Float) \('?([0-9.]+)'? \)(?:/Integer \(([1-9][0-9]*) \))?")


def _number_of_code(code: str, *_: Any) -> Any:
    """What sympy's generated code for a number means, exactly: a decimal is a fraction. Else a ValueError."""
    import sympy

    match = _NUMBER_CODE.fullmatch(code)
    if match is None:
        raise ValueError("text is not evaluated here")
    return sympy.Rational(match[1]) / int(match[2] or 1)


def _equal(answer: str, accepted: str, tolerance: float | None) -> bool:
    """Whether two normal texts are the same mathematics."""
    from math_verify import verify
    from math_verify.grader import safe_sympy_doit as evaluated
    from sympy import Eq, Expr, Set, fraction, simplify, together

    given, wanted = _parse(answer), _parse(accepted)
    if given is None or wanted is None:
        return False
    if _is_number(given) and _is_number(wanted):
        if tolerance is not None and _within(tolerance, given, wanted, relative=False):
            return True
        # A single decimal may stand for a number that no decimal equals.
        is_rounded, is_wanted_rounded = (
            bool(each.is_Rational) and "." in text for each, text in ((given, answer), (wanted, accepted))
        )
        if is_rounded != is_wanted_rounded and not (is_rounded and wanted.is_rational):
            return _within(float(CLOSE_ENOUGH), given, wanted, relative=True)
        return _is_zero(evaluated(given) - evaluated(wanted)) is True
    if isinstance(given, Eq) or isinstance(wanted, Eq):
        if not isinstance(given, Eq) or not isinstance(wanted, Eq):
            return False
        # Equal when one is the other times a number, as `y-2x=1` and `y=2x+1`. To math-verify all equations without
        # real solutions are equal.
        one, other = (fraction(together(equation.lhs - equation.rhs))[0] for equation in (given, wanted))
        factor = simplify(one / other)
        return bool(factor.is_number and factor.is_finite and factor.is_nonzero)
    if isinstance(given, Expr) and isinstance(wanted, Expr) and (given.is_Symbol or wanted.is_Symbol):
        return bool(simplify(given - wanted) == 0)  # math-verify compares a variable by its name alone
    if {Set, Expr} == {kind for kind in (Set, Expr) for each in (given, wanted) if isinstance(each, kind)}:
        return False  # to math-verify a value that is listed twice is the value
    # Its deadline is an alarm; ours is outside.
    return bool(verify(wanted, given, allow_set_relation_comp=True, timeout_seconds=None))


def _is_number(expression: Any) -> bool:
    return bool(getattr(expression, "is_number", False))


def _same_value(to_15_places: Callable[..., bool], wanted: Any, given: Any, *precision: int) -> bool:
    """Whether two expressions are equal. math-verify's `to_15_places` takes all small numbers for equal."""
    from math_verify.grader import safe_sympy_doit as evaluated
    from sympy import MatrixBase, Rational

    if isinstance(wanted, MatrixBase) or not to_15_places(wanted, given, *precision):
        return to_15_places(wanted, given, *precision)  # compares the cells by this
    difference = evaluated(wanted) - evaluated(given)
    # Equal ones are equal everywhere, and it takes luck for others to be equal at a point of odd fractions.
    symbols = sorted(difference.free_symbols, key=str)
    point = {symbol: Rational(1009 + 97 * place, 2003 + 61 * place) for place, symbol in enumerate(symbols)}
    return _is_zero(difference.xreplace(point)) is not False


def _is_zero(number: Any) -> bool | None:
    """Whether a number is zero, exactly or to as many digits as its parts are long; None when it has no value."""
    from sympy import Float, Integral, Limit, Product, Sum, preorder_traversal

    if number.is_Rational:
        return bool(number == 0)
    if number.has(Integral, Limit, Product, Sum):  # computed numerically, to few digits
        value, *parts = (abs(part.evalf(15)) for part in (number, *number.args))
        is_known = all(part.is_comparable for part in (value, *parts))
        return bool(value <= 1e-12 * max(parts)) if is_known else None
    bits = SPARE_BITS
    for part in preorder_traversal(number):
        if part.is_Rational:
            bits += part.p.bit_length() + part.q.bit_length()
        elif _is_number(part) and isinstance(value := abs(part.evalf(5)), Float):
            bits += abs(value._mpf_[2] + value._mpf_[3])
    values = number.evalf(5, maxn=bits // 3).as_real_imag()
    if not all(value.is_Float or value == 0 for value in values):
        return None
    return all(value == 0 or value._prec == 1 for value in values)  # 1 where all digits have cancelled


def _within(limit: float, given: Any, wanted: Any, *, relative: bool) -> bool:
    """Whether the difference of two numbers is at most `limit`; False if they have none."""
    difference = (abs(given - wanted) / (abs(wanted) if relative else 1)).evalf(20)
    return bool(difference.is_comparable and difference <= limit)


_PRIMES = re.compile(r"([a-zA-Z])'('?)")
_DEGREES = re.compile(r"([0-9.]+|[a-zA-Z]|\([^()]*\)|\{[^{}]*\})\\degree")
# Texts that its parser misreads: 1 2 as a sum, 52_8 without the base, 46' as 46, 0.\overline{3} as 0, words as
# nothing, \frac{1}{2}1 as a product, and invisible text.
_MISREAD = re.compile(
    r"\.\.|[0-9.]\s+[0-9.]|[0-9]_|['\"]|phantom|\\overline|\\text(?![a-z])|(?:^|[^_])\{[^{}]*\}[0-9]|[)}]\}[0-9]|\)[0-9]|dots|:.*:|\\\}\\cdot"
)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Any:
    """A sympy object; None when math-verify cannot read the text."""
    import sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
    from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex
    from math_verify.grader import should_treat_as_complex

    text = re.sub(r"\\log_([0-9a-z]) ?", r"\\log_{\1}", text)
    text = _PRIMES.sub(r"\1_{prime\2}", text).replace("prime'", "primeprime")
    if _MISREAD.search(text):
        return None
    if TRIGONOMETRY.search(text):  # it drops the degree sign, as right for 180^\circ-2x
        text = _DEGREES.sub(r"(\\frac{\1\\pi}{180})", text)
    text = text.replace(r"\newline", r"\\").replace(r"\degree", r"^\circ ")
    text = re.sub(r"(?<=[0-9])(?=[a-zA-Z])", " ", text)  # in 2i the i would not be seen to stand alone
    text = re.sub(r"(?<=[0-9])\((?=\\frac)", r"\\cdot(", text)  # 2(\frac{1}{3}) would be a mixed number
    # Units are dealt with, and its list of them takes the m of 2m for metres.
    rules = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none")
    try:
        parsed = latex2sympy(
            normalize_latex(text, rules),
            is_real=not should_treat_as_complex(text),
            normalization_config=None,
            conversion_config=ConversionConfig(lowercase_symbols=False),
        )
        units = {s: sympy.I for s in parsed.free_symbols if s.name in ("i", "I") and should_treat_as_complex(text)}
        return parsed.xreplace(units) if units else parsed
    except MemoryError:
        raise
    except Exception:  # its parser raises bare exceptions, and sympy whatever it stumbles over
        return None


if __name__ == "__main__":
    main(int(sys.argv[1]))
