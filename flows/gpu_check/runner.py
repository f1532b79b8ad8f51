"""Steps in order, each with its time and verdict, which are kept: what passed on this machine, with this code, is not
repeated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from elastic_core.errors import UserError
from elastic_core.files import write_text


class NotHere(Exception):
    """Why a step is skipped on this machine: one sentence."""


@dataclass(frozen=True)
class Step:
    """Something to be shown.

    Attributes:
        title: of its row.
        run: does it, and returns what was seen, in a sentence; raises NotHere or UserError.
        needs: names of the steps that must have passed.
        model: what it loads, where that may be one or another.
    """

    name: str
    title: str
    run: Callable[[], str]
    needs: tuple[str, ...] = ()
    model: str = ""


@dataclass(frozen=True)
class Record:
    """What is kept of a step.

    Attributes:
        seconds: of its last attempt.
        told: what was seen, why it was skipped, or what failed.
        where: the machine's name and the model that was used.
        commit: of the code that ran.
    """

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
    finished: Callable[[list[Record]], None] = lambda records: None,
) -> list[Record]:
    """Run what has not passed yet. A step that fails stops only those that need it.

    Args:
        directory: where records are kept, one file a step.
        where, commit: the machine's name, and the code's; a record of another one is not taken.
        say: shows a line of progress.
        finished: called with all records so far after each step.
    """
    records: dict[str, Record] = {}
    for step in steps:
        file = directory / f"{step.name}.json"
        record = read_record(file)
        unmet = [name for name in step.needs if records[name].verdict != "passed"]
        here = ", ".join(filter(None, (where, step.model)))
        wanted = ("passed", here, commit)
        if record is not None and (record.verdict, record.where, record.commit) == wanted and not unmet:
            say(f"{step.name}: passed before")
        else:
            say(f"{step.name}: {step.title}")
            record = _attempt(step, unmet, here, commit)
            write_text(file, json.dumps(asdict(record), indent=2) + "\n")
            say(f"{step.name}: {record.verdict} in {record.seconds:.0f} s: {record.told}")
        records[step.name] = record
        finished(list(records.values()))
    return list(records.values())


def read_record(file: Path) -> Record | None:
    """A step's record; None when it has none."""
    return Record(**json.loads(file.read_text())) if file.exists() else None


def _attempt(step: Step, unmet: Sequence[str], where: str, commit: str) -> Record:
    started = time.monotonic()
    verdict: Literal["passed", "skipped", "failed"] = "passed"
    try:
        if unmet:
            raise NotHere(f"it needs {' and '.join(unmet)}, which did not pass")
        told = step.run()
    except NotHere as reason:
        verdict, told = "skipped", str(reason)
    except UserError as error:
        verdict, told = "failed", str(error)
    return Record(step.name, step.title, verdict, round(time.monotonic() - started, 1), told, where, commit)
