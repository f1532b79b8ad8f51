"""`elastic doctor`: can this machine run the pipeline? One sentence per check, and what to do where it cannot.

Each `check_*` judges values it is given; the other functions look them up. Nothing heavy is imported: what needs torch,
transformers or verl runs in a process of its own while the other checks go on.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elastic_core.rewards.code.sandbox import sandbox_problem
from elastic_core.system.accelerators import installed_gpus
from flows.commands.doctor.finding import Finding, require
from flows.commands.doctor.gpus import GpuDemand, check_gpus, cuda_version, gpu_demands
from flows.commands.doctor.machine import (
    LOCKS,
    check_compiler,
    check_cores,
    check_lock,
    check_machine,
    check_python,
    check_sandbox,
    check_shared_memory,
    check_versions,
    compiler_files,
    expected_versions,
    installed_build,
    installed_versions,
)
from flows.commands.doctor.models import (
    check_plugin,
    check_template,
    finish_probe,
    look,
    models_in_use,
    start_look,
    start_probe,
)
from flows.commands.doctor.services import check_services
from flows.runtime.environment import runs_directory

if TYPE_CHECKING:
    from flows.runtime.settings import Settings

_PLUGIN_PROBE = "from elastic_core.training.requirements import require_plugin; require_plugin()"
TEMPLATE_PROBE = "import sys; from flows.train import check_chat_template; check_chat_template(*sys.argv[1:])"


def main(preset: str, overrides: Mapping[str, Any]) -> int:
    """Print every finding as it comes; 1 if one is a failure, else 0. Raises UserError for settings that are none."""
    from flows import presets

    failed = False
    for finding in run_checks(presets.resolve(preset, overrides)):
        click.echo(f"{finding.level:8} {finding.check:14} {finding.message}")
        failed |= finding.level == "failure"
    return int(failed)


def require_machine(settings: Settings, stages: Collection[str] | None = None) -> None:
    """What a flow asks before it starts, in well under a second.

    Args:
        stages: that may take GPUs; all of them without.

    Raises:
        UserError: when this machine cannot run it; a sentence for each reason.
    """
    demands = [demand for demand in gpu_demands(settings) if stages is None or demand.stage in stages]
    require(*_check_gpus(settings, demands), *check_machine(runs_directory()))


def _check_gpus(settings: Settings, demands: Sequence[GpuDemand]) -> list[Finding]:
    build, cuda = installed_build(), cuda_version(installed_versions())
    return check_gpus(build, installed_gpus(), demands, cuda, on_cluster=settings.ray.running is not None)


def run_checks(settings: Settings) -> Iterator[Finding]:
    """Every check, in the order a new machine meets them; what is slow to look up comes last."""
    runs, build, installed = runs_directory(), installed_build(), installed_versions()
    yield check_python(sys.version_info[:2])
    plugin = start_probe(_PLUGIN_PROBE)
    uses = models_in_use(settings)
    looks = start_look(uses)
    sft = settings.warm_start.sft if settings.base == "warm-start" else None
    template = sft and start_probe(TEMPLATE_PROBE, settings.warm_start.initial, sft.chat_template)
    yield check_compiler(compiler_files(build))
    yield from _check_gpus(settings, gpu_demands(settings))
    yield from check_machine(runs)
    yield check_cores(len(os.sched_getaffinity(0)))
    yield check_shared_memory(shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else 0)
    yield check_versions(expected_versions(build), installed)
    if (lock := LOCKS / f"{build}.txt").exists():
        yield check_lock(lock.read_text(), installed)
    yield check_sandbox(sandbox_problem())
    yield from check_services(settings, runs)
    yield check_plugin(*finish_probe(plugin))
    yield from look(uses, looks)
    if sft and template:
        yield check_template(sft.chat_template, *finish_probe(template))
