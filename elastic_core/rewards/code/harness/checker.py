"""Runs a test program; another sandbox answers its calls of the solution, through proxies.

The solution has the entry point where there is one, else `Solution` where the test program expects that, else all names
that it uses and does not define. It raises when the solution is wrong: while it runs from top to bottom, or in its
tests, called as by pytest (functions `test_*`, methods `test*` of classes `Test*`, after `setUp` or `setup_method`).

Not carried: changes that the solution makes to its arguments. A value that cannot be carried ends the check, and so
does NaN or an infinity where the test program does not speak of it: `if abs(a - b) > tolerance: raise` lets NaN pass.
"""

from __future__ import annotations

import ast
import builtins
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from . import Channel, Untransportable, decode, encode, start

CALL, VERDICT = b"C", b"V"
"""First byte of a frame to the grader: a request for the candidate, or "correct", "wrong", "error", "nothing" when
the test program calls no solution, or "undefined" and the names that neither side defines."""
UNDEFINED = "undefined "

DEPTH = 2_000  # Of recursion. More would let an answer that is nested deeply overflow the stack of this process.

_NAN = re.compile(r"(?<![a-z])(?:is_?)?nan(?![a-z])", re.IGNORECASE)
_INFINITY = re.compile(r"(?<![a-z])(?:is_?)?inf(?:inity)?(?![a-z])", re.IGNORECASE)


class NotCarried(BaseException):
    """Not an Exception: a test program that expects the solution to raise must not take it for that."""


class NotFinite(NotCarried):
    """A number that no test program of this kind expects."""


