"""Make .venv hold exactly what a lock says: `python3.11 infra/install.py cpu`, with `for-tests` also what only tests
need. Another Python goes on in 3.11, which uv finds or fetches. Standard library only.

.venv/installed says what the environment was built from. It is written last, so that an interrupted installation
counts as none. Another lock, interpreter or place rebuilds the environment, which also drops packages the lock no
longer names; a changed pyproject.toml only renews the project's own metadata and console script.
"""

from __future__ import annotations  # An older Python must get far enough to be told that it is too old.

import ast
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "installed"
PYTHONS = {"cpu": {(3, 11)}, "gpu": {(3, 11), (3, 12)}}
"""Versions of Python that the locks hold for: they are made for 3.11; that of GPUs is the same for 3.12."""
NEEDED_BYTES = {"cpu": 6 * 2**30, "gpu": 16 * 2**30}  # The environment, and what is unpacked on the way.
UV_SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "cert": ("SSL_CERT_FILE", " "),
}
"""Settings of pip as uv's environment variables, and what stands between several values there."""
PIPS_ALONE = {"no-index", "proxy", "trusted-host", "client-cert", "keyring-provider"}
"""Settings of pip's ways to an index that uv is not told of."""
SELDOM_IMPORTED = "/(tests?|models)/"
"""Directories whose files are compiled when they are imported: a quarter of all bytes, hardly any of which ever are."""


def go_on_in_python_3_11(engine: str) -> None:
    """Start this program again in Python 3.11 unless this is one that the lock holds for; exit with one sentence where
    there is none."""
    if sys.version_info[:2] in PYTHONS[engine]:
        return
    version = platform.python_version()
    print(f"install: this is Python {version} and 3.11 is needed: uv finds one, or fetches it", flush=True)
    found = ""
    if uv := shutil.which("uv") or fetched_uv():
        find = [uv, "python", "find", "3.11"]
        here = subprocess.run([*find, "--system"], capture_output=True, text=True)
        if here.returncode:  # Also where a shim is found that does not run.
            subprocess.run([uv, "python", "install", "3.11"])
            here = subprocess.run([*find, "--managed-python"], stdout=subprocess.PIPE, text=True)
        found = here.stdout.strip()
    if not found:
        sys.exit("error: uv found no Python 3.11; install it, or name it: make PYTHON=/path/to/python3.11")
    os.execv(found, [found, str(Path(__file__).resolve()), *sys.argv[1:]])


def fetched_uv() -> str | None:
    """uv from the package index, in an environment of its own beside .venv."""
    directory = ROOT / ".uv"
    if subprocess.run([sys.executable, "-m", "venv", str(directory)], stdout=subprocess.DEVNULL).returncode:
        return None
    installed = subprocess.run([str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"])
    return str(directory / "bin" / "uv") if installed.returncode == 0 else None


def refuse_unfit_machine(engine: str) -> None:
    """Exit with one sentence if the lock cannot work here."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        sys.exit(f"error: Linux on x86-64 is needed and this is {platform.system()} on {platform.machine()}")
    if VENV.is_symlink():
        sys.exit(f"error: {VENV} links to {VENV.resolve()}, which the installation would empty; delete the link")
    free = shutil.disk_usage(ROOT).free
    if not VENV.exists() and free < NEEDED_BYTES[engine]:
        sys.exit(
            f"error: the installation needs {NEEDED_BYTES[engine] / 2**30:.0f} GiB of disk and {ROOT} has "
            f"{free / 2**30:.1f} GiB free; free some, or check out elsewhere"
        )


def pip(*arguments: str) -> None:
    """Install with .venv's pip. --no-deps: the lock is complete, and the overrides it was made with hold only so."""
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "-qq"]
    if subprocess.run([*command, *arguments], cwd=ROOT).returncode:
        sys.exit("error: the installation failed, see pip's message above; the same command starts it again")


def pip_settings() -> dict[str, str]:
    """What .venv's pip is configured with on this machine, by the names of its options."""
    asked = [str(VENV / "bin" / "python"), "-m", "pip", "config", "list"]
    lines = subprocess.run(asked, capture_output=True, text=True).stdout.splitlines()
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # A later one wins.
        set_there = (re.fullmatch(rf"{section}\.([\w-]+)=(.*)", line) for line in lines)
        found |= {each[1]: str(ast.literal_eval(each[2])) for each in set_there if each}
    return found


def uv_environment(settings: dict[str, str]) -> dict[str, str]:
    """The environment in which uv does as pip with these settings, but for what the user has told uv itself."""
    told = {UV_SETTINGS[name]: value.split() for name, value in settings.items() if name in UV_SETTINGS}
    return {**{variable: mark.join(values) for (variable, mark), values in told.items()}, **os.environ}


def installed_by_uv(wanted: Path, settings: dict[str, str]) -> bool:
    """Whether uv could install what a file names, from where pip's settings point."""
    uv = [str(VENV / "bin" / "uv"), "pip", "install", "--quiet", "--no-deps", "--index-strategy", "unsafe-best-match"]
    uv += ["--python", str(VENV / "bin" / "python"), "-r", str(wanted)]
    return not subprocess.run(uv, cwd=ROOT, env=uv_environment(settings), stderr=subprocess.DEVNULL).returncode


def build_environment(engine: str) -> None:
    """An empty environment, filled from the lock: by uv, which unpacks on all cores, or by pip where uv cannot."""
    lock = ROOT / "infra" / "requirements" / f"{engine}.txt"
    packages = [line for line in lock.read_text().splitlines() if "==" in line]
    print(f"install: {len(packages)} packages into .venv, a few minutes", flush=True)
    if subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)]).returncode:
        sys.exit(
            f"error: {sys.executable} cannot create virtual environments; install its venv module (python3.11-venv)"
        )
    settings = pip_settings()
    pip(*(line for line in packages if line.startswith("uv==")))
    places, index = [settings], os.environ.get("TORCH_INDEX") if engine == "cpu" else None
    if engine == "cpu":
        # PyPI's torch is for CUDA, and does not load without CUDA's packages, which this lock leaves out.
        packages = [f"{line}+cpu" if line.startswith("torch==") else line for line in packages]
    if index:
        places.append({**settings, "extra-index-url": f"{settings.get('extra-index-url', '')} {index}"})
    wanted = VENV / lock.name
    wanted.write_text("\n".join(packages) + "\n")
    if PIPS_ALONE & settings.keys() or not any(installed_by_uv(wanted, each) for each in places):
        print("install: without uv, some minutes more", flush=True)
        pip(*(["--extra-index-url", index] if index else []), "--no-compile", "-r", str(wanted))
    # Files that this version of Python cannot compile stay as they are, as with pip.
    compiling = ["-m", "compileall", "-qq", "-j", "0", "-x", SELDOM_IMPORTED, str(VENV / "lib")]
    subprocess.run([str(VENV / "bin" / "python"), *compiling])


