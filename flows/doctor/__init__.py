"""`elastic doctor`: can this machine run the pipeline? One sentence per check, and what to do where it cannot.

Each `check_*` judges values it is given; the functions here collect them. Nothing heavy is imported: what needs torch,
transformers or verl runs in a process of its own while the other checks go on.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elastic_core.errors import UserError
from elastic_core.rewards.sandbox import sandbox_problem
from elastic_core.sweep.grid import checkpoints
from elastic_core.training.resources import placement
from flows.doctor import machine, models, services, software
from flows.doctor.finding import Finding
from flows.environment import runs_directory
from flows.services import answers

if TYPE_CHECKING:
    from flows.settings import Settings

_REPOSITORY = Path(__file__).resolve().parent.parent.parent


def require(*findings: Finding) -> None:
    """Nothing, when no finding is a failure.

    Raises:
        UserError: with the sentence of each failure.
    """
    failures = [finding.message for finding in findings if finding.level == "failure"]
    if failures:
        raise UserError("; ".join(failures))


def check_machine(
    runs: Path,
    memory_bytes: int = machine.NEEDED_MEMORY_BYTES,
    disk_bytes: int = machine.NEEDED_DISK_BYTES,
    gpus: int = 1,
    demands: Sequence[machine.GpuDemand] = (),
) -> list[Finding]:
    """What a flow asks before it starts, in milliseconds: processor or accelerators, memory, disk.

    Args:
        gpus: 0 for a driver of a cluster, which takes none of this machine's, unless `demands` says so.
    """
    import psutil

    memory = psutil.virtual_memory()
    total = min(memory.total, machine.cgroup_memory_limit() or memory.total)
    existing = next(path for path in (runs, *runs.resolve().parents) if path.exists())
    accelerator = [machine.check_processor(machine.processor_flags())]
    if software.installed_engine() == "gpu":
        accelerator = [machine.check_gpus(machine.installed_gpus(), demands)] if gpus or demands else []
    return [
        *accelerator,
        machine.check_memory(total, memory.available, memory_bytes),
        machine.check_disk(shutil.disk_usage(existing).free, runs, disk_bytes),
    ]


def run_checks(settings: Settings) -> list[Finding]:
    """Every check, in the order a new machine meets them."""
    runs = runs_directory()
    plugin = software.start_probe(software.PLUGIN_PROBE)
    uses = models.models_in_use(settings)
    looks = models.start_look(uses)
    sft = settings.warm_start.sft if settings.base == "warm-start" else None
    template = sft and software.start_probe(software.TEMPLATE_PROBE, settings.warm_start.initial, sft.chat_template)
    return [
        software.check_python(sys.version_info[:2]),
        software.check_compiler(software.compiler_files(software.installed_engine())),
        *check_machine(runs, gpus=0 if settings.ray.running else 1, demands=gpu_demands(settings)),
        machine.check_cores(len(os.sched_getaffinity(0))),
        machine.check_shared_memory(shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else 0),
        *_check_packages(),
        software.check_sandbox(sandbox_problem()),
        *_check_services(settings, runs),
        software.check_plugin(*software.finish_probe(plugin)),
        *models.finish_look(uses, looks),
        *([software.check_template(sft.chat_template, *software.finish_probe(template))] if sft and template else []),
    ]


def gpu_demands(settings: Settings) -> list[machine.GpuDemand]:
    """What takes GPUs of this machine. On a cluster only fine-tuning does."""
    engine, train, sft = settings.engine, settings.train, settings.warm_start.sft
    demands = []
    if settings.base == "warm-start" and sft:
        demands.append(machine.GpuDemand("warm_start.sft.gpus", sft.gpus, movable=False))
    if settings.ray.running is None:
        if train:
            demands.append(machine.GpuDemand("train.gpus_per_node", train.gpus_per_node))
        if engine.num_gpus:
            gpus = engine.num_gpus * _engines_per_replica(settings)
            demands.append(machine.GpuDemand("engine.data_parallel_size", engine.data_parallel_size, gpus))
    return demands


def _engines_per_replica(settings: Settings) -> int:
    """A pair of models has an engine for each."""
    return max(len(set(checkpoints(model).values())) for model in settings.sweep.models)


def main(preset: str, overrides: Mapping[str, Any]) -> int:
    """Print every finding; 1 if one is a failure, else 0.

    Raises:
        UserError: for settings that are none.
    """
    from flows import presets

    findings = run_checks(presets.resolve(preset, overrides))
    for finding in findings:
        click.echo(f"{finding.level:8} {finding.check:14} {finding.message}")
    return int(any(finding.level == "failure" for finding in findings))


def _check_packages() -> list[Finding]:
    engine, installed = software.installed_engine(), software.installed_versions()
    lock = _REPOSITORY / "infra" / "requirements" / f"{engine}.txt"
    versions = software.check_versions(software.expected_versions(engine), installed)
    return [versions, *([software.check_lock(lock.read_text(), installed)] if lock.exists() else [])]


def _check_services(settings: Settings, runs: Path) -> list[Finding]:
    tracking = settings.mlflow.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    findings = [
        services.check_port(port, name, services.listening(port), answers(f"http://127.0.0.1:{port}{path}"))
        for port, name, path in ((4200, "Prefect", "/api/health"), (5000, "MLflow", "/health"))
    ]
    findings += [
        services.check_prefect(os.environ.get("PREFECT_API_URL")),
        services.check_tracking(tracking or f"sqlite:///{runs / 'mlflow.db'}"),
    ]
    return findings + _check_cluster(settings)


def _check_cluster(settings: Settings) -> list[Finding]:
    cluster, train, engine = settings.ray.running, settings.train, settings.engine
    if cluster is None:
        return []
    nodes = services.ray_nodes(cluster)
    needed = placement(train.nodes, train.gpus_per_node, train.nodes) if train else None
    findings = [services.check_ray(cluster.dashboard, nodes, needed)]
    if nodes is not None and engine.num_gpus:
        engines = engine.data_parallel_size * _engines_per_replica(settings)
        findings.append(services.check_engines(nodes, engines, engine.num_gpus))
    return findings
