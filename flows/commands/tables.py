"""Trajectory tables: what a sweep would cost, how far it is (neither starts an engine or a server), its rows graded
again, and fine-tuning data made of its correct responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from rich.table import Table
from tqdm import tqdm

from elastic_core.data.problems import Problem, read_problems
from elastic_core.errors import UserError
from elastic_core.reasonflux.chat_templates import CHAT_TEMPLATES
from elastic_core.reasonflux.sft import TABLE_COLUMNS, alpaca_rows
from elastic_core.rewards.code.sandbox import require_sandbox
from elastic_core.sweep.cost import Bound, bound, measured
from elastic_core.sweep.grid import every_strategy, request_cells, rows_of, samples_of, samples_text, within
from elastic_core.sweep.models import Prompts, SweepModel
from elastic_core.sweep.rows import gradable, regrade
from elastic_core.sweep.sound import whole_samples
from elastic_core.sweep.stopping import beyond_reach, projection, reach, widest
from elastic_core.sweep.table import MANIFEST, SweepTable
from elastic_core.system.files import write_text
from elastic_core.trajectory import CELL
from flows.runtime.run import FlowRun
from reports.comparison import render
from reports.verdict import readable, unreadable
from tasks.records.stage_directory import INPUTS, TABLE
from tasks.records.tables import benchmark_files, open_table, preset_directory, sweep_table

if TYPE_CHECKING:
    from tasks.sweep import Sweep

_BYTES_PER_TOKEN = 8.0
"""Of a table whose size has not been measured: four for the token's id, the rest for text and everything else."""


def costs(run: FlowRun) -> Iterator[str]:
    """Cells, an upper bound of tokens with and without sharing, time and disk space of what is still missing. What is
    measured comes first: loading the tokenizers, which the rest needs, takes seconds. Raises UserError when the sweep
    could not be run, or its data or models are not there yet."""
    run.require_data()
    benchmarks = ", ".join(f"{name} ({len(problems)} problems)" for name, problems in run.problems.items())
    yield f"{benchmarks} × {samples_text(run.sweep.request['samples'])}"
    from tasks.sweep import Sweep

    given = run.sweep, run.settings.engine, run.checkpoints, run.problems, run.templates, run.endpoints
    asked = Sweep.of(*given)
    request = asked.stage.request
    own = request.get("strategies_of", {})
    for strategy in every_strategy(request["strategies"], own):
        running = [model for model in asked.models if any(cell.strategy == strategy for cell in model.cells)]
        budgets = [str(cell.budget) for model in running for cell in model.cells if cell.strategy == strategy]
        of = f" of {', '.join(model.name for model in running)}" if own else ""
        yield f"  {strategy}{of}: {', '.join(dict.fromkeys(budgets))}"
    table = Table("model", "cells", "rows missing", "tokens at most", "without sharing", "time at most", "disk at most")
    remarks = set()
    for model in asked.models:
        plan = asked.plan(model)
        figures = ["unknown"] * 4
        if not isinstance(model.prompts, Prompts) or model.context is None:
            remarks.add(f"{model.name} is asked in text: only its server knows what tokens it takes.")
        else:
            most = bound(
                *(plan, model.prompts.ids, model.rows.markers, model.context, model.prompts.strategies),
                run.settings.sweep.max_response_tokens,
            )
            time, disk, remark = _time_and_disk(run, model, most)
            remarks.update(remark)
            figures = [f"{most.shared:,}", f"{most.independent:,}", time, disk]
        table.add_row(model.name, str(len(model.cells)), f"{plan.num_missing:,} of {plan.num_rows:,}", *figures)
    settings = run.settings.sweep
    if settings.sharing == "independent":
        remarks.add("sweep.sharing is independent: this sweep will take the tokens without sharing.")
    if settings.until_ci is not None:
        remarks.add(
            f"until_ci may take up to {settings.max_samples} samples instead of {samples_text(settings.samples)}: the "
            "figures grow in proportion."
        )
        remarks.update(narrowest(asked, settings.until_ci, settings.max_samples))
    yield from (render(table), *sorted(remarks), f"next: {run.command('sweep')}")


