"""Grades as the authors' program gives them (Elastic-Reasoning, commit 8871a3c); docs/seeds.md says where they differ.

A program is the last fenced block of the response, thought included, and runs in our sandbox. Not the authors': bounds
of memory, processor time instead of the clock's, and the names that it finds defined. Mathematics: `math.as_published`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar

from elastic_core.rewards import patiently
from elastic_core.rewards.code import PROGRAM_SECONDS, Rules, run
from elastic_core.rewards.code.sandbox import require_sandbox
from elastic_core.rewards.math import AS_PUBLISHED, CACHE_SIZE, Exhausted, shared_pool
from elastic_core.rewards.math.as_published import boxed_answer, same_spelling
from elastic_core.rewards.truth import THINK_END, CodeTest, CodeTruth, GradeStatus, MathTruth, longest_tests

N = TypeVar("N")
NAME = "elastic-reasoning"
MAX_TESTS = 15  # of other problems than LiveCodeBench's: those with the longest inputs

_BLOCK = re.compile(r"```(?:\w+)?\n(.*?)```", re.DOTALL)
_MAIN = ('if __name__ == "__main__"', "if __name__ == '__main__'")
_BARE = "import fractions, sys, time\nsys.setrecursionlimit(1000)\n"
"""Before a program: modules that it finds imported, and Python's own limit of recursion."""
_IN_FUNCTION = """
import ast, io, sys
sys.setrecursionlimit(1000)
def load(text):
    body = ast.parse(text).body
    if isinstance(body[-1], ast.If) and ast.unparse(body[-1].test) == "__name__ == '__main__'":
        body = body[:-1] + body[-1].body
    imports = [each for each in body if isinstance(each, (ast.Import, ast.ImportFrom))]
    function = ast.parse("def wrapped_function(): pass").body[0]
    function.body = [each for each in body if each not in imports]
    names = {**globals(), "__name__": "tmp_sol", "quit": None}
    exec(compile(ast.Module([*imports, function], []), "program.py", "exec"), names)
    return names["wrapped_function"]
program = load(PROGRAM)
given, printed = sys.stdin.read(), sys.stdout
if "open" in PROGRAM:
    from unittest.mock import mock_open
    program.__globals__["open"] = mock_open(read_data=given)
sys.stdin, sys.stdout = io.StringIO(given), io.StringIO()
try:
    program()
except SystemExit:
    pass
printed.write(sys.stdout.getvalue())
"""
"""What LiveCodeBench's programs that read and print run in, PROGRAM being their text: all but the imports is the body
of a function, so that `global` finds nothing, and the streams are texts, without a `buffer`."""


def grade_as_published(kind: str, benchmark: str, thinking: str, solution: str | None, truth: str) -> float:
    """Score in {0.0, 1.0} that the authors' program gives to a response, by its rules.

    `kind` is one of `elastic_core.rewards.KINDS`. `benchmark` is a name of the registry (other programs are graded as
    LiveCodeBench's). `thinking` and `solution` are those of `ResponseText` (solution None where none was begun), and
    `truth` is encoded as in `elastic_core.rewards.truth`. Safe to call from any thread.

    Raises ValueError on a kind that they do not grade, such as choices, and as `elastic_core.rewards.grade` does.
    """
    response = thinking if solution is None else f"{thinking}{THINK_END}{solution}"
    if kind == "code":
        blocks = _BLOCK.findall(response)
        return float(bool(blocks) and _passes(blocks[-1].strip(), benchmark, truth))
    if kind != "math":
        raise ValueError(f"{NAME} does not grade {kind}; expected math or code")
    # Between the first think-end and the next: the rest is another part of their split.
    answer = boxed_answer(response.partition(THINK_END)[2].partition(THINK_END)[0])
    return float(answer is not None and any(_same(answer, accepted) for accepted in _accepted(benchmark, truth)))


@lru_cache(maxsize=CACHE_SIZE)
def _same(answer: str, accepted: str) -> bool:
    try:
        return same_spelling(answer, accepted) or patiently(
            lambda: shared_pool().accepts(answer, accepted, AS_PUBLISHED)
        )
    except Exhausted:
        return False


def _accepted(benchmark: str, truth: str) -> tuple[str, ...]:
    """Answers of a truth as the files of their benchmarks spell them, where this changes a verdict.

    AMC's are floats, those of AIME 2024 have three digits, and most of Minerva's end their line, which matters for what
    is compared as text: fractions and words. OlympiadBench's are one text for all answers, without
    unit and tolerance, and those with letters or LaTeX are in dollars, which `same_spelling` does not see through.
    """
    decoded = MathTruth.decode(truth)
    if benchmark == "amc":
        return tuple(str(float(answer)) for answer in decoded.answers)
    if benchmark == "minerva":
        return tuple(answer if "\\" in answer else f"{answer}\n" for answer in decoded.answers)
    if benchmark == "aime-2024":
        return tuple(answer.zfill(3) for answer in decoded.answers)
    if benchmark == "olympiadbench":
        text = ", ".join(decoded.answers)
        return (f"${text}$" if any(character.isalpha() for character in text) else text,)
    return decoded.answers


