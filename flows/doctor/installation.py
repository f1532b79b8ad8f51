"""What is installed, against what this package was written for."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from flows.doctor.finding import Finding, judged

PROJECT = "elastic-reasoning"
LOCKS = Path(__file__).resolve().parents[2] / "infra" / "requirements"
_NOT_LOCKED = {PROJECT, "pip"}
"""In every environment, and in no lock."""
Build = Literal["cpu", "gpu"]


def check_python(version: tuple[int, ...]) -> Finding:
    found = ".".join(map(str, version))
    problem = f"Python 3.11 is needed and this is {found}: install it, then `make install`"
    return judged("python", version == (3, 11), f"Python {found}", problem)


def check_compiler(found: Mapping[str, str | None]) -> Finding:
    """torch and Triton compile kernels at run time. `found` is what `compiler_files` returns."""
    missing = [package for package, file in found.items() if file is None]
    problem = (
        f"kernels are compiled at run time and {', '.join(missing)} must be installed for it: run `sudo apt-get "
        f"install {' '.join(missing)}`"
    )
    return judged("compiler", not missing, ", ".join(filter(None, found.values())), problem)


def check_versions(expected: Mapping[str, str], installed: Mapping[str, str]) -> Finding:
    """verl's and vLLM's internals move between releases, and the plugin knows exactly one of each."""
    wrong = [
        f"{name} is {installed.get(name, 'missing')}, not {version}"
        for name, version in expected.items()
        if _public(installed.get(name, "")) != version
    ]
    found = ", ".join(f"{name} {version}" for name, version in expected.items())
    return judged("versions", not wrong, found, f"{'; '.join(wrong)}: run `make install`")


def check_lock(lock: str, installed: Mapping[str, str]) -> Finding:
    """The environment holds what the lock says, and nothing else."""
    pins = dict(line.split("==") for line in lock.splitlines() if "==" in line and not line.startswith("#"))
    different = [name for name, version in pins.items() if _public(installed.get(name, "")) != version]
    more = [name for name in installed if name not in pins and name not in _NOT_LOCKED]
    names = ", ".join([*different, *more][:5])
    problem = f"{len(different)} packages differ from the lock and {len(more)} are not in it ({names})"
    found = f"{len(pins)} packages as locked"
    return judged("environment", not different and not more, found, f"{problem}: run `make install`", "warning")


def check_sandbox(problem: str | None) -> Finding:
    """Only benchmarks of programs need it, and they refuse to start without."""
    needed = f"{problem} (needed where programs are graded)"
    return judged("sandbox", problem is None, "bubblewrap can isolate programs", needed, "warning")


def installed_build() -> Build:
    """Which lock the environment was made from: the two hold different distributions of vLLM."""
    try:
        metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return "cpu"
    return "gpu"


def expected_versions(build: Build) -> dict[str, str]:
    """Exact pins among the project's requirements for a build, by distribution."""
    pins: dict[str, str] = {}
    for text in metadata.requires(PROJECT) or []:
        requirement = Requirement(text)
        exact = [each.version for each in requirement.specifier if each.operator == "=="]
        if exact and requirement.marker and requirement.marker.evaluate({"extra": build}):
            pins[canonicalize_name(requirement.name)] = exact[0]
    return pins


def installed_versions() -> dict[str, str]:
    """Every installed distribution."""
    return {str(canonicalize_name(each.metadata["Name"])): each.version for each in metadata.distributions()}


def compiler_files(build: Build, include: str | None = None) -> dict[str, str | None]:
    """What compiling takes, by the package it comes in; None is missing. Python's headers are in `include`."""
    files = {"gcc": shutil.which("cc") or shutil.which("gcc")}
    if build == "gpu":
        # torch calls g++ by name; Triton compiles a module for Python.
        header = Path(include or sysconfig.get_paths()["include"]) / "Python.h"
        files |= {"g++": shutil.which("g++"), "python3.11-dev": str(header) if header.exists() else None}
    return files


def _public(version: str) -> str:
    """Without the local part, which names a build: 2.13.0 of 2.13.0+cpu."""
    return version.partition("+")[0]
