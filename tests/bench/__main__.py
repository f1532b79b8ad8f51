"""Every bench, or those that are named, one after the other, each in a process of its own, and a table of their figures
at the end: `python -m tests.bench demo terminal`.

A bench that lacks something says what and how to get it. One that fails leaves the others alone, and is what `make
bench` exits with.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench import results

BENCHES = sorted(file.stem.removeprefix("bench_") for file in Path(__file__).parent.glob("bench_*.py"))


def run(bench: str) -> tuple[int, list[str]]:
    """Exit status, and what was skipped. What the bench prints is passed on as it comes."""
    skipped = []
    command = [sys.executable, "-u", "-m", f"tests.bench.bench_{bench}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith(results.SKIPPED):
                skipped.append(line.removeprefix(results.SKIPPED).strip())
    return process.returncode, skipped


def figures(since: float) -> Table:
    """Those that have been written since then, beside what they were before (`results.BEFORE`)."""
    table = Table("bench", "figure", "before", "value", "unit")
    for file in sorted(results.directory().glob("*.json")):
        if file.stat().st_mtime >= since:
            before = results.before(file.stem)
            for name, value, unit in results.flat(json.loads(file.read_text())):
                table.add_row(file.stem, name, before.get(name, ""), value, unit)
    return table


def main(benches: Sequence[str]) -> int:
    since, failed, skipped = time.time(), [], {}
    for bench in benches:
        print(f"== {bench}", flush=True)
        status, skipped[bench] = run(bench)
        failed += [bench] if status else []
    # A figure in a log must not be cut to the width of a terminal that is not there.
    Console(soft_wrap=True, width=None if sys.stdout.isatty() else 160).print(figures(since))
    for bench, reasons in skipped.items():
        for reason in reasons:
            print(f"{bench}: {results.SKIPPED}{reason}")
    for bench in failed:
        print(f"{bench}: failed, see above")
    return int(bool(failed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("bench", nargs="*", metavar="BENCH", help=f"{', '.join(BENCHES)}; all by default")
    named = parser.parse_args().bench
    for name in set(named) - set(BENCHES):
        parser.error(f"no bench {name}; expected {', '.join(BENCHES)}")
    sys.exit(main(named or BENCHES))