def install_package(package: str) -> None:
    """Install with apt, where that needs no password. The caller checks whether it worked."""
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    install = [*root, "apt-get", "install", "--yes", "--quiet", "--no-install-recommends", package]
    if shutil.which("apt-get") and shutil.which([*root, "apt-get"][0]):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        # A new machine has no package lists, and one in use need not fetch them.
        if subprocess.run(install, **quiet).returncode:
            subprocess.run([*root, "apt-get", "update", "--quiet"], **quiet)
            subprocess.run(install, **quiet)


def install_program(program: str, package: str, needs_it: str) -> None:
    """What cannot be installed without asking anyone is left to the user: a part of the project works without."""
    if shutil.which(program):
        return
    install_package(package)
    if not shutil.which(program):
        advice = f"sudo apt-get install --no-install-recommends {package}"
        print(f"install: {package} is missing, and {needs_it}; install it, for example: {advice}", flush=True)


def main() -> None:
    started = time.monotonic()
    engine = sys.argv[1]
    go_on_in_python_3_11(engine)
    refuse_unfit_machine(engine)
    # Open for writing, as NFS wants it for an exclusive lock.
    with Path(__file__).open("r+") as itself:
        fcntl.flock(itself, fcntl.LOCK_EX)  # Two commands started at once install one after the other.
        install_program("bwrap", "bubblewrap", "grading programs and the tests of it need it")
        # For the test of `elastic up --database`, which starts a server of its own. The package starts one too, which
        # is unasked for on a workstation: it is installed where root works, in containers and on machines made for
        # tests.
        packaged = list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if os.geteuid() == 0 and not packaged and not shutil.which("initdb"):
            install_package("postgresql")
        if "for-tests" in sys.argv[2:]:  # It is large.
            install_program("chromium", "chromium", "the tests of pages need it")
        # Digests of everything .venv depends on: of the environment, and of this project in it.
        lock = (ROOT / "infra" / "requirements" / f"{engine}.txt").read_text()
        sources = {
            "environment": "\n".join([engine, lock, sys.version, str(ROOT)]),
            "project": (ROOT / "pyproject.toml").read_text(),
        }
        wanted = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sources.items()}
        found = dict(line.split() for line in STAMP.read_text().splitlines()) if STAMP.exists() else {}
        # An interpreter that was upgraded away leaves a dangling link behind a good stamp.
        if found == wanted and (VENV / "bin" / "python").exists():
            return
        STAMP.unlink(missing_ok=True)
        if found.get("environment") != wanted["environment"] or not (VENV / "bin" / "python").exists():
            build_environment(engine)
        pip("--no-build-isolation", "--editable", ".")
        STAMP.write_text("".join(f"{name} {digest}\n" for name, digest in wanted.items()))
    print(f"install: done in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
