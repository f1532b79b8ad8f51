"""`elastic doctor`: can this machine run the pipeline? One sentence per check, and what to do where it cannot.

Each `check_*` judges values it is given; the other functions look them up. Nothing heavy is imported: what needs torch,
transformers or verl runs in a process of its own while the other checks go on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from elastic_core.accelerators import Gpu, installed_gpus
from elastic_core.errors import UserError
from elastic_core.rewards.code.sandbox import sandbox_problem
from elastic_core.sweep.grid import checkpoints
from elastic_core.training.requirements import InsufficientResources, Resources, check_nodes, placement
from flows.environment import runs_directory
from flows.services import answers

if TYPE_CHECKING:
    from elastic_core.ray_cluster import RayCluster
    from flows.settings import Settings

PROJECT = "elastic-reasoning"
_LOCKS = Path(__file__).resolve().parent.parent / "infra" / "requirements"
_NOT_LOCKED = {PROJECT, "pip"}
"""In every environment, and in no lock."""

GIB = 2**30
NEEDED_MEMORY_BYTES = 10 * GIB
"""Ray, verl's trainer and vLLM side by side, with the miniature model."""
NEEDED_DISK_BYTES = 4 * GIB
"""Checkpoints, tables and databases of the embedded preset, with room to run it again."""
NEEDED_SHARED_MEMORY_BYTES = 2 * GIB
"""Ray's object store lives in /dev/shm, or on the disk if that is too small."""
_MORE_NODES = "add nodes with `ray start --address=HOST:6379`"
_FREE_SHARE = 0.9
"""Of a GPU's memory; with less, someone else uses it."""

PLUGIN_PROBE = "from elastic_core.training.requirements import require_plugin; require_plugin()"
TEMPLATE_PROBE = "import sys; from flows.train import check_chat_template; check_chat_template(*sys.argv[1:])"
MODELS_PROBE = "from flows.doctor import probe_models; probe_models()"

Build = Literal["cpu", "gpu"]


class Finding(NamedTuple):
    """What one check found."""

    check: str
    level: Literal["ok", "warning", "failure"]
    message: str
    """One sentence; unless all is well it ends with what to do."""


def _judged(
    check: str, well: bool, found: str, problem: str, level: Literal["warning", "failure"] = "failure"
) -> Finding:
    return Finding(check, "ok", found) if well else Finding(check, level, problem)


class GpuDemand(NamedTuple):
    """GPUs that a run takes on this machine: `gpus` for each 1 of the setting's value.

    Attributes:
        movable: whether a Ray cluster can give them instead.
    """

    setting: str
    value: int
    gpus: int = 1
    movable: bool = True

    @property
    def total(self) -> int:
        return self.value * self.gpus


class Use(NamedTuple):
    """A model, by the setting that names it, and what for.

    Attributes:
        model: "shipped", a directory, or OWNER/NAME on the hub.
        device: of its engine.
        trained: whether verl trains it, with its fused loss.
        thinks: whether it needs think markers.
    """

    setting: str
    model: str
    device: Literal["cpu", "cuda"]
    trained: bool = False
    thinks: bool = True


def main(preset: str, overrides: Mapping[str, Any]) -> int:
    """Print every finding; 1 if one is a failure, else 0. Raises UserError for settings that are none."""
    from flows import presets

    findings = run_checks(presets.resolve(preset, overrides))
    for finding in findings:
        click.echo(f"{finding.level:8} {finding.check:14} {finding.message}")
    return int(any(finding.level == "failure" for finding in findings))


def require(*findings: Finding) -> None:
    """Nothing, when no finding is a failure. Raises UserError with the sentence of each failure."""
    if failures := [finding.message for finding in findings if finding.level == "failure"]:
        raise UserError("; ".join(failures))