def status(run: FlowRun) -> str:
    """Rows per cell, of those asked for. It does not check which fit their model's context: loading the tokenizers
    would take longer than all the rest. Raises UserError when the sweep's data or models are not there yet."""
    run.require_data()
    stage, problems = run.sweep, {name: [problem.id for problem in given] for name, given in run.problems.items()}
    samples, store = stage.request["samples"], sweep_table(stage, run.settings.engine, run.endpoints)
    finished = store.finished().filter(rows_of(problems) & within(samples))
    counts = {tuple(row[:-1]): row[-1] for row in finished.group_by(CELL).len().iter_rows()}
    whole = whole_samples(finished, {name: len(ids) for name, ids in problems.items()}).rows
    reported = set(whole.select(CELL).unique().iter_rows())
    table = Table("model", "benchmark", "strategy", "budget", "rows", "of", "")
    done = total = waiting = 0
    for model, cells in request_cells(stage.request, list(problems)).items():
        for cell in cells:
            wanted = len(problems[cell.benchmark]) * samples_of(samples, cell.benchmark)
            there = counts.get(cell.key, 0)
            done, total, waiting = done + there, total + wanted, waiting + (cell.key not in reported)
            bar = "█" * round(20 * there / wanted)
            budget = str(cell.budget)
            table.add_row(model, cell.benchmark, cell.strategy, budget, f"{there:,}", f"{wanted:,}", f"{bar:20}")
    remarks = unreadable(readable(store.scan().select("model", "think_finish", "grade_status").collect()))
    counted = f"{done:,} of {total:,} rows ({done / total:.0%}) in {store.directory}"
    if waiting:
        leaves = "1 cell" if waiting == 1 else f"{waiting} cells"
        remarks.insert(0, f"A report leaves out {leaves}, as some problems have no first sample there yet.")
    return "\n".join([render(table), counted, *remarks])


def narrowest(asked: Sweep, target: float, cap: int) -> list[str]:
    """What keeps intervals wider than `target`, a half-width in points (percent): too few problems, cells that are all
    wrong or all right, problems that differ as those of the rows so far do; `cap` is the most samples."""
    counts = {name: len(problems) for name, problems in asked.problems.items()}
    refused = [f"until_ci={target:g} will be refused: {sentence}." for sentence in beyond_reach(target, counts, cap)]
    if refused:
        return refused
    remarks = [
        f"until_ci={target:g}: of {name}, a cell that is all wrong or all right keeps ±{certain:.1f} points."
        for name, count in counts.items()
        if (certain := reach(count, cap).certain) > target
    ]
    rows = whole_samples(asked.scores().collect(), counts).rows
    if rows.is_empty():
        return remarks
    then = widest(rows.lazy(), [cell for model in asked.models for cell in model.cells], cap)
    return [*remarks, projection(then, cap)] if then.half_width > target else remarks


def _time_and_disk(run: FlowRun, model: SweepModel, most: Bound) -> tuple[str, str, list[str]]:
    """Both as text, and what has to be said about them."""
    found = measured(run.runs.glob("*/sweep/*"), model.rows.model_fingerprint, model.rows.engine_fingerprint)
    if found is None:
        remark = "No rate was measured of this model on this engine yet: a sweep of few samples will (sweep.samples=1)."
        return "unknown", _bytes(most.independent * _BYTES_PER_TOKEN), [remark]
    drawn = most.independent if run.settings.sweep.sharing == "independent" else most.shared
    seconds = drawn / found.tokens_per_second * found.replicas / model.replicas(run.settings.engine)
    remark = (
        f"Time from {found.tokens_per_second:,.0f} tokens/s, measured on {found.replicas} engine(s) by an earlier "
        "sweep; start-up is not in it."
    )
    minutes = round(seconds / 60)
    time = f"{seconds:.0f} s" if seconds < 120 else f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
    return time, _bytes(most.independent * found.bytes_per_token), [remark]


def _bytes(count: float) -> str:
    return f"{count / 2**20:,.1f} MiB" if count < 2**30 else f"{count / 2**30:,.1f} GiB"


