"""`make gpu`: everything that only a GPU can show, in steps that leave their evidence in one folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.errors import UserError
from elastic_core.models import files
from elastic_core.models.twins import SMALL, Family, Size, family_of, make_twin, origin_of
from elastic_core.sweep.table import SweepTable
from elastic_core.system.accelerators import installed_gpus
from elastic_core.system.files import write_text
from elastic_core.system.retry import wait_until
from flows import presets
from flows.commands.checks.runner import Commands, begin, last_lines, newest
from flows.commands.checks.shortened import Inputs, given_values, prepare_rows, rehearsal_values
from flows.runtime.environment import runs_directory
from flows.runtime.settings import Settings
from tasks.records.stage_directory import METRICS, TABLE
from tests.gpu import gradients
from tests.gpu.evidence import (
    FILE,
    Machine,
    conclusion,
    facts,
    find_machine,
    first_step,
    judge,
    nvidia_smi,
    write_summary,
)
from tests.gpu.steps import Record, Step, run_steps

EVIDENCE, WORK = "gpu-evidence", "gpu-check"  # Directories of what is kept, and of what it was made with.
NO_GPU = "no GPU here"
PRESET = "e1-math-1.5b"
TIED = "e1-math-qwen3-4b"
"""The preset of a twin in the model's place: tied, as the weights of a tied model are the harder ones to send."""
STEPS, KILLED_AFTER = 3, 2
BENCHMARKS = ("aime-2024", "math500")
PROBLEMS, SAMPLES = 30, 4  # Of both benchmarks together, and of each problem.
BUCKET_MEGABYTES = 160
"""Of the weights that are sent to the sampler at once: a GPU's twin has 148 in its embedding alone."""
_SECONDS = {
    "cuda": {"engine": 130, "train": 230, "pipeline": 200, "verl": 150, "gradient": 70, "serve": 200, "engine-mp": 130},
    "cpu": {"engine": 35, "train": 120, "pipeline": 175, "verl": 120, "gradient": 18, "serve": 65},
}
"""What the long steps take, as seen on one H200 and on two cores; on the GPU those of `verl` are an estimate."""
CPU_VOCABULARY = 8192
"""Tokens of a CPU's twin: with Qwen3's 151,643 a CPU takes 5 ms for each token that it samples."""
GPU_TWIN = Size(layers=4, width=512, head=128)
"""Larger than a rehearsal's, so that a GPU has something to compute; with the heads of the real model."""
_PER_GPU = ("train.gpus_per_node", "engine.data_parallel_size")
_FREED_SECONDS = 120  # How long the memory of a killed process may take to be free again.


def gpu_check(say: Callable[[str], None], minutes: float) -> tuple[str, bool]:
    """Run what has not passed here yet and fits the `minutes`, with a line of progress to `say`; leave evidence. The
    conclusion, and whether no step failed. Raises UserError when no step can run on this machine."""
    machine = find_machine()
    evidence, work = runs_directory() / EVIDENCE, runs_directory() / WORK
    begin(work, machine.commit)
    model, missing = None, NO_GPU
    if machine.gpus:
        base = presets.resolve(PRESET).base
        say(f"looking for {base}")
        try:
            model = files.locate(base)
        except UserError as error:
            missing = str(error)
    known = facts(machine)
    write_text(evidence / "machine.json", json.dumps(known, indent=2) + "\n")
    write_text(evidence / "nvidia-smi.txt", nvidia_smi() + "\n")
    steps = Check(machine, evidence, work, model, missing).steps()

    records: list[Record] = []
    kept = evidence / "steps"
    for record in run_steps(steps, kept, where=machine.name, commit=machine.commit, say=say, minutes=minutes):
        records.append(record)
        write_summary(evidence, known, records, len(steps))
    return f"{conclusion(records, len(steps))} {evidence / FILE}", all(record.verdict != "failed" for record in records)


@dataclass(frozen=True)
class CommandsOnGpus(Commands):
    """Programs that use the GPUs of this machine, and the hub if they may."""

    machine: Machine
    hub: bool

    def environment(self) -> dict[str, str]:
        """Wait until the driver has freed the memory of a killed process, which it does after that process is gone."""
        before = sum(gpu.free for gpu in self.machine.gpus)
        wait_until(lambda: sum(gpu.free for gpu in installed_gpus()) >= 0.9 * before, _FREED_SECONDS, every=1)
        given = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES")}
        given |= {"HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE")} if self.hub else {}
        variables = super().environment()
        return {name: value for name, value in {**variables, **given}.items() if value is not None}


