"""Programs, graded by running them in the sandbox: `sandbox` says what that covers, and what not.

Whatever decides is outside of the sandbox that holds the program.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from elastic_core.rewards.code.bubblewrap import MAX_BYTES, PROVIDED, Limits
from elastic_core.rewards.code.harness import as_json
from elastic_core.rewards.code.harness.checker import CALL, UNDEFINED, VERDICT
from elastic_core.rewards.code.processors import slot
from elastic_core.rewards.code.sandbox import ProgramFailed, Sandbox, SandboxFailed, require_sandbox
from elastic_core.rewards.response import extract_code
from elastic_core.rewards.truth import NO_ANSWER, CodeTest, CodeTruth, Grade, GradeStatus, grader

TEST_SECONDS = 10.0
"""Of a test, in the program's own time (`OwnTime`), and of what a test program makes of an answer; or twice the
problem's own limit, where that is more, which is made for faster languages."""
PROGRAM_SECONDS = 60.0
SECONDS_PER_TEST = 2.0  # of all tests together: a minute, or two seconds for each test, where that is more

MEMORY = 1 << 30  # bytes of a process; or the problem's limit, where that is more
MAX_ANSWERS = 32 << 20  # bytes of all that a program answers to a test program

_CHECKER_MEMORY, _MEMORY_PER_CHARACTER = 4 << 30, 1 << 10
"""At most, for a test program of megabytes; its parser takes 700 bytes for a character of a dense literal."""

_FREE_ANSWER, _LONGER_THAN_EXPECTED = 1 << 16, 32
"""Most bytes of a returned value in JSON: the first number, plus the second times the expected value's length. Escapes,
digits of floats and names of types make right ones longer."""

TOLERANCE = 1e-6  # absolute, and relative to the expected number where that is larger than 1

_NUMBER = rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_IS_NUMBER = re.compile(_NUMBER).fullmatch
_IS_INTEGER = re.compile(rb"[+-]?[0-9]+").fullmatch
_HAS_FLOAT = re.compile(
    r"(?<![^\s,\[{:(])[+-]?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)(?![^\s,\]}):])"
).search
_MAX_DIGITS = 4300  # Python converts no more by default, as the time it takes grows with their square

_log = logging.getLogger(__name__)


@grader("code")
def grade_code(solution: str, truth: str) -> Grade:
    """Grade a solution by its last complete code block of Python. Safe to call from any thread.

    It is right when it passes every test; tests after the first failure are not run. `Grade.answer` is the program.

    Raises:
        ValueError: when the truth is not an encoded `CodeTruth`, a test is not JSON, or its test program tests nothing
            or uses names that neither it nor a solution defines.
        SandboxFailed: when the sandbox failed, not the program.
        UserError: when this machine has no sandbox; nothing is ever run without.
    """
    program = extract_code(solution)
    if program is None:
        return NO_ANSWER
    decoded = CodeTruth.decode(truth)
    require_sandbox()
    status = run(program, decoded)
    return Grade(float(status is GradeStatus.CORRECT), status, program)


class Rules(NamedTuple):
    """Other rules than ours, for the kinds "stdin" and "functional"."""

    printed: Callable[[bytes, str], bool]
    """Compares what a program printed with what it should have."""
    returned: Callable[[Any, Any], bool]
    """Compares a value as `harness.encode` says it, which is not to be trusted, with one of JSON."""
    seconds: float  # of a test, in the program's time (`OwnTime`)
    may_fail: bool = False  # a program that printed the right thing is right however it ended


def run(program: str, truth: CodeTruth, rules: Rules | None = None) -> GradeStatus:
    """Run a program against all tests of a problem, up to the first that it fails, as soon as a processor is free:
    CORRECT, WRONG, TIMEOUT or RUNTIME_ERROR. Errors as of `grade_code`."""
    try:
        with slot():
            _RUNNERS[truth.kind](program, truth, rules)
    except ProgramFailed as failure:
        _log.debug("%s: %s", failure.status, failure)
        return failure.status
    except OSError as error:
        raise SandboxFailed(f"the sandbox failed: {error}") from error
    return GradeStatus.CORRECT


class _Clock:
    """Deadlines of a program's tests, in seconds of its sandbox. It starts with the program, not the sandbox."""

    def __init__(self, truth: CodeTruth, sandbox: Sandbox, rules: Rules | None = None) -> None:
        self._now, self._each = sandbox.now, test_seconds(truth, rules)
        self.end = self._now() + program_seconds(truth, rules)

    def next(self) -> float:
        return min(self.end, self._now() + self._each)


def test_seconds(truth: CodeTruth, rules: Rules | None = None) -> float:
    return rules.seconds if rules else max(TEST_SECONDS, 2 * (truth.time_limit or 0))


def program_seconds(truth: CodeTruth, rules: Rules | None = None) -> float:
    if rules:
        return rules.seconds * (len(truth.tests) + 1)
    return max(PROGRAM_SECONDS, SECONDS_PER_TEST * len(truth.tests), test_seconds(truth))


