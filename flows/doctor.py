"""`elastic doctor`: can this machine run the pipeline? One sentence per check, and what to do where it cannot.

Each `check_*` judges values it is given; the functions above `main` collect them. Nothing heavy is imported here:
what needs torch or verl runs in a process of its own while the other checks go on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

import click

from elastic_core.errors import UserError
from flows.environment import runs_directory
from flows.services import answers

GIB = 2**30
NEEDED_MEMORY_BYTES = 10 * GIB
"""Ray, verl's trainer and vLLM side by side, with the miniature model."""
NEEDED_DISK_BYTES = 4 * GIB
"""Checkpoints, tables and databases of the embedded preset, with room to run it again."""
NEEDED_SHARED_MEMORY_BYTES = 2 * GIB
"""Ray's object store lives in /dev/shm, or on the disk if that is too small."""
PROJECT = "elastic-reasoning"
_REPOSITORY = Path(__file__).resolve().parent.parent
_NOT_LOCKED = {PROJECT, "pip"}
"""In every environment, and in no lock."""


class Finding(NamedTuple):
    """What one check found."""

    check: str
    level: Literal["ok", "warning", "failure"]
    message: str
    """One sentence; unless all is well it ends with what to do."""


def require(*findings: Finding) -> None:
    """Nothing, when no finding is a failure.

    Raises:
        UserError: with the sentence of each failure.
    """
    failures = [finding.message for finding in findings if finding.level == "failure"]
    if failures:
        raise UserError("; ".join(failures))


def check_machine(
    runs: Path, memory_bytes: int = NEEDED_MEMORY_BYTES, disk_bytes: int = NEEDED_DISK_BYTES
) -> list[Finding]:
    """What a flow asks before it starts, in milliseconds: processor or accelerator, memory, disk."""
    import psutil

    memory = psutil.virtual_memory()
    total = min(memory.total, cgroup_memory_limit() or memory.total)
    existing = next(path for path in (runs, *runs.resolve().parents) if path.exists())
    return [
        check_cuda(_gpus()) if installed_engine() == "gpu" else check_processor(_processor_flags()),
        check_memory(total, memory.available, memory_bytes),
        check_disk(shutil.disk_usage(existing).free, runs, disk_bytes),
    ]


