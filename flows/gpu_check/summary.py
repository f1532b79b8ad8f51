"""The evidence's first page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elastic_core.files import write_text
from flows.gpu_check.runner import Record

FILE = "README.md"
_BENCHES = {"bench-twin.json": "The twin", "bench-model.json": "The model"}


def write_summary(evidence: Path, machine: Mapping[str, Any], records: Sequence[Record], planned: int) -> None:
    """README.md of the evidence: verdicts first, then what was measured.

    Args:
        machine: its facts.
        planned: how many steps there are.
    """
    sections = ["# GPU evidence", conclusion(records, planned), _machine(machine), _steps(records)]
    benches = {title: evidence / file for file, title in _BENCHES.items() if (evidence / file).exists()}
    sections += [_bench(title, json.loads(file.read_text())) for title, file in benches.items()]
    if (evidence / "training" / "steps.json").exists():
        sections += [
            "## Training, step by step",
            _table(json.loads((evidence / "training" / "steps.json").read_text())),
        ]
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