def run_checks(settings: Settings) -> list[Finding]:
    """Every check, in the order a new machine meets them."""
    runs, build, installed = runs_directory(), installed_build(), installed_versions()
    plugin = start_probe(PLUGIN_PROBE)
    uses = models_in_use(settings)
    looks = start_probe(MODELS_PROBE, json.dumps(uses))
    sft = settings.warm_start.sft if settings.base == "warm-start" else None
    template = sft and start_probe(TEMPLATE_PROBE, settings.warm_start.initial, sft.chat_template)
    lock = _LOCKS / f"{build}.txt"
    return [
        check_python(sys.version_info[:2]),
        check_compiler(compiler_files(build)),
        *check_machine(runs, gpus=0 if settings.ray.running else 1, demands=gpu_demands(settings)),
        check_cores(len(os.sched_getaffinity(0))),
        check_shared_memory(shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else 0),
        check_versions(expected_versions(build), installed),
        *([check_lock(lock.read_text(), installed)] if lock.exists() else []),
        check_sandbox(sandbox_problem()),
        *_check_services(settings, runs),
        check_plugin(*finish_probe(plugin)),
        *look(uses, looks),
        *([check_template(sft.chat_template, *finish_probe(template))] if sft and template else []),
    ]


def check_machine(
    runs: Path,
    memory_bytes: int = NEEDED_MEMORY_BYTES,
    disk_bytes: int = NEEDED_DISK_BYTES,
    gpus: int = 1,
    demands: Sequence[GpuDemand] = (),
) -> list[Finding]:
    """What a flow asks before it starts, in milliseconds: processor or accelerators, memory, disk.

    Args:
        gpus: 0 for a driver of a cluster, which takes none of this machine's, unless `demands` says so.
    """
    import psutil

    memory = psutil.virtual_memory()
    total = min(memory.total, cgroup_memory_limit() or memory.total)
    existing = next(path for path in (runs, *runs.resolve().parents) if path.exists())
    accelerator = [check_processor(processor_flags())]
    if installed_build() == "gpu":
        accelerator = [check_gpus(installed_gpus(), demands)] if gpus or demands else []
    return [
        *accelerator,
        check_memory(total, memory.available, memory_bytes),
        check_disk(shutil.disk_usage(existing).free, runs, disk_bytes),
    ]


def gpu_demands(settings: Settings) -> list[GpuDemand]:
    """What takes GPUs of this machine. On a cluster only fine-tuning does."""
    engine, train, sft = settings.engine, settings.train, settings.warm_start.sft
    demands = []
    if settings.base == "warm-start" and sft:
        demands.append(GpuDemand("warm_start.sft.gpus", sft.gpus, movable=False))
    if settings.ray.running is None:
        if train:
            demands.append(GpuDemand("train.gpus_per_node", train.gpus_per_node))
        if engine.num_gpus:
            gpus = engine.num_gpus * _engines_per_replica(settings)
            demands.append(GpuDemand("engine.data_parallel_size", engine.data_parallel_size, gpus))
    return demands


def _engines_per_replica(settings: Settings) -> int:
    """A pair of models has an engine for each."""
    return max(len(set(checkpoints(model).values())) for model in settings.sweep.models)


# Processor, accelerators, memory and disk.


def check_processor(flags: frozenset[str]) -> Finding:
    """The CPU build of vLLM is compiled for AVX2."""
    found = f"x86-64 with {'AVX-512' if 'avx512f' in flags else 'AVX2'}"
    problem = "vLLM on a CPU needs the AVX2 instructions and this processor has none: use a machine from 2014 or later"
    return _judged("processor", "avx2" in flags, found, problem)


def check_gpus(gpus: list[Gpu], demands: Sequence[GpuDemand] = ()) -> Finding:
    """Asked where the CUDA build of vLLM is installed.

    Args:
        demands: of a run's stages, which come one after the other; none is one GPU.
    """
    if not gpus:
        problem = (
            "the CUDA build of vLLM is installed and nvidia-smi shows no GPU that CUDA_VISIBLE_DEVICES allows: "
            "install the NVIDIA driver, or use the CPU build with `make install ENGINE=cpu`"
        )
        return Finding("accelerator", "failure", problem)
    found = "; ".join(f"{gpu.name}, {gpu.free / GIB:.1f} of {gpu.total / GIB:.1f} GiB free" for gpu in gpus)
    found = f"{found}; driver {gpus[0].driver}"
    needed = max((demand.total for demand in demands), default=1)
    if len(gpus) < needed:
        advice = _advice([demand for demand in demands if demand.total > len(gpus)], len(gpus))
        return Finding("accelerator", "failure", f"{needed} GPUs are needed and this machine has {found}: {advice}")
    if any(gpu.free < _FREE_SHARE * gpu.total for gpu in gpus):
        return Finding("accelerator", "warning", f"{found}: `nvidia-smi` shows the programs to end")
    return Finding("accelerator", "ok", found)


