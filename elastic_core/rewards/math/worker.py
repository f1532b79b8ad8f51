"""A process that compares answers by computer algebra (math-verify), one at a time: `python -m` this module.

It imports what that takes and forks a child, which reads requests from standard input and writes verdicts to standard
output, a line of JSON each. Its parent holds the clock, and asks by a signal for another child when one is too slow.

Nothing here evaluates Python. math-verify's parser of plain expressions, which does, is not used. Its LaTeX parser
builds sympy objects by itself, but gives the digits of a number to sympy, which reads all text by `eval`; that one
function of sympy's is replaced by one that reads numbers and refuses everything else.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import sys
from functools import lru_cache
from typing import Any, TextIO

from elastic_core.rewards.math import REPLACE
from elastic_core.rewards.math.compare import CLOSE_ENOUGH, accepts
from elastic_core.rewards.math.normal import TRIGONOMETRY
from elastic_core.rewards.truth import MathTruth
from elastic_core.system.processes import end_with_parent

MEMORY_LIMIT = 2 << 30  # bytes of address space
RECURSION_LIMIT = 3000
"""Frames; what is nested deeper cannot be parsed. Far more would end in a full stack, which kills the process."""
PRECISION = 1e-12  # relative difference of numbers that are equal but for rounding in their evaluation


def main(parent: int) -> None:
    """Answer requests until standard input ends or the parent does."""
    _end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(RECURSION_LIMIT)
    # Before imports start threads: a thread that does not block SIGCHLD would take it, and the child's end go unseen.
    signal.pthread_sigmask(signal.SIG_BLOCK, {REPLACE, signal.SIGCHLD})
    _replace_eval()
    verdicts = os.fdopen(os.dup(1), "w", encoding="ascii")
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    child, code = _fork(verdicts), None
    while code != 0:  # 0 is the end of standard input
        code = None
        if signal.sigwait({REPLACE, signal.SIGCHLD}) == REPLACE:
            # Not waited for: it may take long until the system has its memory back.
            os.kill(child, signal.SIGKILL)
            child = _fork(verdicts)
        elif (code := _exit_code(child)) not in (None, 0):
            child = _fork(verdicts)


def _fork(verdicts: TextIO) -> int:
    """The process identifier of a child that serves, in the parent; the child does not come back."""
    this = os.getpid()
    child = os.fork()
    if child == 0:
        _end_with(this)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {REPLACE, signal.SIGCHLD})
        for request in sys.stdin:
            print(json.dumps(_verdict(*json.loads(request))), file=verdicts, flush=True)
        os._exit(0)
    print("ready", child, file=verdicts, flush=True)
    return child


def _exit_code(child: int) -> int | None:
    """Exit code of a child; None while it runs. All that have ended are reaped."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(ended[1]) if ended[0] == child else code
    return code


def _end_with(parent: int) -> None:
    end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that took effect
        os._exit(0)


def _verdict(answer: str, truth: str) -> bool | None:
    """Whether the truth accepts the answer; None when memory did not suffice to find out."""
    try:
        # What even computer algebra does not know is not shown to be equal.
        return accepts(answer, MathTruth.decode(truth), _equal) is True
    except MemoryError:
        return None
    except Exception:  # such as too deep a recursion: were this to end the process, an answer could fail a whole run
        return False


def _replace_eval() -> None:
    """Import what comparing takes, and replace sympy's `eval`."""
    import logging

    import math_verify  # noqa: F401
    import sympy.parsing.sympy_parser
    import sympy.physics.units

    logging.disable(logging.CRITICAL)
    sympy.parsing.sympy_parser.eval_expr = _number_of_code


_NUMBER_CODE = re.compile(r"(Integer|Float) \('?([0-9.]+)'? \)")


def _number_of_code(code: str, *_: Any) -> Any:
    """What sympy's generated code for a number means, exactly: a decimal is a fraction. Else a ValueError."""
    import sympy

    match = _NUMBER_CODE.fullmatch(code)
    if match is None:
        raise ValueError("text is not evaluated here")
    return sympy.Integer(int(match[2])) if match[1] == "Integer" else sympy.Rational(match[2])


def _equal(answer: str, accepted: str, tolerance: float | None) -> bool:
    """Whether two normal texts are the same mathematics."""
    from math_verify import verify
    from sympy import Eq, Expr, fraction, simplify, together

    given, wanted = _parse(answer), _parse(accepted)
    if given is None or wanted is None:
        return False
    if _is_number(given) and _is_number(wanted):
        if tolerance is not None and _difference(given, wanted, relative=False) <= tolerance:
            return True
        # A single decimal may stand for a number that no decimal equals.
        is_rounded, is_wanted_rounded = (
            bool(each.is_Rational) and "." in text for each, text in ((given, answer), (wanted, accepted))
        )
        if is_rounded != is_wanted_rounded and not (is_rounded and wanted.is_rational):
            # math-verify rounds to six places instead, by which all small numbers are equal.
            return _difference(given, wanted, relative=True) <= float(CLOSE_ENOUGH)
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
    # Its own deadline is an alarm; ours is outside.
    if not verify(wanted, given, allow_set_relation_comp=True, timeout_seconds=None):
        return False
    # It takes all numbers below its precision for zero.
    return not (_is_number(given) and _is_number(wanted)) or _difference(given, wanted, relative=True) <= PRECISION


def _is_number(expression: Any) -> bool:
    return bool(getattr(expression, "is_number", False))


def _difference(given: Any, wanted: Any, *, relative: bool) -> float:
    """Difference of two numbers; infinite if they are none."""
    if not _is_number(given) or not _is_number(wanted):
        return float("inf")
    try:
        difference = abs(complex((given - wanted).evalf(20)))
        return difference / max(abs(complex(wanted.evalf(20))), sys.float_info.min) if relative else difference
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        return float("inf")


_PRIMES = re.compile(r"([a-zA-Z])'('?)")
_DEGREES = re.compile(r"([0-9.]+|[a-zA-Z]|\([^()]*\)|\{[^{}]*\})\\degree")
# What its parser reads as something else: 1 2 as a sum, 52_8 without the base, 46' as 46, 0.\overline{3} as 0, words as
# nothing, \frac{1}{2}1 as a product, and what is not to be seen.
_MISREAD = re.compile(
    r"[0-9.]\s+[0-9.]|[0-9]_|['\"]|phantom|\\overline|\\text(?![a-z])|(?:^|[^_])\{[^{}]*\}[0-9]|[)}]\}[0-9]|\)[0-9]|dots|:.*:|\\\}\\cdot"
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
