"""What graders take and return: truths as the text that tables carry (`ground_truth` of verl's schema, `truth` of
`grade`), grades, and the graders by kind of truth. A truth with one plain answer is that answer's text, else JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import orjson

if TYPE_CHECKING:
    from elastic_core.data.problems import Problem

THINK_END = "</think>"

ATTEMPTS = 5  # how often a grader that fails is tried before its failure is final
FIRST_WAIT = 1.0
"""Seconds before the second attempt, doubled before each further one: other programs of the machine may end by then."""

MAX_SOLUTION = 1_000_000
"""Characters of a solution that are read, from its end. A solution of 32,768 tokens of text has about 130,000."""


class GradeStatus(StrEnum):
    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"  # no answer in a response that the model ended, or in its solution
    TRUNCATED = "truncated"  # cut before the thinking ended: without a solution
    TIMEOUT = "timeout"  # the program, or the comparison of the answer, took longer than it may
    RUNTIME_ERROR = "runtime_error"  # the program failed


UNANSWERED = (GradeStatus.NO_ANSWER, GradeStatus.TRUNCATED)  # of a response without an answer to grade


class GradingFailed(RuntimeError):
    """The grader failed, not the response: nothing was scored, and another attempt may succeed."""


class Grade(NamedTuple):
    """Score in [0, 1], why, and the answer as read (None when there is none)."""

    score: float
    status: GradeStatus
    answer: str | None


Grader = Callable[[str, str], Grade]
"""Grades a solution against a truth; may raise ValueError for the truth, and GradingFailed."""

GRADERS: dict[str, Grader] = {}  # by kind of truth


def grader(kind: str) -> Callable[[Grader], Grader]:
    """Registers a grader: `@grader("math")`. `elastic_core.rewards` imports the module that has it."""

    def register(function: Grader) -> Grader:
        GRADERS[kind] = function
        return function

    return register


def graded(answer: str, is_right: bool) -> Grade:
    """The grade of an answer that is right or wrong."""
    return Grade(float(is_right), GradeStatus.CORRECT if is_right else GradeStatus.WRONG, answer)


NO_ANSWER = Grade(0.0, GradeStatus.NO_ANSWER, None)


def solution_of(response: str) -> str | None:
    """The text after the last think-end, at most its last `MAX_SOLUTION` characters, which bounds the time of graders
    without a deadline; None when the thinking never ended."""
    _, closed, solution = response.rpartition(THINK_END)
    return solution[-MAX_SOLUTION:] if closed else None


_MARK = '{"answers":'

LETTERS = "ABCD"  # truths of multiple choice


def guesses(problems: Iterable[Problem]) -> dict[str, float]:
    """Accuracy of guessing, in [0, 1], by benchmark: one of the options of a multiple choice, nothing elsewhere."""
    chances: dict[str, list[float]] = {}
    for problem in problems:
        chances.setdefault(problem.benchmark, []).append(1 / len(LETTERS) if problem.grader == "choice" else 0.0)
    return {name: sum(found) / len(found) for name, found in chances.items()}


CodeKind = Literal["stdin", "functional", "check"]
_USES = {"stdin": {"tests"}, "functional": {"tests", "method"}, "check": {"code", "entry_point"}}


@dataclass(frozen=True)
class MathTruth:
    """A mathematical answer."""

    answers: tuple[str, ...]  # in LaTeX or plain text, without a box
    match: Literal["any", "all"] = "any"  # each will do (Minerva's variants), or all are wanted (OlympiadBench)
    tolerance: float | None = None  # largest absolute difference of equal numbers; None asks for equality
    unit: str | None = None  # in which the answer is given; an answer may repeat it or leave it out

    def __post_init__(self) -> None:
        """ValueError when something is missing or of a wrong type."""
        if not isinstance(self.answers, tuple) or not self.answers or not all(isinstance(a, str) for a in self.answers):
            raise ValueError(f"answers are {self.answers!r}; expected a list of at least one text")
        if self.match not in ("any", "all"):
            raise ValueError(f"match is {self.match!r}; expected any or all")
        if not isinstance(self.unit, str | None):
            raise ValueError(f"unit is {self.unit!r}; expected text")
        if self.tolerance is not None and not (_is_number(self.tolerance, float | int) and self.tolerance >= 0):
            raise ValueError(f"tolerance is {self.tolerance!r}; expected a number that is not negative")

    def encode(self) -> str:
        """Text that `decode` reads."""
        plain = len(self.answers) == 1 and self.tolerance is None and self.unit is None
        if plain and not self.answers[0].startswith(_MARK):
            return self.answers[0]
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> MathTruth:
        """The inverse of `encode`. Text that begins like an encoded truth and is none is a ValueError."""
        if not text.startswith(_MARK):
            return cls((text,))
        try:
            values = json.loads(text)
            answers = values["answers"]
            return cls(**{**values, "answers": tuple(answers) if isinstance(answers, list) else answers})
        except (TypeError, KeyError, RecursionError) as error:
            raise ValueError(f"not an encoded mathematical truth ({error}): {text[:80]}") from None


def split_answers(text: str) -> list[str]:
    r"""Parts of an answer between commas at the top level: `(1,2), \frac{1}{2}` has two."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


