"""Runs a test program whose calls of the solution are answered by another sandbox.

The names that the test program uses and the solution defines are proxies here. They carry arguments there and values
back, so nothing of the model's runs in this process: its verdict depends on the values alone.

Not carried: changes that the solution makes to its arguments. A value that cannot be carried ends the check.
"""

from __future__ import annotations

import ast
import builtins
import json
import sys
from types import ModuleType
from typing import Any, NoReturn

from .start import Channel, start
from .wire import Untransportable, decode, encode

CALL, VERDICT = b"C", b"V"
"""First byte of a frame to the grader: a request for the candidate, or "correct", "wrong" or "error"."""

DEPTH = 2_000
"""Of recursion. More would let an answer that is nested deeply overflow the stack of this process."""


class NotCarried(BaseException):
    """Not an Exception: a test program that expects the solution to raise must not take it for that."""


class Candidate:
    """The other side, through the grader."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.raised: BaseException | None = None

    def ask(self, *request: Any) -> Any:
        """Value, or proxy of an object that stays there. Raises what the solution raised."""
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
    code, defined = json.loads(channel.receive()[0])
    channel.send(VERDICT + _verdict(code, defined, names, Candidate(channel)).encode())


def _verdict(code: str, defined: list[str], names: dict[str, Any], candidate: Candidate) -> str:
    try:
        module = ModuleType("__main__")
        # The prelude's modules, which some test programs use; its functions might stand in for a missing solution.
        module.__dict__.update((name, value) for name, value in names.items() if isinstance(value, ModuleType))
        for name in _used_names(code).intersection(defined).difference(vars(module), dir(builtins)):
            module.__dict__[name] = Proxy(candidate, [name])
        sys.modules["__main__"] = module
        exec(compile(code, "check.py", "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:  # SystemExit too: only a test program that ran to its end has passed
        return "wrong" if isinstance(error, AssertionError) and error is not candidate.raised else "error"
    return "correct"


def _used_names(code: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}


def _exception(name: str, message: str) -> Exception:
    """The builtin exception of this name, for test programs that expect it; others are a RuntimeError."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(message)
        except TypeError:  # it takes more than a message
            pass
    return RuntimeError(f"{name}: {message}")