def run_checks() -> list[Finding]:
    """Every check, in the order a new machine meets them."""
    runs = runs_directory()
    engine = installed_engine()
    installed = {_canonical(each.metadata["Name"]): each.version for each in metadata.distributions()}
    plugin = _start_plugin_check(engine)
    lock = _REPOSITORY / "infra" / "requirements" / f"{engine}.txt"
    findings = [
        check_python(sys.version_info[:2]),
        check_compiler(shutil.which("cc") or shutil.which("gcc")),
        *check_machine(runs),
        check_cores(len(os.sched_getaffinity(0))),
        check_shared_memory(shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else 0),
        check_versions(expected_versions(engine), installed),
        check_sandbox(_sandbox_problem()),
    ]
    if lock.exists():
        findings.append(check_lock(lock.read_text(), installed))
    findings += [
        check_port(4200, "Prefect", _listening(4200), answers("http://127.0.0.1:4200/api/health")),
        check_port(5000, "MLflow", _listening(5000), answers("http://127.0.0.1:5000/health")),
        check_tracking(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{runs / 'mlflow.db'}"),
        check_plugin(*_finish(plugin)),
    ]
    return findings


def main() -> int:
    """Print every finding; 1 if one is a failure, else 0."""
    findings = run_checks()
    for finding in findings:
        click.echo(f"{finding.level:8} {finding.check:14} {finding.message}")
    return int(any(finding.level == "failure" for finding in findings))


def check_python(version: tuple[int, ...]) -> Finding:
    found = ".".join(map(str, version))
    if tuple(version) == (3, 11):
        return Finding("python", "ok", f"Python {found}")
    return Finding("python", "failure", f"Python 3.11 is needed and this is {found}: install it, then `make install`")


def check_compiler(path: str | None) -> Finding:
    """torch and Triton compile kernels at run time."""
    if path:
        return Finding("compiler", "ok", path)
    return Finding("compiler", "failure", "a C compiler is needed and neither cc nor gcc is on PATH: install gcc")


def check_processor(flags: frozenset[str]) -> Finding:
    """The CPU build of vLLM is compiled for AVX2."""
    if "avx512f" in flags:
        return Finding("processor", "ok", "x86-64 with AVX-512")
    if "avx2" in flags:
        return Finding("processor", "ok", "x86-64 with AVX2")
    return Finding(
        "processor",
        "failure",
        "vLLM on a CPU needs the AVX2 instructions and this processor has none: use a machine from 2014 or later",
    )


def check_cuda(gpus: list[str]) -> Finding:
    """Asked where the CUDA build of vLLM is installed."""
    if gpus:
        return Finding("accelerator", "ok", "; ".join(gpus))
    return Finding(
        "accelerator",
        "failure",
        "the CUDA build of vLLM is installed and nvidia-smi shows no GPU: "
        "install the NVIDIA driver, or use the CPU build with `make install ENGINE=cpu`",
    )


def check_cores(cores: int) -> Finding:
    if cores >= 2:
        return Finding("cores", "ok", f"{cores} cores")
    return Finding("cores", "warning", "one core: everything runs, slowly; two or more are better")


def check_memory(total: int, available: int, needed: int = NEEDED_MEMORY_BYTES) -> Finding:
    """Too little in all is a failure; enough, but in use by others now, a warning. Bytes."""
    wanted = f"{needed / GIB:.0f} GiB of memory are needed"
    if total < needed:
        message = f"{wanted} and this machine or container has {total / GIB:.1f}: use a larger one, or raise its limit"
        return Finding("memory", "failure", message)
    if available < needed:
        message = f"{wanted} and {available / GIB:.1f} of {total / GIB:.1f} are free: close other programs"
        return Finding("memory", "warning", message)
    return Finding("memory", "ok", f"{available / GIB:.1f} of {total / GIB:.1f} GiB free")


def check_disk(free: int, runs: Path, needed: int = NEEDED_DISK_BYTES) -> Finding:
    """Room where results go. Bytes."""
    if free >= needed:
        return Finding("disk", "ok", f"{free / GIB:.0f} GiB free for {runs}")
    return Finding(
        "disk",
        "failure",
        f"{needed / GIB:.0f} GiB of disk are needed and {runs} has {free / GIB:.1f}: "
        "free some, or set ELASTIC_RUNS to a directory on another disk",
    )


def check_shared_memory(size: int) -> Finding:
    """Containers get 64 MiB unless told otherwise."""
    if size >= NEEDED_SHARED_MEMORY_BYTES:
        return Finding("shared memory", "ok", f"{size / GIB:.1f} GiB in /dev/shm")
    return Finding(
        "shared memory",
        "warning",
        f"/dev/shm has {size / GIB:.2f} GiB, so Ray keeps objects on the disk, slowly: "
        f"give the container --shm-size={NEEDED_SHARED_MEMORY_BYTES // GIB}g",
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


def check_port(port: int, service: str, listening: bool, ours: bool) -> Finding:
    """Only `elastic up` needs the ports."""
    if not listening:
        return Finding(f"port {port}", "ok", f"free for {service}")
    if ours:
        return Finding(f"port {port}", "ok", f"{service} answers there")
    message = f"taken by something other than {service}: start with `elastic up --{service.lower()}-port N`"
    return Finding(f"port {port}", "warning", message)


def check_sandbox(problem: str | None) -> Finding:
    """Only benchmarks of programs need it, and they refuse to start without."""
    if problem is None:
        return Finding("sandbox", "ok", "bubblewrap can isolate programs")
    return Finding("sandbox", "warning", f"{problem} (needed where programs are graded)")


def check_tracking(uri: str) -> Finding:
    """Whether MLflow's store can be reached: a server answers, or the database's directory can be written."""
    if uri.startswith("http"):
        if answers(f"{uri.rstrip('/')}/health", proxies=True):
            return Finding("mlflow", "ok", f"{uri} answers")
        message = f"{uri} does not answer: start it, or unset MLFLOW_TRACKING_URI to use a local database"
        return Finding("mlflow", "failure", message)
    if uri.startswith("sqlite:///"):
        directory = Path(uri.removeprefix("sqlite:///")).resolve().parent
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        if not os.access(existing, os.W_OK):
            return Finding("mlflow", "failure", f"{existing} cannot be written: set ELASTIC_RUNS to another directory")
    return Finding("mlflow", "ok", uri)


def check_plugin(status: int, output: str) -> Finding:
    """verl itself hides a plugin that fails to load."""
    if status == 0:
        return Finding("verl plugin", "ok", "loads")
    reason = (output.strip().splitlines() or ["no message"])[-1]
    return Finding("verl plugin", "failure", f"does not load ({reason}): run `make install`")


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


def cgroup_memory_limit(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> int | None:
    """Bytes this process's control groups allow, of versions 1 and 2; None without a limit."""
    limits = []
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        # A limit binds everything below it. Inside a container the path may not exist and the root is the group's own.
        group = base / path.lstrip("/")
        for directory in (group, *group.parents):
            file = directory / name
            if directory.is_relative_to(base) and file.exists() and (text := file.read_text().strip()) != "max":
                limits.append(int(text))
    return min(limits, default=None)


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _public(version: str) -> str:
    """Without the local part, which names a build: 2.13.0 of 2.13.0+cpu."""
    return version.partition("+")[0]


def _processor_flags() -> frozenset[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _gpus() -> list[str]:
    """Names of the NVIDIA GPUs."""
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return listed.stdout.splitlines() if listed.returncode == 0 else []


def _sandbox_problem() -> str | None:
    from elastic_core.rewards.sandbox import require_sandbox

    try:
        require_sandbox()
    except UserError as error:
        return str(error)
    return None


def _listening(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _start_plugin_check(engine: str) -> subprocess.Popen[str]:
    code = "from elastic_core.training.plugin_check import require_plugin; require_plugin()"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **({"VERL_PLATFORM": "cpu"} if engine == "cpu" else {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        _, output = process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return 1, "verl was not imported within 90 s"
    return process.returncode, output
