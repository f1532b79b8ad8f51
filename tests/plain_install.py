"""This project as `pip install elastic-reasoning[pipeline]` installs it from a wheel that is built here: an environment
with what that needs, taken from this one's, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
ENGINES = ("ray", "torch", "verl", "vllm")
"""What is for training and for models of one's own."""
EXTRA = "pipeline"

PACKAGES = ("elastic_core", "flows", "reports", "tasks")
_FILES = ("pyproject.toml", "README.md", "LICENSE")


def install(directory: Path) -> Path:
    """The environment's console script.

    Args:
        directory: empty; of the environment and the wheel.
    """
    source = directory / "source"  # Building leaves files beside what it builds from.
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _FILES:
        shutil.copy(ROOT / name, source)
    _pip("wheel", "--no-build-isolation", "-w", str(directory), str(source))
    (wheel,) = directory.glob("elastic_reasoning-*.whl")
    venv.create(directory / "venv", with_pip=False)
    _pip("--python", str(directory / "venv" / "bin" / "python"), "install", "--no-index", str(wheel))
    (packages,) = (directory / "venv").glob("lib/python*/site-packages")
    (installed,) = metadata.distributions(path=[str(packages)])
    _link(_needed(installed), packages)
    return directory / "venv" / "bin" / "elastic"


def _pip(*arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-m", "pip", "-q", *arguments], env=environment | {"PIP_NO_DEPS": "1"}, check=True)


def _needed(distribution: metadata.Distribution) -> list[metadata.Distribution]:
    """What it requires, directly or not."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [(distribution, frozenset({EXTRA}))]
    done = set()
    while waiting:
        given, extras = waiting.pop()
        for text in given.requires or ():
            requirement = Requirement(text)
            name, wanted = canonicalize_name(requirement.name), frozenset(requirement.extras)
            marker = requirement.marker
            if (name, wanted) in done or (marker and not any(marker.evaluate({"extra": e}) for e in ("", *extras))):
                continue
            done.add((name, wanted))
            found[name] = metadata.distribution(name)
            waiting.append((found[name], wanted))
    return list(found.values())


def _link(distributions: list[metadata.Distribution], packages: Path) -> None:
    """Their packages, which may be parts of one directory."""
    for distribution in distributions:
        for file in distribution.files or ():
            if file.parts[0] == "..":
                continue
            target = packages / file.parts[0]
            if not target.exists():
                target.symlink_to(Path(str(distribution.locate_file(file.parts[0]))))