def _limits(truth: CodeTruth, cpu_seconds: float) -> Limits:
    return Limits(max(MEMORY, (truth.memory_limit or 0) << 20), cpu_seconds)


def _packages(*programs: str) -> list[str]:
    """Mounting and finding a package takes time, so only where a program names it."""
    return [package for package in PROVIDED if any(package in program for program in programs)]


def _run_stdin(program: str, truth: CodeTruth, rules: Rules | None) -> None:
    same = rules.printed if rules else partial(_same, same_output, truth)
    with Sandbox("stdin", _limits(truth, test_seconds(truth, rules)), _packages(program)) as sandbox:
        sandbox.ready()
        clock = _Clock(truth, sandbox, rules)
        sandbox.send(program.encode("utf-8", "surrogatepass"), clock.next())
        for test in truth.tests:
            _require(same(_print(sandbox, test, clock.next(), bool(rules and rules.may_fail)), test.output))


def _require(is_right: bool) -> None:
    if not is_right:
        raise ProgramFailed(GradeStatus.WRONG, "not what is expected")


def _same(same: Callable[..., bool], truth: CodeTruth, given: Any, expected: Any) -> bool:
    """Whether a result is the expected one, as a float if any test of the problem has one."""
    return same(given, expected) or (
        same(given, expected, floats=True) and any(has_floats(test.output) for test in truth.tests)
    )


def _print(sandbox: Sandbox, test: CodeTest, deadline: float, may_fail: bool = False) -> bytes:
    """Output of the program for a test's input."""
    with _file(test.input.encode("utf-8", "surrogatepass")) as source, _file() as target:
        sandbox.send_descriptors([source, target], deadline)
        answer = sandbox.receive(deadline)
        if not answer:  # No program reaches the process that starts it: this is the machine's.
            raise SandboxFailed("the sandbox could start no process for the program")
        status = os.waitstatus_to_exitcode(int.from_bytes(answer[:4], "big"))
        if status == -signal.SIGXCPU:
            raise ProgramFailed(GradeStatus.TIMEOUT, "its processor time was up")
        if status and not may_fail:
            raise ProgramFailed(GradeStatus.RUNTIME_ERROR, f"it ended with {status}")
        if os.fstat(target).st_size > MAX_BYTES:
            raise ProgramFailed(GradeStatus.RUNTIME_ERROR, "too much output")
        return os.pread(target, MAX_BYTES, 0)


@contextlib.contextmanager
def _file(content: bytes = b"") -> Iterator[int]:
    """A file in memory, without a name, to be read from its start."""
    descriptor = os.memfd_create("test")
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _run_functional(program: str, truth: CodeTruth, rules: Rules | None) -> None:
    same = rules.returned if rules else partial(_same, same_value, truth)
    with Sandbox("candidate", _limits(truth, program_seconds(truth, rules)), _packages(program)) as sandbox:
        sandbox.ready()
        clock = _Clock(truth, sandbox, rules)
        _load(sandbox, program, clock)
        for test in truth.tests:
            expected = _json(test.output)
            lines = test.input.split("\n") if test.input else []
            longest = _FREE_ANSWER + _LONGER_THAN_EXPECTED * len(test.output)
            answer = _ask(sandbox, ["solve", truth.method, lines], clock.next(), longest)
            try:
                value = _read(answer, "value")
                value = value if rules else as_json(value)
            except (ProgramFailed, ValueError, TypeError, AttributeError, RecursionError) as error:
                for line in lines:  # the failure may be the test's
                    _json(line)
                if isinstance(error, ProgramFailed):
                    raise
                raise ProgramFailed(GradeStatus.RUNTIME_ERROR, f"an answer that is none: {error}") from None
            _require(same(value, expected))


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_int=parse_int)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a test with what is not JSON ({error}): {text[:80]}") from None