def _advice(unmet: Sequence[GpuDemand], gpus: int) -> str:
    """What makes a run fit where there are only so many GPUs."""
    larger = "on a machine with more"
    if all(demand.movable for demand in unmet):
        larger = "on a cluster with `--set ray.address=HOST:6379 --set ray.dashboard=http://HOST:8265`"
    if any(demand.gpus > gpus for demand in unmet):
        return f"run {larger}"
    fewer = " ".join(f"--set {demand.setting}={gpus // demand.gpus}" for demand in unmet)
    return f"run with `{fewer}`, or {larger}"


def check_cores(cores: int) -> Finding:
    problem = "one core: everything runs, slowly; two or more are better"
    return _judged("cores", cores >= 2, f"{cores} cores", problem, "warning")


def check_memory(total: int, available: int, needed: int = NEEDED_MEMORY_BYTES) -> Finding:
    """Too little in all is a failure; enough, but in use by others now, a warning. Bytes."""
    wanted = f"{needed / GIB:.0f} GiB of memory are needed"
    if total < needed:
        problem = f"{wanted} and this machine or container has {total / GIB:.1f}: use a larger one, or raise its limit"
        return Finding("memory", "failure", problem)
    free = f"{available / GIB:.1f} of {total / GIB:.1f}"
    problem = f"{wanted} and {free} are free: close other programs"
    return _judged("memory", available >= needed, f"{free} GiB free", problem, "warning")


def check_disk(free: int, runs: Path, needed: int = NEEDED_DISK_BYTES) -> Finding:
    """Room where results go. Bytes."""
    problem = f"{needed / GIB:.0f} GiB of disk are needed and {runs} has {free / GIB:.1f}"
    advice = "free some, or set ELASTIC_RUNS to a directory on another disk"
    return _judged("disk", free >= needed, f"{free / GIB:.0f} GiB free for {runs}", f"{problem}: {advice}")


def check_shared_memory(size: int) -> Finding:
    """Containers get 64 MiB unless told otherwise."""
    problem = (
        f"/dev/shm has {size / GIB:.2f} GiB, so Ray keeps objects on the disk, slowly: give the container "
        f"--shm-size={NEEDED_SHARED_MEMORY_BYTES // GIB}g"
    )
    enough = size >= NEEDED_SHARED_MEMORY_BYTES
    return _judged("shared memory", enough, f"{size / GIB:.1f} GiB in /dev/shm", problem, "warning")


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


