"""`elastic doctor`: can this machine run the pipeline? One sentence per check, and what to do where it cannot.

Each `check_*` judges values it is given. Those that import torch, transformers or verl run in child processes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from elastic_core.errors import UserError
from elastic_core.rewards.code.sandbox import sandbox_problem
from elastic_core.system.processes import PYTHON
from flows import presets
from flows.commands.doctor.machine import (
    LOCKS,
    Finding,
    check_bfloat16,
    check_closed,
    check_compiler,
    check_cores,
    check_lock,
    check_machine,
    check_python,
    check_sandbox,
    check_shared_memory,
    compiler_files,
    installed_build,
    installed_versions,
    judged,
    processor_flags,
)
from flows.commands.doctor.resources import check_services, find_gpus, gpu_demands
from flows.commands.options import settings_options
from flows.runtime.environment import prepare, runs_directory

if TYPE_CHECKING:
    from flows.runtime.settings import Settings


@click.command()
@settings_options("Preset whose model, GPUs and cluster are checked.")
def doctor(preset: str, overrides: dict[str, Any]) -> None:
    """Check that this machine can run the pipeline."""
    prepare()
    failed = False
    for finding in run_checks(presets.resolve(preset, overrides)):
        click.echo(f"{finding.level:8} {finding.check:14} {finding.message}")
        failed |= finding.level == "failure"
    sys.exit(int(failed))


def run_checks(settings: Settings) -> Iterator[Finding]:
    """Every check, in the order a new machine meets them; the slow ones come last."""
    runs, build, installed = runs_directory(), installed_build(), installed_versions()
    yield check_python(sys.version_info[:2])
    with ThreadPoolExecutor() as pool:
        plugin = pool.submit(probe, "elastic_core.training.requirements:require_plugin")
        models = pool.submit(findings_of_models, models_in_use(settings))
        sft = settings.warm_start.sft if settings.base == "warm-start" else None
        check = "flows.train:check_chat_template"
        template = sft and pool.submit(probe, check, settings.warm_start.initial, sft.chat_template)
        yield check_compiler(compiler_files(build))
        yield from find_gpus(settings, gpu_demands(settings))
        yield from check_machine(runs)
        yield check_closed(runs)
        if float32 := _float32(settings):
            yield check_bfloat16(float32, processor_flags())
        yield check_cores(len(os.sched_getaffinity(0)))
        yield check_shared_memory(shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else 0)
        if (lock := LOCKS / f"{build}.txt").exists():
            yield check_lock(lock.read_text(), installed)
        yield check_sandbox(sandbox_problem())
        yield from check_services(settings, runs)
        yield check_plugin(plugin.result()[1])
        yield from models.result()
        if sft and template:
            yield check_template(sft.chat_template, template.result()[1])


def _float32(settings: Settings) -> list[str]:
    """Options that have a CPU compute in float32 where the settings say bfloat16."""
    sft, train, engine = settings.warm_start.sft, settings.train, settings.engine
    found = {
        "warm_start.sft.precision=fp32": sft and sft.device == "cpu" and sft.precision == "bf16",
        "train.precision=fp32": train and train.device == "cpu" and train.precision == "bf16",
        "train.rollout_dtype=float32": train and train.device == "cpu" and train.rollout_dtype == "bfloat16",
        "engine.dtype=float32": engine.device == "cpu" and engine.dtype == "bfloat16",
    }
    return [f"--set {each}" for each, slow in found.items() if slow]


class Use(NamedTuple):
    """A model ("shipped", a directory, or OWNER/NAME on the hub) and the setting that names it.

    It also holds the device of its engine, whether verl trains it, whether it needs think markers, and its family.
    """

    setting: str
    model: str
    device: Literal["cpu", "cuda"]
    trained: bool = False
    thinks: bool = True
    family: str | None = None


def models_in_use(settings: Settings) -> list[Use]:
    """Models that the preset begins with and compares with, each once."""
    on_cpu = "cpu" in (settings.engine.device, settings.train and settings.train.device)
    device: Literal["cpu", "cuda"] = "cpu" if on_cpu else "cuda"
    family = settings.family("base")
    first = Use("base", settings.base, device, settings.train is not None, family=family)
    if settings.base == "warm-start":
        # Fine-tuning keeps architecture and tokenizer; the miniature made anew has those of the one that is shipped.
        initial = settings.warm_start.initial
        model = "shipped" if initial == "random" else initial
        first = Use("warm_start.initial", model, device, trained=True, family=family)
    further = [
        Use(f"sweep.checkpoints.{name}", model, settings.engine.device, family=settings.family(name))
        for name, model in settings.sweep.directories.items()
        if model != first.model
    ]
    return [use._replace(thinks=settings.thinks) for use in (first, *further)]


def findings_of_models(uses: list[Use]) -> list[Finding]:
    """A finding for each model, in about ten seconds."""
    if not uses:
        return []
    # Requests to a hub that is away take long to fail.
    found, problem = probe("flows.commands.doctor:check_models", uses, seconds=90 + 60 * len(uses))
    if problem:
        return [Finding("model", "failure", f"models could not be checked ({problem}): run `make install`")]
    return [Finding(*each) for each in found]


def check_models(uses: Sequence[Sequence[Any]]) -> list[Finding]:
    """Whether models can be used, by the fields of a `Use` each. Imports transformers and vLLM."""
    from elastic_core.miniature.warm_start import BASE
    from elastic_core.models.check import require_usable
    from elastic_core.models.families import with_family
    from elastic_core.models.files import TOKENIZER_FILES, locate

    findings = []
    with TemporaryDirectory() as views:
        for use in (Use(*fields) for fields in uses):
            here = use.model == "shipped" or Path(use.model).exists()
            try:
                # Of a model of the hub only small files are fetched.
                checkpoint = BASE if use.model == "shipped" else locate(use.model, TOKENIZER_FILES)
                if use.family is not None:
                    checkpoint = with_family(checkpoint, use.family, Path(views))
                markers = require_usable(
                    checkpoint, name=use.model, device=use.device, trained=use.trained, weights=here, thinks=use.thinks
                )
                findings.append(Finding("model", "ok", f"{use.setting} = {use.model}: {markers}"))
            except UserError as error:  # It names the model.
                findings.append(Finding("model", "failure", f"{use.setting} = {error}"))
    return findings


def probe(function: str, *arguments: Any, seconds: float = 300) -> tuple[Any, str]:
    """Call a function, MODULE:NAME, in another process. Arguments and result are values that JSON has; with the result
    comes "", or else the reason why there is none."""
    module, _, name = function.partition(":")
    call = f"import json, sys; from {module} import {name}; print(json.dumps({name}(*json.loads(sys.argv[1]))))"
    command = [*PYTHON, "-W", "ignore", "-c", call, json.dumps(arguments)]
    environment = {**os.environ, **({"VERL_PLATFORM": "cpu"} if installed_build() == "cpu" else {})}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None, f"no answer within {seconds:g} s"
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return None, complaint.removeprefix("elastic_core.errors.UserError: ")
    return json.loads(done.stdout.splitlines()[-1]), ""  # Imported modules may print lines too.


def check_plugin(problem: str) -> Finding:
    """verl itself hides a plugin that fails to load."""
    return judged("verl plugin", not problem, "loads", f"does not load ({problem}): run `make install`")


def check_template(name: str, problem: str) -> Finding:
    """Fine-tuning must know where a response begins."""
    found, failed = f"{name} tells responses from prompts", f"warm_start.sft.chat_template = {name}: {problem}"
    return judged("chat template", not problem, found, failed)