def _load(sandbox: Sandbox, program: str, clock: _Clock) -> list[str]:
    """Names that the program defines."""
    names = _read(_ask(sandbox, ["load", program], clock.next()), "names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ProgramFailed(GradeStatus.RUNTIME_ERROR, "an answer that is none")
    return names


def _ask(sandbox: Sandbox, request: list[Any], deadline: float, longest: int = _FREE_ANSWER) -> bytes:
    sandbox.send(json.dumps(request).encode(), deadline)
    return sandbox.receive(deadline, longest)


def _read(answer: bytes, key: str) -> Any:
    """An answer's content under its only key; the sender is not trusted."""
    try:
        ((kind, content),) = json.loads(answer, parse_int=parse_int).items()
    except (ValueError, AttributeError, RecursionError) as error:
        raise ProgramFailed(GradeStatus.RUNTIME_ERROR, f"an answer that is none: {error}") from None
    if kind != key:
        raise ProgramFailed(GradeStatus.RUNTIME_ERROR, f"{kind}: {str(content)[:1000]}")
    return content


def _run_check(program: str, truth: CodeTruth, _: Rules | None) -> None:
    """The test program in one sandbox, the model's in another; their messages to each other pass through here.

    Until it has an answer, the test program is what upstream wrote; from then on it is held to a test's time.
    """
    assert truth.code is not None
    packages = _packages(program, truth.code)
    seconds = program_seconds(truth)
    memory = min(_CHECKER_MEMORY, MEMORY + _MEMORY_PER_CHARACTER * len(truth.code))
    with (
        Sandbox("checker", Limits(memory, seconds), packages) as checker,
        Sandbox("candidate", _limits(truth, seconds), packages) as candidate,
    ):
        checker.ready()
        candidate.ready()
        checker.watch_with(candidate)
        clock = _Clock(truth, candidate)
        names = _load(candidate, program, clock)
        if truth.entry_point is not None and truth.entry_point not in names:
            raise ProgramFailed(GradeStatus.RUNTIME_ERROR, f"it does not define {truth.entry_point}")
        checker.send(json.dumps([truth.code, names, truth.entry_point]).encode(), clock.end)
        message, left = checker.receive(clock.end), MAX_ANSWERS
        while message[:1] == CALL:
            deadline = clock.next()
            candidate.send(message[1:], deadline)
            answer = candidate.receive(deadline, left)
            left -= len(answer)
            checker.send(answer, clock.end)
            message = checker.receive(clock.next())
    verdict = message.removeprefix(VERDICT).decode()
    if verdict == "nothing":
        raise ValueError("the test program asks nothing of a solution; expected one that calls it")
    if verdict.startswith(UNDEFINED):
        undefined = verdict.removeprefix(UNDEFINED)
        raise ValueError(f"the test program uses {undefined}, which it does not define; expected its own helpers in it")
    if verdict != "correct":
        verdicts = {"wrong": GradeStatus.WRONG, "error": GradeStatus.RUNTIME_ERROR}
        raise ProgramFailed(verdicts[verdict], "the test program failed")


def same_output(given: bytes, expected: str, *, floats: bool = False) -> bool:
    """Compare printed output, token by token; tokens are separated by white space (ASCII), lines do not matter.

    An expected token that is a number with a point or an exponent is met by any number within `TOLERANCE` (1e-6,
    absolute or relative), and with `floats` an expected integer as well: `3.0` for `3`. Every other token must be the
    same bytes: integers, words, and nan or inf.
    """
    wanted = expected.encode("utf-8", "surrogatepass").split()
    tokens = given.split(maxsplit=len(wanted))  # of a flood of tokens no more than tell that it is one
    if len(tokens) != len(wanted):
        return False
    return all(token == want or _close_tokens(token, want, floats) for token, want in zip(tokens, wanted, strict=True))


def has_floats(expected: str) -> bool:
    """Whether a token of an expected output, or a number in JSON, is a float: then this problem means floats."""
    return _HAS_FLOAT(expected) is not None


def same_value(given: Any, expected: Any, *, floats: bool = False) -> bool:
    """Compare a returned value (types of JSON, and tuples, which are lists) with a value of JSON, deeply.

    A number is met by a number of the same value, and by any within `TOLERANCE` (1e-6, absolute or relative) where the
    expected one is a float; NaN by NaN. True is not 1. With `floats`, an integer is met by such a float.
    """
    if isinstance(expected, list):
        if not isinstance(given, list | tuple) or len(given) != len(expected):
            return False
        return all(same_value(*pair, floats=floats) for pair in zip(given, expected, strict=True))
    if isinstance(expected, dict):
        if not isinstance(given, dict) or given.keys() != expected.keys():
            return False
        return all(same_value(given[key], value, floats=floats) for key, value in expected.items())
    if isinstance(expected, bool) or isinstance(given, bool):
        return given is expected
    if isinstance(expected, float) or (floats and isinstance(expected, int) and isinstance(given, float)):
        return isinstance(given, int | float) and _close(given, expected)
    if isinstance(expected, int):
        return isinstance(given, int | float) and given == expected
    return type(given) is type(expected) and given == expected


def parse_int(digits: str) -> Any:
    """Read integers for `json.loads` of values to compare: integers of any length, the longest by their digits."""
    return int(digits) if len(digits) <= _MAX_DIGITS else (digits,)


def _close_tokens(token: bytes, want: bytes, floats: bool) -> bool:
    if not _IS_NUMBER(want) or not _IS_NUMBER(token):
        return False
    if _IS_INTEGER(want) and (not floats or _IS_INTEGER(token)):
        return False
    return _close(float(token), float(want))


def _close(given: float, expected: float) -> bool:
    if isinstance(expected, float) and not math.isfinite(expected):
        return given == expected or (math.isnan(expected) and given != given)
    try:
        return abs(given - expected) <= TOLERANCE * max(1.0, abs(expected))
    except OverflowError:  # an integer beyond the range of floats
        return False


_RUNNERS = {"stdin": _run_stdin, "functional": _run_functional, "check": _run_check}
