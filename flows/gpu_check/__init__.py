"""`make gpu`: everything that only a GPU can show, in order, kept in one folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from elastic_core import model_files
from elastic_core.errors import UserError
from elastic_core.files import write_text
from flows.environment import runs_directory
from flows.gpu_check.evidence import FILE, Record, conclusion, facts, find_machine, nvidia_smi, run_steps, write_summary
from flows.gpu_check.steps import NO_GPU, Check
from flows.gpu_check.training import shortened

EVIDENCE, WORK = "gpu-evidence", "gpu-check"
"""Directories of what is kept, and of what it was made with."""


def gpu_check(say: Callable[[str], None]) -> tuple[str, bool]:
    """Run what has not passed here yet, and leave the evidence.

    Args:
        say: shows a line of progress.

    Returns:
        The conclusion, and whether no step failed.

    Raises:
        UserError: when this machine is one that no step could run on.
    """
    machine = find_machine()
    evidence, work = runs_directory() / EVIDENCE, runs_directory() / WORK
    begin(work, machine.commit)
    model, missing = None, NO_GPU
    if machine.gpus:
        base = shortened(machine.ranks, twin=False).base
        say(f"looking for {base}")
        try:
            model = model_files.locate(base)
        except UserError as error:
            missing = str(error)
    known = facts(machine)
    for name, text in {"machine.json": json.dumps(known, indent=2), "nvidia-smi.txt": nvidia_smi()}.items():
        write_text(evidence / name, f"{text}\n")
    steps = Check(machine, evidence, work, model, missing).steps()

    def finished(records: list[Record]) -> None:
        write_summary(evidence, known, records, len(steps))

    records = run_steps(
        steps, evidence / "steps", where=machine.name, commit=machine.commit, say=say, finished=finished
    )
    told = f"{conclusion(records, len(steps))} {evidence / FILE}"
    return told, all(record.verdict != "failed" for record in records)


def begin(work: Path, commit: str) -> None:
    """Drop what other code made: a training that it began would not be the one that goes on."""
    file = work / "commit"
    if file.exists() and file.read_text() == commit:
        return
    shutil.rmtree(work, ignore_errors=True)
    write_text(file, commit)
