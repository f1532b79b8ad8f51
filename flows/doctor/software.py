"""What is installed, against what this package was written for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Literal

from flows.doctor.finding import Finding

PROJECT = "elastic-reasoning"
PLUGIN_PROBE = "from elastic_core.training.plugin_check import require_plugin; require_plugin()"
TEMPLATE_PROBE = "import sys; from flows.chat_template import check_chat_template; check_chat_template(*sys.argv[1:])"
_NOT_LOCKED = {PROJECT, "pip"}
"""In every environment, and in no lock."""


def check_python(version: tuple[int, ...]) -> Finding:
    found = ".".join(map(str, version))
    if tuple(version) == (3, 11):
        return Finding("python", "ok", f"Python {found}")
    return Finding("python", "failure", f"Python 3.11 is needed and this is {found}: install it, then `make install`")


def check_compiler(found: Mapping[str, str | None]) -> Finding:
    """torch and Triton compile kernels at run time.

    Args:
        found: as `compiler_files`.
    """
    missing = [package for package, file in found.items() if file is None]
    if not missing:
        return Finding("compiler", "ok", ", ".join(filter(None, found.values())))
    return Finding(
        "compiler",
        "failure",
        f"kernels are compiled at run time and {', '.join(missing)} must be installed for it: "
        f"run `sudo apt-get install {' '.join(missing)}`",
    )


def check_versions(expected: Mapping[str, str], installed: Mapping[str, str]) -> Finding:
    """verl's and vLLM's internals move between releases, and the plugin knows exactly one of each."""
    wrong = [
        f"{name} is {installed.get(name, 'missing')}, not {version}"
        for name, version in expected.items()
        if _public(installed.get(name, "")) != version
    ]
    if wrong:
        return Finding("versions", "failure", f"{'; '.join(wrong)}: run `make install`")
    return Finding("versions", "ok", ", ".join(f"{name} {version}" for name, version in expected.items()))


def check_lock(lock: str, installed: Mapping[str, str]) -> Finding:
    """The environment holds what the lock says, and nothing else."""
    pins = dict(line.split("==") for line in lock.splitlines() if "==" in line and not line.startswith("#"))
    different = [name for name, version in pins.items() if _public(installed.get(name, "")) != version]
    more = [name for name in installed if name not in pins and name not in _NOT_LOCKED]
    if not different and not more:
        return Finding("environment", "ok", f"{len(pins)} packages as locked")
    names = ", ".join([*different, *more][:5])
    return Finding(
        "environment",
        "warning",
        f"{len(different)} packages differ from the lock and {len(more)} are not in it ({names}): run `make install`",
    )


def check_sandbox(problem: str | None) -> Finding:
    """Only benchmarks of programs need it, and they refuse to start without."""
    if problem is None:
        return Finding("sandbox", "ok", "bubblewrap can isolate programs")
    return Finding("sandbox", "warning", f"{problem} (needed where programs are graded)")


def check_plugin(status: int, output: str) -> Finding:
    """verl itself hides a plugin that fails to load."""
    if status == 0:
        return Finding("verl plugin", "ok", "loads")
    return Finding("verl plugin", "failure", f"does not load ({last_line(output)}): run `make install`")


def check_template(name: str, status: int, output: str) -> Finding:
    """Fine-tuning must know where a response begins."""
    if status == 0:
        return Finding("chat template", "ok", f"{name} tells responses from prompts")
    reason = last_line(output).removeprefix("elastic_core.errors.UserError: ")
    return Finding("chat template", "failure", f"warm_start.sft.chat_template = {name}: {reason}")


def last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no message"])[-1]


def installed_engine() -> Literal["cpu", "gpu"]:
    """Which lock the environment was made from: the two hold different distributions of vLLM."""
    try:
        metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return "cpu"
    return "gpu"


def expected_versions(engine: Literal["cpu", "gpu"]) -> dict[str, str]:
    """Exact pins among the project's requirements for `engine`, by distribution."""
    from packaging.requirements import Requirement

    pins = {}
    for text in metadata.requires(PROJECT) or []:
        requirement = Requirement(text)
        exact = [each.version for each in requirement.specifier if each.operator == "=="]
        if exact and requirement.marker and requirement.marker.evaluate({"extra": engine}):
            pins[_canonical(requirement.name)] = exact[0]
    return pins


def compiler_files(engine: Literal["cpu", "gpu"], include: str | None = None) -> dict[str, str | None]:
    """What compiling takes, by the package it comes in; None is missing.

    Args:
        include: directory of Python's headers; None is this Python's.
    """
    files = {"gcc": shutil.which("cc") or shutil.which("gcc")}
    if engine == "gpu":
        # torch calls g++ by name; Triton compiles a module for Python.
        header = Path(include or sysconfig.get_paths()["include"]) / "Python.h"
        files |= {"g++": shutil.which("g++"), "python3.11-dev": str(header) if header.exists() else None}
    return files


def installed_versions() -> dict[str, str]:
    """Every installed distribution."""
    return {_canonical(each.metadata["Name"]): each.version for each in metadata.distributions()}


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _public(version: str) -> str:
    """Without the local part, which names a build: 2.13.0 of 2.13.0+cpu."""
    return version.partition("+")[0]


def start_probe(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Python code that imports what is slow, in a process of its own."""
    platform = {"VERL_PLATFORM": "cpu"} if installed_engine() == "cpu" else {}
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
