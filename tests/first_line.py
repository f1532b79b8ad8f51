"""What a command has imported when it begins to answer, in a process of its own."""

import shlex
import subprocess
import sys
from pathlib import Path

from tests.elastic_command import environment

HEAVY = {
    *("torch", "transformers", "vllm", "verl", "ray", "prefect", "mlflow", "matplotlib", "gradio"),
    *("scipy", "sklearn", "pandas", "sympy", "math_verify", "aiohttp", "httpx", "datasets"),
}
"""Modules that take a tenth of a second or more."""
FOR_DATA = {"polars", "numpy"}
"""Modules that a command needs once it looks at data, and its --help does not."""
_COMMAND = """
import io, os, sys

class FirstLine(io.RawIOBase):
    def writable(self):
        return True

    def write(self, line):
        os.write(1, bytes(line).splitlines()[0] + b"\\n" + " ".join(sys.modules).encode())
        os._exit(0)

sys.stdout = sys.stderr = io.TextIOWrapper(io.BufferedWriter(FirstLine()), line_buffering=True)
from flows.commands.cli import main
main()
"""


def heavy_before(command: str, runs: Path) -> tuple[str, set[str]]:
    """The first line of an `elastic` command, and what is heavy of its imports until then. It ends there."""
    said = subprocess.run(
        [sys.executable, "-c", _COMMAND, *shlex.split(command)],
        env=environment(runs),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    line, modules = said.split("\n")
    return line, (HEAVY | FOR_DATA if "--help" in command else HEAVY) & set(modules.split())