@dataclass(frozen=True)
class Check:
    """The steps, with the folder of evidence that is kept, the one of models, checkpoints and tables, and the real
    model's directory, or why it is `missing`."""

    machine: Machine
    evidence: Path
    work: Path
    model: Path | None
    missing: str

    @cached_property
    def commands(self) -> Commands:
        # The name tells the model: nothing of a twin's can be taken for the model's.
        preset = self.work / f"{'gpu-model' if self.model else 'gpu-twin'}.toml"
        return CommandsOnGpus(self.work, self.evidence / "logs", preset, self.machine, self.model is not None)

    @property
    def device(self) -> str:
        return "cuda" if self.machine.gpus else "cpu"

    @property
    def twin(self) -> Path:
        return self.work / "twin"

    def steps(self) -> list[Step]:
        """The most telling first."""
        base = presets.resolve(PRESET).base
        used = base if self.model else f"a tied twin of {presets.resolve(TIED).base}"
        train = partial(self.commands.kill, "train", "pipeline", f"train/*/checkpoints/global_step_{KILLED_AFTER}")
        kept = "budgets to the token, and tokens per second"
        no_gpu = "" if self.machine.gpus else NO_GPU
        made = ("inputs",)
        steps = [
            Step("doctor", "this machine can run the pipeline", self._doctor),
            Step("inputs", "a twin, and the preset of the steps below", self._inputs, model=used),
            Step("engine", f"an engine alone: {kept}", partial(self._engine, "engine"), made, used),
            Step("train", f"GRPO, killed after step {KILLED_AFTER}", train, made, used),
            Step("pipeline", f"GRPO goes on to step {STEPS}; sweep and report", self._pipeline, ("train",), used),
            Step("verl", "a GRPO step beside plain verl's", self._beside_verl, ("pipeline",), used),
            Step("gradient", "untied and tied models have the right gradient over FSDP2 ranks", self._gradient),
            Step("serve", "elastic serve beside vllm serve", self._serve, made, used),
            Step(
                "engine-mp",
                "the engine in a process of its own",
                partial(self._engine, "engine-mp"),
                made,
                used,
                no_gpu,
            ),
        ]
        return [replace(step, seconds=_SECONDS[self.device].get(step.name, 15)) for step in steps]

    def _doctor(self) -> str:
        asked = []
        if self.machine.gpus:
            given = {"base": "shipped"} | dict.fromkeys(_PER_GPU, self.machine.ranks)
            asked = ["--preset", PRESET, *(part for name in given for part in ("--set", f"{name}={given[name]}"))]
        status = self.commands.start("doctor", "-m", "flows.commands", "doctor", *asked)
        findings = last_lines(self.commands.log("doctor"))
        failures, warnings = (
            "; ".join(" ".join(line.split()[1:]) for line in findings if line.startswith(level))
            for level in ("failure", "warning")
        )
        if status or failures:
            raise UserError(failures or findings[-1])
        return f"no failure; warnings: {warnings or 'none'}"

    def _inputs(self) -> str:
        gpus, ranks = bool(self.machine.gpus), self.machine.ranks
        size = GPU_TWIN if gpus else SMALL
        settings = shortened(ranks, twin=self.model is None)
        origin = origin_of(settings.base) if gpus else with_few_tokens(family_of(settings.base))
        make_twin(settings.base, origin, self.twin, size=size)
        told = f"twin of {size.layers} layers, width {size.width}: {origin}"
        twin = None
        if self.model is None:
            inputs, rows = prepare_rows(settings, self.work)
            twin = self.twin, inputs
            told = f"{told}; rows: {rows}; the model itself: {self.missing}"
        values = preset_values(ranks, "gpu" if gpus else "cpu", twin)
        write_text(self.commands.preset, f"# {PRESET}, shortened by `make gpu`.\n{presets.toml(values)}")
        presets.resolve(str(self.commands.preset))
        self._keep(self.commands.preset, "preset.toml")
        return told

    def _gradient(self) -> str:
        directory = self.work / "gradient"
        directory.mkdir(parents=True, exist_ok=True)
        device, ranks = ("cuda", min(2, self.machine.ranks)) if self.machine.gpus else ("cpu", 2)
        arguments = ("-m", gradients.__name__, "--device", device, "--ranks", str(ranks), str(directory))
        self.commands.finish("gradient", *arguments)
        self._keep(directory / gradients.RESULT)
        told = last_lines(self.commands.log("gradient"))[-1]
        return f"{told} (families: {', '.join(gradients.FAMILIES)}; untied and tied)"

    def _beside_verl(self) -> str:
        return self._measured("verl", "tests.bench.bench_grpo", "--training", newest(self.commands.results, "train/*"))

    def _engine(self, name: str) -> str:
        executor = ("--executor", "mp") if name == "engine-mp" else ()
        sequences = ("--sequences", *(("256", "512", "1024") if self.machine.gpus else ("64",)))
        return self._of_model(name, "tests.gpu.engine", *sequences, *executor)

    def _serve(self) -> str:
        return self._of_model("serve", "tests.gpu.serving")

    def _of_model(self, name: str, module: str, *arguments: str) -> str:
        return self._measured(name, module, self.model or self.twin, "--device", self.device, *arguments)

    def _measured(self, name: str, module: str, *arguments: str | Path) -> str:
        """The finding of a program, whose figures are kept."""
        out = self.evidence / f"{name}.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        self.commands.finish(name, "-m", module, *map(str, arguments), "--out", str(out))
        return str(json.loads(out.read_text())["finding"])

    def _pipeline(self) -> str:
        """One flow goes on with all that is left."""
        self.commands.flow("pipeline", "pipeline")
        stage = newest(self.commands.results, "train/*")
        for file in (stage / METRICS, stage / "verl.yaml", *stage.glob("train*.log")):
            self._keep(file, f"training/{file.name}")
        begun = first_step(stage / "train.log")
        if begun <= KILLED_AFTER:
            raise UserError(f"it began with step {begun}, though the checkpoint of step {KILLED_AFTER} was there")
        told, rows = judge(pl.read_parquet(stage / METRICS), STEPS)
        write_text(self.evidence / "training" / "steps.json", json.dumps(rows, indent=2) + "\n")
        expected = presets.resolve(str(self.commands.preset)).sweep.problems or 1
        swept = measured(newest(self.commands.results, "sweep/*") / TABLE, expected * len(BENCHMARKS))
        shutil.copytree(self.commands.results / "report", self.evidence / "report", dirs_exist_ok=True)
        return f"went on with step {begun}; {told}; {swept}; report/report.md and report/report.html"

    def _keep(self, file: Path, name: str | None = None) -> None:
        target = self.evidence / (name or file.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def measured(table: Path, expected: int) -> str:
    """What a sweep's table holds, in words; a UserError when it has fewer problems than expected."""
    rows = SweepTable(table).scan().select("model", "strategy", "benchmark", "problem", "sample").collect()
    problems, samples = rows.select("benchmark", "problem").n_unique(), rows["sample"].n_unique()
    models, strategies = (", ".join(sorted(rows[name].unique())) for name in ("model", "strategy"))
    told = f"{problems} problems × {samples} samples; models {models}; {strategies}; {len(rows)} rows"
    if problems < expected:
        raise UserError(f"{told}; expected {expected} problems")
    return told


def with_few_tokens(family: Family) -> Family:
    """The family with CPU_VOCABULARY tokens, and its further ones, such as end-of-text, after them."""
    fewer = family.vocabulary - CPU_VOCABULARY
    ends = [token - fewer for token in family.generation["eos_token_id"]]
    return replace(
        family,
        vocabulary=CPU_VOCABULARY,
        tokens={token - fewer: text for token, text in family.tokens.items()},
        generation={**family.generation, "eos_token_id": ends},
        config={**family.config, "vocab_size": family.config["vocab_size"] - fewer},
    )


def shortened(ranks: int, twin: bool) -> Settings:
    """PRESET, or for a twin TIED, for a short time on `ranks` GPUs; a twin's batches are smaller, as few rows stand in
    for a data set."""
    batch = 8 if twin else 32
    changes = {
        "data.validation": ["aime-2024"],
        "data.benchmarks": list(BENCHMARKS),
        "data.datasets": [],
        "train.steps": STEPS,
        "train.batch_size": batch,
        "train.mini_batch_size": batch // 2,
        "train.save_every": KILLED_AFTER,
        # A checkpoint of the real model takes some 25 GB.
        "train.keep_checkpoints": 1,
        "train.validate_every": STEPS,
        "train.validation_samples": 1,
        "train.rollout_workers": 4,
        "sweep.budgets": ["0.5k+1k", "1k+1k"],
        "sweep.problems": PROBLEMS // len(BENCHMARKS),
        "sweep.samples": SAMPLES,
        # A twin never ends a response, so that one without a budget would fill the context.
        **({"sweep.strategies": ["separate", "budget_forcing", "vanilla"]} if twin else {}),
        **dict.fromkeys(_PER_GPU, ranks),
    }
    return presets.resolve(TIED if twin else PRESET, changes)


def preset_values(ranks: int, device: str, twin: tuple[Path, Inputs] | None) -> dict[str, Any]:
    """The values of the preset file of `shortened`, with a twin's directory and data, or None for the real ones. On the
    device "cpu" lengths are those of a rehearsal, in one process."""
    settings = shortened(ranks, twin is not None)
    values = given_values(settings)
    if twin is None:
        return values
    model, inputs = twin
    if device == "gpu":
        values["base"] = str(model)
        values["data"] |= {"mirror": str(inputs.mirror)} if inputs.mirror else {}
        bucket = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"
        values["train"]["verl"] = {bucket: BUCKET_MEGABYTES}
        return values
    values = rehearsal_values(settings, {settings.base: model}, inputs)
    # An engine for each further model, and for the pair of both, would show nothing more.
    values["sweep"]["models"] = ["trained"]
    kept = {name: given_values(settings)["train"][name] for name in ("steps", "save_every", "validate_every")}
    values["train"] |= {**kept, "gpus_per_node": 1, "rollout_workers": 1}
    values["engine"] |= {"data_parallel_size": 1}
    return values
