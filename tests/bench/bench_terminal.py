"""How long someone waits at the terminal: until the first line of a command, until its end, and for a run that has
nothing to do. Writes runs/bench/terminal.json.

Run by hand for less: `python -m tests.bench.bench_terminal --rounds 1`. What a run needs is made once, with the smoke
preset; its stages' seconds are among the figures.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.bench import results

ELASTIC = [sys.executable, "-u", "-m", "flows.commands"]
PIPELINE = ("run", "pipeline", "--preset", "smoke")
COMMANDS = {
    "help": ("--help",),
    "presets": ("presets",),
    "doctor": ("doctor",),
    "plan": ("plan", "sweep", "--preset", "smoke"),
    "status": ("status",),
    "second_run": PIPELINE,
}


class Waited(NamedTuple):
    """Seconds from the start of a command."""

    first_line: float
    end: float
    said: str


def wait_for(arguments: tuple[str, ...], runs: str) -> Waited:
    """Run a command and read what it says as it comes."""
    began = time.monotonic()
    with subprocess.Popen(
        [*ELASTIC, *arguments],
        env={**os.environ, "ELASTIC_RUNS": runs},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        first_line = time.monotonic() - began
        said = first + process.stdout.read()
    if process.returncode:
        # A doctor that finds something wrong with this machine says so and is timed all the same.
        print(f"{' '.join(arguments)} ended with {process.returncode}: {said}", flush=True)
    return Waited(first_line, time.monotonic() - began, said)


def stage_seconds(said: str) -> dict[str, float]:
    """Of each stage, from what a pipeline says at its end."""
    (line,) = (line for line in said.splitlines() if line.startswith("pipeline finished in "))
    return {name: float(seconds) for name, seconds in re.findall(r"([\w-]+) (\d+)", line.partition(": ")[2])}


def main(options: argparse.Namespace) -> None:
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as runs:
        first_run = wait_for(PIPELINE, runs)
        figures["first_run.seconds"] = first_run.end
        figures |= {f"first_run.{name}.seconds": seconds for name, seconds in stage_seconds(first_run.said).items()}
        for name, arguments in COMMANDS.items():
            waited = [wait_for(arguments, runs) for _ in range(options.rounds)]
            figures[f"{name}.first_line.seconds"] = statistics.median(each.first_line for each in waited)
            figures[f"{name}.seconds"] = statistics.median(each.end for each in waited)
    for name, value in figures.items():
        print(f"{name:32} {value:.1f}")
    results.write("terminal", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    main(parser.parse_args())
