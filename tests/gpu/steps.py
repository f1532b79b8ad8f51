"""The steps of `make gpu`: each is recorded, and one that has passed is not repeated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Literal

from elastic_core.errors import UserError
from elastic_core.system.files import write_text


@dataclass(frozen=True)
class Step:
    """A function that returns what was seen, or raises UserError; names of the steps that it `needs`, the model that it
    loads where there is a choice, why it is skipped on this machine, and about how many `seconds` it takes."""

    name: str
    title: str
    run: Callable[[], str]
    needs: tuple[str, ...] = ()
    model: str = ""
    skip: str = ""
    seconds: float = 0


@dataclass(frozen=True)
class Record:
    """A step's last attempt: what was seen, why it was skipped, or what failed (`told`), on which machine and model
    (`where`), by which commit of the code."""

    name: str
    title: str
    verdict: Literal["passed", "skipped", "failed"]
    seconds: float
    told: str
    where: str
    commit: str


def run_steps(
    steps: Sequence[Step],
    directory: Path,
    *,
    where: str,
    commit: str,
    say: Callable[[str], None],
    minutes: float = inf,
) -> Iterator[Record]:
    """Run what has not passed yet at this `where` and `commit`, with lines of progress to `say`, and yield each record,
    kept in the directory. A step that fails stops only those that need it; one that would not end within the `minutes`
    is left out."""
    passed: set[str] = set()
    end = time.monotonic() + 60 * minutes
    for step in steps:
        file = directory / f"{step.name}.json"
        record = Record(**json.loads(file.read_text())) if file.exists() else None
        unmet = [name for name in step.needs if name not in passed]
        here = ", ".join(filter(None, (where, step.model)))
        if record and (record.verdict, record.where, record.commit) == ("passed", here, commit) and not unmet:
            say(f"{step.name}: passed before")
        else:
            say(f"{step.name}: {step.title}")
            skip = f"it needs {' and '.join(unmet)}, which did not pass" if unmet else step.skip
            left = end - time.monotonic()
            if not skip and step.seconds > left:
                skip = f"left out: it takes about {step.seconds:.0f} s, and {max(0, left):.0f} s were left"
            verdict: Literal["passed", "skipped", "failed"]
            started = time.monotonic()
            try:
                verdict, told = ("skipped", skip) if skip else ("passed", step.run())
            except UserError as error:
                verdict, told = "failed", str(error)
            seconds = round(time.monotonic() - started, 1)
            record = Record(step.name, step.title, verdict, seconds, told, here, commit)
            write_text(file, json.dumps(asdict(record), indent=2) + "\n")
            say(f"{step.name}: {verdict} in {seconds:.0f} s: {told}")
        if record.verdict == "passed":
            passed.add(step.name)
        yield record