def _passes(program: str, benchmark: str, truth: str) -> bool:
    require_sandbox()
    if benchmark == "codeforces":
        program, rules = _BARE + program, Rules(_printed(_same_lines), _equal, 12.0, may_fail=True)
        decoded = CodeTruth.decode(longest_tests(truth, MAX_TESTS))
    elif benchmark in ("deepcoder-taco", "deepcoder-primeintellect"):
        program, rules = _BARE + program, Rules(_printed(_same_shape), _equal_or_wrapped, 12.0, may_fail=True)
        decoded = CodeTruth.decode(truth)
        if decoded.kind == "functional" and len(decoded.tests) > MAX_TESTS:
            return False  # tests that were chosen have lost the name of the function
        decoded = CodeTruth.decode(longest_tests(truth, MAX_TESTS))
    else:
        decoded, rules = CodeTruth.decode(truth), Rules(_same_decimals, _equal, 6.0)
    if decoded.code is not None:  # program and tests are one program, which is right when it ends without an error
        program = f"{_BARE}{_without_main(program)}\n\n{decoded.code}\n"
        rules, decoded = Rules(lambda *_: True, _equal, PROGRAM_SECONDS), CodeTruth("stdin", (CodeTest("", ""),))
    elif decoded.kind == "stdin" and not rules.may_fail:
        program = _IN_FUNCTION.replace("PROGRAM", repr(program))
    elif "class Solution" in program:  # one instance for all tests
        method = f"staticmethod(Solution().{decoded.method})"
        program += f"\nSolution = type('Solution', (), {{'{decoded.method}': {method}}})\n"
    if re.search(r"\bnp\b", program):
        program = f"import numpy as np\n{program}"
    return patiently(lambda: run(program, decoded, rules)) is GradeStatus.CORRECT


def _without_main(program: str) -> str:
    """Drop the blocks of lines that begin as `_MAIN` and go on to the next line that is not indented."""
    kept, is_left_out = [], False
    for line in program.split("\n"):
        is_left_out = line.strip().startswith(_MAIN) or (is_left_out and (not line.strip() or line[0] in " \t"))
        kept += [] if is_left_out else [line]
    return "\n".join(kept)


def _printed(same: Callable[[str, str], bool]) -> Callable[[bytes, str], bool]:
    """Compares text of a pipe: UTF-8, in which all ends of lines are one."""

    def compare(given: bytes, expected: str) -> bool:
        try:
            return same(given.decode().replace("\r\n", "\n").replace("\r", "\n"), expected)
        except UnicodeDecodeError:
            return False

    return compare


def _same_decimals(given: bytes, expected: str) -> bool:
    """LiveCodeBench's: equal lines, or lines of equal numbers, exactly: 5.0 is 5."""
    lines, wanted = (text.strip().split("\n") for text in (given.decode(errors="replace"), expected))
    return len(lines) == len(wanted) and all(
        one.strip() == other.strip() or _numbers(Decimal, one.split()) == _numbers(Decimal, other.split()) != ()
        for one, other in zip(lines, wanted, strict=True)
    )


def _numbers(number: Callable[[str], N], texts: Iterable[str]) -> tuple[N, ...]:
    """Numbers, or none where a text is none."""
    try:
        return tuple(map(number, texts))
    except (ArithmeticError, ValueError):
        return ()


def _same_lines(given: str, expected: str) -> bool:
    """Codeforces': equal texts. Else the output is read by the character, by a slip: as numbers, one for each
    line, and as sets, one for each token, where order and repetition do not count."""
    if given.strip() == expected.strip():
        return True
    lines = [line.strip() for line in expected.split("\n") if line]
    numbers, wanted = _numbers(float, given), _numbers(float, lines)
    if 0 < len(numbers) == len(wanted) and all(map(_close, numbers, wanted)):
        return True
    tokens, rows = given.split(), [line.split() for line in lines]
    if set(map(frozenset, tokens)) == set(map(frozenset, rows)):
        return True
    try:
        return _rounded(tokens) == _rounded(rows)
    except ValueError:
        return False


def _rounded(groups: Iterable[Iterable[str]]) -> set[frozenset[float]]:
    return {frozenset(round(float(text), 3) for text in group) for group in groups}


def _same_shape(given: str, expected: str) -> bool:
    """TACO's and PrimeIntellect's: as many tokens in each line, numbers close and words any; or as `_same_lines`."""
    given = given.rstrip("\n")
    if pair := _numbers(float, (given.strip(), expected.strip())):
        alike = _close(*pair)
    else:
        lines, wanted = ([line.split() for line in text.split("\n") if line.strip()] for text in (given, expected))
        alike = list(map(len, lines)) == list(map(len, wanted)) and all(
            not (pair := _numbers(float, tokens)) or tokens[0] == tokens[1] or _close(*pair)
            for tokens in zip(chain(*lines), chain(*wanted), strict=True)
        )
    return alike or _same_lines(given, expected)


def _close(given: float, expected: float) -> bool:
    return given == expected or abs(given - expected) <= 1e-8 + 1e-5 * abs(expected) < math.inf


def _equal(given: Any, expected: Any) -> bool:
    """Equal as Python has it, but a tuple may replace the outermost list: True is 1, and a tuple within is no list."""
    return _same_value(_listed(given), expected)


def _listed(given: Any) -> Any:
    return given["tuple"] if isinstance(given, dict) and given.keys() == {"tuple"} else given


def _same_value(given: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return isinstance(given, list) and len(given) == len(expected) and all(map(_same_value, given, expected))
    if isinstance(expected, dict):
        pairs = given.get("dict") if isinstance(given, dict) else None
        if not isinstance(pairs, list):
            return False
        values = {
            pair[0]: pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is str
        }
        return len(pairs) == len(values) == len(expected) and all(
            key in values and _same_value(values[key], value) for key, value in expected.items()
        )
    return not isinstance(given, list | dict) and bool(given == expected)


def _equal_or_wrapped(given: Any, expected: Any) -> bool:
    """TACO's: also a list of the expected value, and a list of tuples for one of lists."""
    given = _listed(given)
    if _same_value(given, [expected]) or _same_value(given, expected):
        return True
    return (
        isinstance(given, list)
        and given[:1] != list(map(_listed, given[:1]))
        and _same_value(list(map(_listed, given)), expected)
    )