def processor_flags() -> frozenset[str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return frozenset(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())


# What is installed, against what this package was written for.


def check_python(version: tuple[int, ...]) -> Finding:
    found = ".".join(map(str, version))
    problem = f"Python 3.11 is needed and this is {found}: install it, then `make install`"
    return _judged("python", version == (3, 11), f"Python {found}", problem)


def check_compiler(found: Mapping[str, str | None]) -> Finding:
    """torch and Triton compile kernels at run time. `found` is what `compiler_files` returns."""
    missing = [package for package, file in found.items() if file is None]
    problem = (
        f"kernels are compiled at run time and {', '.join(missing)} must be installed for it: run `sudo apt-get "
        f"install {' '.join(missing)}`"
    )
    return _judged("compiler", not missing, ", ".join(filter(None, found.values())), problem)


def check_versions(expected: Mapping[str, str], installed: Mapping[str, str]) -> Finding:
    """verl's and vLLM's internals move between releases, and the plugin knows exactly one of each."""
    wrong = [
        f"{name} is {installed.get(name, 'missing')}, not {version}"
        for name, version in expected.items()
        if _public(installed.get(name, "")) != version
    ]
    found = ", ".join(f"{name} {version}" for name, version in expected.items())
    return _judged("versions", not wrong, found, f"{'; '.join(wrong)}: run `make install`")


def check_lock(lock: str, installed: Mapping[str, str]) -> Finding:
    """The environment holds what the lock says, and nothing else."""
    pins = dict(line.split("==") for line in lock.splitlines() if "==" in line and not line.startswith("#"))
    different = [name for name, version in pins.items() if _public(installed.get(name, "")) != version]
    more = [name for name in installed if name not in pins and name not in _NOT_LOCKED]
    names = ", ".join([*different, *more][:5])
    problem = f"{len(different)} packages differ from the lock and {len(more)} are not in it ({names})"
    found = f"{len(pins)} packages as locked"
    return _judged("environment", not different and not more, found, f"{problem}: run `make install`", "warning")


def check_sandbox(problem: str | None) -> Finding:
    """Only benchmarks of programs need it, and they refuse to start without."""
    needed = f"{problem} (needed where programs are graded)"
    return _judged("sandbox", problem is None, "bubblewrap can isolate programs", needed, "warning")


def check_plugin(status: int, output: str) -> Finding:
    """verl itself hides a plugin that fails to load."""
    problem = f"does not load ({_last_line(output)}): run `make install`"
    return _judged("verl plugin", status == 0, "loads", problem)


def check_template(name: str, status: int, output: str) -> Finding:
    """Fine-tuning must know where a response begins."""
    reason = _last_line(output).removeprefix("elastic_core.errors.UserError: ")
    problem = f"warm_start.sft.chat_template = {name}: {reason}"
    return _judged("chat template", status == 0, f"{name} tells responses from prompts", problem)


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


# Servers that a run talks to.


def _check_services(settings: Settings, runs: Path) -> list[Finding]:
    tracking = settings.mlflow.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    return [
        check_port(4200, "Prefect", _listens(4200), answers("http://127.0.0.1:4200/api/health")),
        check_port(5000, "MLflow", _listens(5000), answers("http://127.0.0.1:5000/health")),
        check_prefect(os.environ.get("PREFECT_API_URL")),
        check_tracking(tracking or f"sqlite:///{runs / 'mlflow.db'}"),
        *_check_cluster(settings),
    ]


def _check_cluster(settings: Settings) -> list[Finding]:
    cluster, train, engine = settings.ray.running, settings.train, settings.engine
    if cluster is None:
        return []
    nodes = ray_nodes(cluster)
    needed = placement(train.nodes, train.gpus_per_node, train.nodes) if train else None
    findings = [check_ray(cluster.dashboard, nodes, needed)]
    if nodes is not None and engine.num_gpus:
        engines = engine.data_parallel_size * _engines_per_replica(settings)
        findings.append(check_engines(nodes, engines, engine.num_gpus))
    return findings


def check_port(port: int, service: str, listening: bool, ours: bool) -> Finding:
    """Only `elastic up` needs the ports."""
    problem = f"taken by something other than {service}: start with `elastic up --{service.lower()}-port N`"
    found = f"{service} answers there" if listening else f"free for {service}"
    return _judged(f"port {port}", ours or not listening, found, problem, "warning")


def check_tracking(uri: str) -> Finding:
    """Whether MLflow's store can be reached: a server answers, or the database's directory can be written."""
    if uri.startswith("http"):
        return _check_server("mlflow", uri, "MLFLOW_TRACKING_URI", "for a local database")
    if uri.startswith("sqlite:///"):
        directory = Path(uri.removeprefix("sqlite:///")).resolve().parent
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        if not os.access(existing, os.W_OK):
            return Finding("mlflow", "failure", f"{existing} cannot be written: set ELASTIC_RUNS to another directory")
    return Finding("mlflow", "ok", uri)


def check_prefect(url: str | None) -> Finding:
    """Without a server every run starts one for itself."""
    if url is None:
        return Finding("prefect", "ok", "every run starts a server of its own")
    return _check_server("prefect", url, "PREFECT_API_URL", "to do without")


def _check_server(check: str, url: str, variable: str, without: str) -> Finding:
    problem = f"{url} does not answer: start it with `elastic up`, or `unset {variable}` {without}"
    there = answers(f"{url.rstrip('/')}/health", proxies=True)
    return _judged(check, there, f"{url} answers", problem)


def check_ray(dashboard: str, nodes: list[tuple[int, int]] | None, needed: Resources | None) -> Finding:
    """Whether a running cluster answers, and training fits on it.

    Args:
        nodes: GPUs and logical CPUs of each node; None when the cluster does not answer.
        needed: what training reserves; None where there is no training.
    """
    if nodes is None:
        advice = "start it with `ray start --head`, or leave ray.address and ray.dashboard out to use this machine"
        return Finding("ray", "failure", f"{dashboard} does not answer: {advice}")
    try:
        if needed:
            check_nodes(nodes, needed)
    except InsufficientResources as error:
        advice = f"{_MORE_NODES}, or lower train.nodes or train.gpus_per_node with `--set`"
        return Finding("ray", "failure", f"{error}: {advice}")
    gpus, cpus = map(sum, zip(*nodes, strict=True))
    return Finding("ray", "ok", f"{dashboard} has {len(nodes)} nodes, {gpus} GPUs and {cpus} logical CPUs")


def check_engines(nodes: list[tuple[int, int]], engines: int, gpus: int) -> Finding:
    """Whether a sweep's engines fit on a running cluster: one that does not is waited for until its deadline.

    Args:
        nodes: GPUs and logical CPUs of each node.
        gpus: that each engine takes, on one node, beside one logical CPU.
    """
    fitting = sum(min(node_gpus // gpus, node_cpus) for node_gpus, node_cpus in nodes)
    needed = f"{engines} engines of {gpus} GPUs"
    problem = f"{needed} are needed and {fitting} fit on the cluster: {_MORE_NODES}, or lower engine.data_parallel_size"
    return _judged("engines", fitting >= engines, f"{needed} fit on the cluster", f"{problem} with `--set`")


def ray_nodes(cluster: RayCluster) -> list[tuple[int, int]] | None:
    """GPUs and logical CPUs of each node; None when the cluster does not answer."""
    from ray.util.state.exception import RayStateApiException

    try:
        return cluster.nodes()
    except (OSError, RuntimeError, RayStateApiException):
        return None


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


# The models of a preset: whether each can be used.


def models_in_use(settings: Settings) -> list[Use]:
    """What the preset begins with and compares with, each once."""
    trains = settings.train is not None
    on_cpu = settings.engine.device == "cpu" or (settings.train is not None and settings.train.device == "cpu")
    device: Literal["cpu", "cuda"] = "cpu" if on_cpu else "cuda"
    uses = [Use("base", settings.base, device, trains)]
    if settings.base == "warm-start":
        # Fine-tuning keeps architecture and tokenizer; the miniature made anew has those of the one that is shipped.
        initial = settings.warm_start.initial
        uses = [Use("warm_start.initial", "shipped" if initial == "random" else initial, device, trained=True)]
    known = {use.model for use in uses}
    further = {name: model for name, model in settings.sweep.directories.items() if model not in known}
    uses += [Use(f"sweep.checkpoints.{name}", model, settings.engine.device) for name, model in further.items()]
    return [use._replace(thinks=settings.thinks) for use in uses]


def look(uses: list[Use], started: subprocess.Popen[str] | None = None) -> list[Finding]:
    """A finding for each model, in about ten seconds. `started` is a probe of them that was begun earlier."""
    if not uses:
        return []
    probe = started or start_probe(MODELS_PROBE, json.dumps(uses))
    # A hub that is away takes its time to be found so.
    return check_models(uses, *finish_probe(probe, seconds=90 + 60 * len(uses)))


def check_models(uses: list[Use], status: int, output: str) -> list[Finding]:
    """What `probe_models` printed about each."""
    if status:
        problem = f"models could not be looked at ({_last_line(output)}): run `make install`"
        return [Finding("model", "failure", problem)]
    # What is imported may print lines of its own. A refusal names its model.
    found = map(json.loads, output.strip().splitlines()[-len(uses) :])
    return [
        Finding("model", "ok", f"{use.setting} = {use.model}: {message}")
        if usable
        else Finding("model", "failure", f"{use.setting} = {message}")
        for use, (usable, message) in zip(uses, found, strict=True)
    ]


def probe_models() -> None:
    """Run in a process of its own, as it imports transformers and vLLM: for each `Use` of the JSON list in the first
    argument a line of JSON, [whether it is usable, why]."""
    from elastic_core.miniature.warm_start import BASE
    from elastic_core.model_check import require_usable
    from elastic_core.model_files import TOKENIZER_FILES, locate

    def usable(use: Use) -> tuple[bool, str]:
        try:
            # Of a model of the hub only what is small is fetched here.
            checkpoint = BASE if use.model == "shipped" else locate(use.model, TOKENIZER_FILES)
            here = use.model == "shipped" or Path(use.model).exists()
            return True, require_usable(
                checkpoint, name=use.model, device=use.device, trained=use.trained, weights=here, thinks=use.thinks
            )
        except UserError as error:
            return False, str(error)

    for line in [usable(Use(*fields)) for fields in json.loads(sys.argv[1])]:
        print(json.dumps(line))


# Probes: Python code that imports what is slow, in a process of its own.


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


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no message"])[-1]
