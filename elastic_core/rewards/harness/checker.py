"""Runs a test program whose calls of the solution are answered by another sandbox.

The names that the test program uses and the solution defines are proxies here. They carry arguments there and values
back, so nothing of the model's runs in this process: its verdict depends on the values alone.

A test program raises when the solution is wrong: while it runs from top to bottom, or in its tests, which are called
afterwards as pytest would: functions `test_*`, and methods `test*` of classes `Test*`, each on an instance of its own
after its `setUp` or `setup_method`. Other fixtures and parameters are not supported: such a test is an error.

Not carried: changes that the solution makes to its arguments. A value that cannot be carried ends the check.
"""

from __future__ import annotations

import ast
import builtins
import json
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from .start import Channel, start
from .wire import Untransportable, decode, encode

CALL, VERDICT = b"C", b"V"
"""First byte of a frame to the grader: a request for the candidate, or "correct", "wrong", "error", or "nothing" when
whatever the solution is, the test program asks nothing of it."""

DEPTH = 2_000
"""Of recursion. More would let an answer that is nested deeply overflow the stack of this process."""


class NotCarried(BaseException):
    """Not an Exception: a test program that expects the solution to raise must not take it for that."""


class Candidate:
    """The other side, through the grader."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.raised: BaseException | None = None
        self.asked = False

    def ask(self, *request: Any) -> Any:
        """Value, or proxy of an object that stays there. Raises what the solution raised."""
        self.asked = True
        self._channel.send(CALL + json.dumps(request).encode())
        try:
            ((kind, content),) = json.loads(self._channel.receive()[0]).items()
            if kind == "value":
                return decode(content)
            if kind == "object":
                return Proxy(self, [int(content)])
            name, message = map(str, content)
        except (Untransportable, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise NotCarried(f"an answer that is none: {error}") from None
        if name == Untransportable.__name__:
            raise NotCarried(message)
        self.raised = _exception(name, message)
        raise self.raised


class Proxy:
    """Stands for a function, class or object of the solution; what it cannot forward, it refuses."""

    def __init__(self, candidate: Candidate, path: list[Any]) -> None:
        self._candidate = candidate
        self._path = path

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        try:
            request = ["call", self._path, encode(list(arguments)), encode(keywords)]
        except (Untransportable, RecursionError) as error:
            raise NotCarried(f"an argument: {error}") from None
        return self._candidate.ask(*request)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._candidate.ask("get", [*self._path, name])

    def _refuse(self, *_: Any) -> NoReturn:
        raise NotCarried("an object of the solution was used as a value")

    # Python's own answers would let a comparison with an object pass: it is true, and unequal to everything.
    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __len__ = __iter__ = __contains__ = _refuse  # type: ignore[assignment]
    __hash__ = _refuse  # type: ignore[assignment]


def main() -> None:
    channel, names, _ = start()
    sys.setrecursionlimit(DEPTH)
    code, defined, entry_point = json.loads(channel.receive()[0])
    channel.send(VERDICT + _verdict(code, defined, entry_point, names, Candidate(channel)).encode())


def _verdict(
    code: str, defined: list[str], entry_point: str | None, names: dict[str, Any], candidate: Candidate
) -> str:
    module = ModuleType("__main__")
    # The prelude's modules, which some test programs use; its functions might stand in for a missing solution.
    module.__dict__.update((name, value) for name, value in names.items() if isinstance(value, ModuleType))
    # A solution must not replace what the test program relies on, unless that is what is tested.
    kept = {*vars(module), *dir(builtins)} - {entry_point}
    try:
        for name in _used_names(code).intersection(defined) - kept:
            module.__dict__[name] = Proxy(candidate, [name])
        sys.modules["__main__"] = module
        exec(compile(code, "check.py", "exec", dont_inherit=True), module.__dict__)
        for test in _tests(module):
            if test() is not None:
                raise TypeError("a test returned something: a coroutine, say, of which nothing has run")
    except BaseException as error:  # SystemExit too: only a test program that ran to its end has passed
        return "wrong" if isinstance(error, AssertionError) and error is not candidate.raised else "error"
    if candidate.asked:
        return "correct"
    return "error" if _missing_names(code) - kept else "nothing"


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


def _used_names(code: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}


def _missing_names(code: str) -> set[str]:
    """Names that the test program uses and does not define: it expects them of a solution."""
    from symtable import symtable  # seldom needed

    tables = [symtable(code, "check.py", "exec")]
    for table in tables:  # which grows
        tables += table.get_children()
    symbols = [symbol for table in tables for symbol in table.get_symbols() if symbol.is_global()]
    used = {symbol.get_name() for symbol in symbols if symbol.is_referenced()}
    return used - {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}


def _exception(name: str, message: str) -> Exception:
    """The builtin exception of this name, for test programs that expect it; others are a RuntimeError."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(message)
        except TypeError:  # it takes more than a message
            pass
    return RuntimeError(f"{name}: {message}")
