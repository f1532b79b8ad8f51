"""Probes: Python code that imports what is slow, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from flows.doctor.finding import Finding, judged
from flows.doctor.installation import installed_build


def start_probe(code: str, *arguments: str) -> subprocess.Popen[str]:
    platform = {"VERL_PLATFORM": "cpu"} if installed_build() == "cpu" else {}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        env={**os.environ, **platform},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish_probe(process: subprocess.Popen[str], seconds: float = 90) -> tuple[int, str]:
    """Exit status, and what it printed or why it failed."""
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return 1, f"no answer within {seconds:g} s"
    return process.returncode, errors if process.returncode else output


def last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no message"])[-1]


def check_plugin(status: int, output: str) -> Finding:
    """verl itself hides a plugin that fails to load."""
    problem = f"does not load ({last_line(output)}): run `make install`"
    return judged("verl plugin", status == 0, "loads", problem)


def check_template(name: str, status: int, output: str) -> Finding:
    """Fine-tuning must know where a response begins."""
    reason = last_line(output).removeprefix("elastic_core.errors.UserError: ")
    problem = f"warm_start.sft.chat_template = {name}: {reason}"
    return judged("chat template", status == 0, f"{name} tells responses from prompts", problem)
