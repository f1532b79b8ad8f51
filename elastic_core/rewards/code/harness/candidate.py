"""Holds the model's program and answers calls of what it defines.

Everything here is in the program's reach, so nothing here is believed: an answer is data, and the asking process
compares it.

Requests are lists, answers objects of one key:
    ["load", program]                     → {"names": […]}, the callables it defines
    ["call", path, arguments, keywords]   → {"value": …}, or {"object": number} of a new instance of one of its classes
    ["get", path]                         → {"value": …}, or {"object": number} when it can only be called
    ["solve", method, lines]              → {"value": …}, each line being an argument in JSON
and {"error": [type, message]} when the program raised. A path starts with a name or an object's number.
"""

from __future__ import annotations

import builtins
import json
import sys
from types import ModuleType
from typing import Any

from . import Untransportable, apply_filter, decode, encode, start

MODULE = "solution"


class Candidate:
    def __init__(self, names: dict[str, Any]) -> None:
        self._module = ModuleType(MODULE)
        # Among the builtins, so that the module holds what the program defines: "median" must not be found in the
        # prelude when the program lacks it.
        self._module.__dict__["__builtins__"] = {**vars(builtins), **names}
        self._objects: list[Any] = []
        sys.modules[MODULE] = self._module

    def load(self, program: str) -> dict[str, Any]:
        # Bytes, like a file's: a lone surrogate is then a syntax error and does not end this process.
        exec(
            compile(program.encode("utf-8", "surrogatepass"), "program.py", "exec", dont_inherit=True),
            self._module.__dict__,
        )
        return {"names": [name for name, value in vars(self._module).items() if callable(value)]}

    def call(self, path: list[Any], arguments: Any, keywords: Any) -> dict[str, Any]:
        called = self._find(path)
        value = called(*decode(arguments), **decode(keywords))
        return self._answer(value, keep=isinstance(called, type))

    def get(self, path: list[Any]) -> dict[str, Any]:
        value = self._find(path)
        return self._answer(value, keep=callable(value))

    def solve(self, method: str, lines: list[str]) -> dict[str, Any]:
        solution = self._module.__dict__.get("Solution")
        owner = self._module if solution is None or not hasattr(solution, method) else solution()
        return self._answer(getattr(owner, method)(*map(json.loads, lines)), keep=False)

    def _find(self, path: list[Any]) -> Any:
        start, *attributes = path
        found = self._objects[start] if isinstance(start, int) else getattr(self._module, start)
        for attribute in attributes:
            found = getattr(found, attribute)
        return found

    def _answer(self, value: Any, keep: bool) -> dict[str, Any]:
        try:
            return {"value": encode(value)}
        except Untransportable:
            if not keep:
                raise
        self._objects.append(value)
        return {"object": len(self._objects) - 1}


def main() -> None:
    channel, names, program_filter = start()
    apply_filter(program_filter)
    candidate = Candidate(names)
    while True:
        operation, *arguments = json.loads(channel.receive()[0])
        try:
            answer = json.dumps(getattr(candidate, operation)(*arguments))
        except BaseException as error:  # a program may raise anything, SystemExit too, and goes on being asked
            answer = json.dumps({"error": [type(error).__name__, _message(error)]})
        channel.send(answer.encode())


def _message(error: BaseException) -> str:
    try:
        return str(error)[:1000]
    except Exception:  # an exception of the program's own may fail to say what it is
        return ""