def regrade_table(directory: Path, data: Path | None, as_published: bool = False) -> str:
    """Grade a table again and say what changed. A changed grade makes this sweep, and others with these rows,
    unfinished: running it again generates nothing and records them in MLflow.

    Args:
        data: directory of built data sets; None looks for those that the table was made with, below its runs directory.
        as_published: grade by the authors' rules, and leave our grades as they are.

    Raises:
        UserError: when the table or its problems are not there, or a sweep is writing it; or when nothing in it can be
            graded as published.
    """
    table = open_table(directory)
    problems = problems_of(table, data)
    different = [problem for benchmark in problems.values() for problem in benchmark.values()]
    if any(problem.grader == "code" for problem in different):
        require_sandbox()
    if as_published and not any(map(gradable, different)):
        raise UserError(f"{', '.join(problems)}: asks for choices, which the authors of Elastic Reasoning do not grade")
    for benchmark, problem in table.scan().select("benchmark", "problem").unique().collect().iter_rows():
        if problem not in problems.get(benchmark, {}):
            raise UserError(f"{table.directory}: problem {problem} of {benchmark} is not among the problems given")
    total = table.scan().select("sample").collect().height
    with tqdm(total=total, unit="rows", desc="regrade") as bar:
        # Before the rows, so that a run that is killed leaves no marker of grades that MLflow does not have.
        changes = regrade(table, problems, bar.update, lambda: _unmark(table), as_published=as_published)
    graded = changes.filter(pl.col("after") != "not graded")
    changed = graded.filter(pl.col("before") != pl.col("after"))
    words = "{} by ours, {} as published: {} rows" if as_published else "{} → {}: {} rows"
    lines = [words.format(*row) for row in changed.iter_rows()]
    counted = "graded as published, {} otherwise than by ours" if as_published else "graded, {} changed"
    following = "elastic run report"
    if _is_of_a_sweep(table) and not _markers(table):
        following = f"elastic run sweep, which records the grades in MLflow, then {following}"
    return "\n".join(
        [*lines, f"{graded['rows'].sum()} rows {counted.format(changed['rows'].sum())}; next: {following}"]
    )


def _is_of_a_sweep(table: SweepTable) -> bool:
    return (table.directory.resolve().parent / INPUTS).is_file()


def _markers(table: SweepTable) -> list[Path]:
    """What says that a sweep with some of these rows has succeeded; none for a table that lies elsewhere."""
    if not _is_of_a_sweep(table):
        return []
    mine = {shard.resolve() for shard in table.shards()}
    manifests = table.directory.resolve().parents[1].glob(f"*/{TABLE}/{MANIFEST}")
    sharing = [file.parent for file in manifests if not mine.isdisjoint(SweepTable(file.parent).shards())]
    return [marker for directory in sharing for marker in directory.parent.glob("result-*.json")]


def _unmark(table: SweepTable) -> None:
    for marker in _markers(table):
        marker.unlink()


def problems_of(table: SweepTable, data: Path | None) -> dict[str, dict[str, Problem]]:
    """The problems of a table's benchmarks, by id; `data` as in `regrade_table`. Raises UserError without them."""
    names = list(table.manifest.benchmarks)
    there = {name: data / f"{name}.parquet" for name in names} if data else benchmark_files(table)
    for name in names:
        if name not in there or not there[name].is_file():
            sha256, beside = table.manifest.benchmarks[name], preset_directory(table) / "data"
            where = there[name] if data else f"{beside} (sha256 {sha256[:12]}…)"
            raise UserError(f"the problems of {name} are not at {where}; build them, or give --data DIRECTORY")
    return {name: {problem.id: problem for problem in read_problems(there[name])} for name in names}


def distil(directory: Path, strategy: str, chat_template: str, to: Path, data: Path | None = None) -> str:
    """Write an alpaca file from the table's correct rows of a strategy, and say what is in it; `chat_template` is that
    of the model that wrote them. UserError without the table, its problems or a correct row, or when `to` exists."""
    if to.exists():
        raise UserError(f"--to {to}: is there already; give a file that is not")
    table = open_table(directory)
    questions = {
        (benchmark, problem.id): problem.question
        for benchmark, problems in problems_of(table, data).items()
        for problem in problems.values()
    }
    rows = alpaca_rows(table.scan().select(TABLE_COLUMNS).collect(), questions, CHAT_TEMPLATES[chat_template], strategy)
    write_text(to, json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
    num_questions = len({row["instruction"] for row in rows})
    return f"{len(rows)} responses to {num_questions} questions in {to}; next: --set warm_start.sft.data={to}"