class Candidate:
    """The other side, through the grader."""

    def __init__(self, channel: Channel, code: str) -> None:
        self._channel = channel
        self._expected = {"NaN": bool(_NAN.search(code)), "Infinity": bool(_INFINITY.search(code))}
        self.raised: BaseException | None = None
        self.refused: NotCarried | None = None  # ends the check, also when the test program has caught it
        self.was_called = False

    def refuse(self, error: NotCarried) -> NoReturn:
        self.refused = error
        raise error

    def _number(self, text: str) -> float:
        value = float(text)
        if not math.isfinite(value) and not self._expected["NaN" if math.isnan(value) else "Infinity"]:
            self.refuse(NotFinite(f"a result that is {value}"))
        return value

    def ask(self, *request: Any) -> Any:
        """Value, or proxy of an object that stays there. Raises the solution's error."""
        self.was_called = True
        self._channel.send(CALL + json.dumps(request).encode())
        try:
            answer = json.loads(self._channel.receive(), parse_float=self._number, parse_constant=self._number)
            ((kind, content),) = answer.items()
            if kind == "value":
                return decode(content)
            if kind == "object" and type(content) is int:
                return Proxy(self, [content])
            if kind != "error":
                raise Untransportable(f"an answer of kind {kind}")
            name, message = map(str, content)
        except (Untransportable, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            self.refuse(NotCarried(f"an answer that is none: {error}"))
        if name == Untransportable.__name__:
            self.refuse(NotCarried(message))
        self.raised = _exception(name, message)
        raise self.raised


class Proxy:
    """Stands for a function, class or object of the solution; refuses other uses than calls and attributes."""

    def __init__(self, candidate: Candidate, path: list[Any]) -> None:
        self._candidate = candidate
        self._path = path

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        try:
            request = ["call", self._path, encode(list(arguments)), encode(keywords)]
        except (Untransportable, RecursionError) as error:
            self._candidate.refuse(NotCarried(f"an argument: {error}"))
        return self._candidate.ask(*request)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._candidate.ask("get", [*self._path, name])

    def _refuse(self, *_: Any) -> NoReturn:
        self._candidate.refuse(NotCarried("an object of the solution was used as a value"))

    # Python's defaults would let a comparison with an object pass: it is true, and unequal to everything.
    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __len__ = __iter__ = __contains__ = _refuse  # type: ignore[assignment]
    __hash__ = __str__ = __repr__ = __format__ = _refuse  # type: ignore[assignment]


def main() -> None:
    channel, names, _ = start()
    channel.close_socket()
    sys.setrecursionlimit(DEPTH)
    code, defined, entry_point = json.loads(channel.receive())
    channel.send(VERDICT + _verdict(code, defined, entry_point, names, Candidate(channel, code)).encode())


def _verdict(
    code: str, defined: list[str], entry_point: str | None, names: dict[str, Any], candidate: Candidate
) -> str:
    module = ModuleType("__main__")
    # The prelude's modules, which some test programs use.
    module.__dict__.update((name, value) for name, value in names.items() if isinstance(value, ModuleType))
    expected, failure = set[str](), None
    try:
        tree = ast.parse(code)
        # Names that such imports define cannot be read from the text.
        froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        stars: list[ast.stmt] = [node for node in froms if node.names[0].name == "*"]
        exec(compile(ast.Module(stars, []), "check.py", "exec", dont_inherit=True), module.__dict__)
        # A solution must not replace names that the test program relies on, except for the entry point.
        missing = _missing_names(code) - ({*vars(module), *dir(builtins)} - {entry_point})
        if entry_point is not None:
            expected = {entry_point}
        else:  # `median` alone is a solution's; with others it is the prelude's.
            expected = {"Solution"} if "Solution" in missing else missing - names.keys() or missing
        if undefined := missing - expected - names.keys():
            return UNDEFINED + ", ".join(sorted(undefined))
        module.__dict__.update((name, names[name]) for name in missing - expected)
        module.__dict__.update((name, Proxy(candidate, [name])) for name in expected.intersection(defined))
        sys.modules["__main__"] = module
        exec(compile(tree, "check.py", "exec", dont_inherit=True), module.__dict__)
        for test in _tests(module):
            if test() is not None:
                raise TypeError("a test returned something: a coroutine, say, of which nothing has run")
    except BaseException as error:  # SystemExit too: only a test program that ran to its end has passed
        failure = "wrong" if isinstance(error, AssertionError) and error is not candidate.raised else "error"
    if candidate.refused:
        return "wrong" if isinstance(candidate.refused, NotFinite) else "error"
    if failure or candidate.was_called:
        return failure or "correct"
    return "error" if expected & missing else "nothing"


def _tests(module: ModuleType) -> Iterator[Callable[[], Any]]:
    for name, value in list(vars(module).items()):
        if name.startswith("test_") and isinstance(value, FunctionType):
            yield value
        elif name.startswith("Test") and isinstance(value, type):
            for method in dir(value):
                if method.startswith("test") and callable(getattr(value, method)):
                    yield getattr(_instance(value, method), method)


def _instance(kind: type, method: str) -> Any:
    unittest = sys.modules.get("unittest")  # a test program that uses it has imported it
    instance = kind(method) if unittest and issubclass(kind, unittest.TestCase) else kind()
    for name in ("setUp", "setup_method"):
        getattr(instance, name, lambda: None)()
    return instance


def _missing_names(code: str) -> set[str]:
    """Names that the test program uses and does not define."""
    from symtable import symtable  # seldom needed

    tables = [symtable(code, "check.py", "exec")]
    for table in tables:  # which grows
        tables += table.get_children()
    symbols = [symbol for table in tables for symbol in table.get_symbols() if symbol.is_global()]
    used = {symbol.get_name() for symbol in symbols if symbol.is_referenced()}
    return used - {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}


def _exception(name: str, message: str) -> Exception:
    """The builtin exception of this name, for test programs that expect it. Others are a RuntimeError, and
    StopIteration too: it would quietly end the test program's `all(map(f, cases))`."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and kind not in (StopIteration, StopAsyncIteration):
        with suppress(TypeError):  # it takes more than a message
            return kind(message)
    return RuntimeError(f"{name}: {message}")
