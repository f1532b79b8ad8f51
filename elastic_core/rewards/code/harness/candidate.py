"""Runs the model's program: `main` answers calls of its functions, `stdin` runs it per test, in a process each.

Everything here is in the program's reach, so nothing here is believed: an answer is data, compared by who asks.

Requests are lists, answers objects of one key:
    ["load", program]                     → {"names": […]}, the callables it defines
    ["call", path, arguments, keywords]   → {"value": …}, or {"object": number} of a new instance of one of its classes
    ["get", path]                         → {"value": …}, or {"object": number} when it can only be called
    ["solve", method, lines]              → {"value": …}, each line being an argument in JSON
and {"error": [type, message]} when the program raised. A path starts with a name or an object's number.

Of `stdin`, the program's input and output are files without a name that the grader made and reads: a program finds the
size of its input by `os.fstat(0)`, and its output goes straight to a file. Its process has no other open descriptor.
"""

from __future__ import annotations

import builtins
import json
import os
import signal
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

from . import HEADER, Untransportable, apply_filter, decode, encode, start
from .stand_ins import use_threads

MODULE = "solution"
_MAX_DESCRIPTORS = 4096


class Candidate:
    def __init__(self, names: dict[str, Any]) -> None:
        self._module = ModuleType(MODULE)
        # Among the builtins, so that the module holds the program's names alone: "median" must not be found in the
        # prelude when the program lacks it.
        self._module.__dict__["__builtins__"] = {**vars(builtins), **names}
        self._objects: list[Any] = []
        sys.modules[MODULE] = self._module

    def load(self, program: str) -> dict[str, Any]:
        # Bytes, like a file's: a lone surrogate is then a syntax error and does not end this process.
        code = program.encode("utf-8", "surrogatepass")
        use_threads(code)
        exec(compile(code, "program.py", "exec", dont_inherit=True), self._module.__dict__)
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
    channel.close_socket()
    apply_filter(program_filter)
    candidate = Candidate(names)
    while True:
        operation, *arguments = json.loads(channel.receive())
        try:
            answer = json.dumps(getattr(candidate, operation)(*arguments))
        except BaseException as error:  # a program may raise anything, SystemExit too, and the next request comes
            answer = json.dumps({"error": [type(error).__name__, _message(error)]})
        channel.send(answer.encode())


def _message(error: BaseException) -> str:
    try:
        return str(error)[:1000]
    except Exception:  # an exception's `__str__` may raise
        return ""


def stdin() -> None:
    channel, names, program_filter = start()
    program = channel.receive()
    while True:
        source, target = channel.receive_descriptors()
        try:
            child = os.fork()
        except OSError:  # The user's limit on processes; an empty frame says so.
            channel.send(b"")
            continue
        if child == 0:
            os.dup2(source, 0)
            os.dup2(target, 1)
            channel.close_socket()
            os.closerange(3, _MAX_DESCRIPTORS)
            apply_filter(program_filter)
            module = ModuleType("__main__")
            module.__dict__.update(names, __name__="__main__")
            sys.modules["__main__"] = module
            use_threads(program)
            exec(compile(program, "program.py", "exec", dont_inherit=True), module.__dict__)
            return  # That ends the process as any Python program ends: output flushed, threads joined, exit code set.
        os.close(source)
        os.close(target)
        _, status = os.waitpid(child, 0)
        with suppress(ProcessLookupError):  # Processes that a test left behind, should it have found a way to.
            os.kill(-1, signal.SIGKILL)
        channel.send(HEADER.pack(status))