class CodeTest(NamedTuple):
    r"""One test: for "stdin" the input and the expected output; for "functional" one JSON value per line, an
    argument each (LiveCodeBench's encoding; only "\n" ends a line), and the expected value in JSON."""

    input: str
    output: str


@dataclass(frozen=True)
class CodeTruth:
    """Tests of a program. ValueError when something is missing, of a wrong type or of another kind.

    JSON in tests is what Python's `json` reads: integers of any size, NaN and Infinity. A test program calls the
    solution and raises when it is wrong, or has tests that do so (functions `test_*`, methods of classes `Test*`).
    """

    kind: CodeKind  # "stdin" runs a program, "functional" calls a function, "check" runs a test program
    tests: tuple[CodeTest, ...] = ()  # of "stdin" and "functional", at least one
    method: str | None = None  # of "functional": name of a function or of a method of `Solution`
    code: str | None = None  # of "check": the test program
    entry_point: str | None = None  # of "check": the name that a solution must define, where the source says it
    time_limit: float | None = None  # seconds for each test
    memory_limit: int | None = None  # MiB

    def __post_init__(self) -> None:
        if self.kind not in get_args(CodeKind):
            raise ValueError(f"kind is {self.kind!r}; expected one of {', '.join(get_args(CodeKind))}")
        uses = _USES[self.kind]
        for name, absent in (("tests", ()), ("method", None), ("code", None), ("entry_point", None)):
            if name not in uses and getattr(self, name) != absent:
                raise ValueError(f"a truth of kind {self.kind} has {name}; expected {' and '.join(sorted(uses))} only")
        if self.kind != "check":
            if not self.tests:
                raise ValueError("no tests; expected at least one")
            for number, test in enumerate(self.tests, 1):
                for name, value in zip(CodeTest._fields, test, strict=True):
                    if not isinstance(value, str):
                        raise ValueError(f"{name} of test {number} is of type {type(value).__name__}; expected text")
        elif not isinstance(self.code, str) or not self.code.strip():
            raise ValueError("no check code; expected a test program")
        if self.kind == "functional":
            _require_identifier("method", self.method)
        if self.entry_point is not None:
            _require_identifier("entry_point", self.entry_point)
        _require_positive("time_limit", self.time_limit, float | int)
        _require_positive("memory_limit", self.memory_limit, int)

    def encode(self) -> str:
        """Text that `decode` reads. Invalid Unicode (a lone surrogate) is a ValueError."""
        try:
            return orjson.dumps(self, default=tuple).decode()  # orjson leaves named tuples to `default`
        except orjson.JSONEncodeError as error:
            raise ValueError(f"a truth that cannot be written as JSON: {error}") from None

    @classmethod
    def decode(cls, text: str) -> CodeTruth:
        """The inverse of `encode`. Other text is a ValueError."""
        try:
            values = json.loads(text)  # orjson would need twice the memory, and texts of 100 MB are real
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not an encoded code truth ({error}): {text[:80]}") from None
        expected = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or values.keys() != expected:
            raise ValueError(f"not an encoded code truth (expected the keys {sorted(expected)}): {text[:80]}")
        pairs = values.pop("tests")
        if not isinstance(pairs, list):
            raise ValueError(f"tests are a {type(pairs).__name__}; expected a list")
        for number, pair in enumerate(pairs, 1):
            if not isinstance(pair, list) or len(pair) != 2:
                raise ValueError(f"test {number} is not a pair of input and output")
        return cls(**values, tests=tuple(CodeTest(*pair) for pair in pairs))


def longest_tests(truth: str, num: int) -> str:
    """An encoded code truth with at most `num` of its tests: those with the longest inputs, in characters, as
    DeepCoder's reward takes them. One that has no more, or a test program, is as it was."""
    decoded = CodeTruth.decode(truth)
    if len(decoded.tests) <= num:
        return truth
    longest = sorted(decoded.tests, key=lambda test: len(test.input), reverse=True)[:num]
    return replace(decoded, tests=tuple(longest)).encode()


def _require_identifier(name: str, value: Any) -> None:
    # It becomes part of a program that calls the solution, so nothing else may hide in it.
    if not isinstance(value, str) or not value.isidentifier():
        raise ValueError(f"{name} is {value!r}; expected a Python name")


def _require_positive(name: str, value: Any, number: Any) -> None:
    if value is None:
        return
    if not _is_number(value, number) or value <= 0:
        raise ValueError(f"{name} is {value!r}; expected a positive {'whole number' if number is int else 'number'}")


def _is_number(value: Any, number: Any) -> bool:
    return isinstance(value, number) and not isinstance(value, bool) and -math.inf < value < math.inf
