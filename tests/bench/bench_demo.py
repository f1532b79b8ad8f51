"""A newcomer's first hour: a fresh clone, its installation, `make demo` in it, and `make demo` again, which has nothing
to do. Seconds of each and of every stage, how long the first step and the first rows took to come, and the most memory
that the machine used more than before. Writes runs/bench/demo.json.

Takes ten minutes on 2 idle cores; what lies on them besides is measured too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import mlflow
import psutil

from flows.runtime.environment import RUNS_VARIABLE
from tests.bench import results
from tests.bench.bench_terminal import stage_seconds

ROOT = Path(__file__).parents[2]
WAITS = {"first_step_seconds", "first_rows_seconds"}
"""What MLflow keeps of how soon a stage showed something."""


class PeakMemory(threading.Thread):
    """GiB that the machine uses at most, above what it used at the beginning; for a `with` block."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self._before = psutil.virtual_memory().used
        self._most = self._before

    def run(self) -> None:
        while not self._ended.wait(0.5):
            self._most = max(self._most, psutil.virtual_memory().used)

    def __enter__(self) -> PeakMemory:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()

    @property
    def gib(self) -> float:
        return (self._most - self._before) / 2**30


def make(target: str, clone: Path) -> tuple[float, str]:
    """Seconds, and what it said."""
    began = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != RUNS_VARIABLE}
    # A pipeline tells its stages on stderr.
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(["make", target], cwd=clone, env=environment, text=True, check=True, **output)
    print(done.stdout, end="", flush=True)
    return time.monotonic() - began, done.stdout


def waits(runs: Path) -> dict[str, float]:
    """The metrics of WAITS, from all runs of a runs directory."""
    mlflow.set_tracking_uri(f"sqlite:///{runs / 'mlflow.db'}")
    found = mlflow.search_runs(search_all_experiments=True, output_format="list")
    return {name: value for run in found for name, value in run.data.metrics.items() if name in WAITS}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, PeakMemory() as memory:
        clone = Path(directory) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        install, _ = make("install", clone)
        demo, said = make("demo", clone)
        again, _ = make("demo", clone)
        figures = {
            "install_seconds": install,
            "demo_seconds": demo,
            "install_and_demo_seconds": install + demo,
            "again_seconds": again,
            **{f"{stage}_seconds": seconds for stage, seconds in stage_seconds(said).items()},
            **waits(clone / "runs"),
        }
    figures["peak_gib"] = memory.gib
    for name, value in figures.items():
        print(f"{name:28} {value:.1f}")
    results.write("demo", figures)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
