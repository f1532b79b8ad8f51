"""`elastic plan sweep` and `elastic status`: the cost of a sweep, and its progress. Neither starts an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from elastic_core.sweep.cost import Bound, bound, measured
from elastic_core.sweep.grid import every_strategy, request_cells, rows_of, samples_of, samples_text, within
from elastic_core.sweep.models import Prompts, SweepModel
from elastic_core.sweep.sound import whole_samples
from elastic_core.sweep.stopping import beyond_reach, projection, reach, widest
from elastic_core.trajectory import CELL
from flows import presets
from flows.commands.options import last_run_options
from flows.runtime.run import FlowRun
from reports.comparison import render
from reports.verdict import readable, unreadable
from tasks.records.tables import sweep_table

if TYPE_CHECKING:
    from tasks.sweep import Sweep

_BYTES_PER_TOKEN = 8.0
"""Of a table whose size has not been measured: four for the token's id, the rest for text and everything else."""


@click.command()
@last_run_options
def plan_sweep(preset: str | None, overrides: dict[str, Any]) -> None:
    """Say how many cells, tokens, hours and bytes a sweep takes.

    Tokens, time and disk space are upper bounds, of the missing rows. Nothing is started. The data must be built:
    elastic run prepare-data.
    """
    run = FlowRun.begin(*presets.given_or_last(preset, overrides))
    run.require_data()
    benchmarks = ", ".join(f"{name} ({len(problems)} problems)" for name, problems in run.problems.items())
    # Before the tokenizers are loaded, which takes seconds.
    click.echo(f"{benchmarks} × {samples_text(run.sweep.request['samples'])}")
    from tasks.sweep import Sweep

    given = run.sweep, run.settings.engine, run.checkpoints, run.problems, run.templates, run.endpoints
    sweep = Sweep.of(*given)
    request = sweep.stage.request
    own = request.get("strategies_of", {})
    for strategy in every_strategy(request["strategies"], own):
        running = [model for model in sweep.models if any(cell.strategy == strategy for cell in model.cells)]
        budgets = [str(cell.budget) for model in running for cell in model.cells if cell.strategy == strategy]
        of = f" of {', '.join(model.name for model in running)}" if own else ""
        click.echo(f"  {strategy}{of}: {', '.join(dict.fromkeys(budgets))}")
    table = Table("model", "cells", "rows missing", "tokens at most", "without sharing", "time at most", "disk at most")
    remarks = set()
    for model in sweep.models:
        plan = sweep.plan(model)
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
        remarks.update(narrowest(sweep, settings.until_ci, settings.max_samples))
    click.echo("\n".join([render(table), *sorted(remarks), f"next: {run.command('sweep')}"]))


@click.command()
@last_run_options
def status(preset: str | None, overrides: dict[str, Any]) -> None:
    """Say how full the sweep's grid is, also while it runs.

    Cells that have all their rows are counted, and not listed. Which rows fit their model's context is not checked:
    loading the tokenizers would take longer than all the rest.
    """
    run = FlowRun.begin(*presets.given_or_last(preset, overrides))
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
            if there < wanted:
                place = model, cell.benchmark, cell.strategy, str(cell.budget)
                table.add_row(*place, f"{there:,}", f"{wanted:,}", f"{'█' * round(20 * there / wanted):20}")
    remarks = unreadable(readable(store.scan().select("model", "think_finish", "grade_status").collect()))
    counted = f"{done:,} of {total:,} rows ({done / total:.0%}) in {store.directory}"
    if waiting:
        leaves = "1 cell" if waiting == 1 else f"{waiting} cells"
        remarks.insert(0, f"A report leaves out {leaves}, as some problems have no first sample there yet.")
    click.echo("\n".join([*([render(table)] if table.row_count else []), counted, *remarks]))


def narrowest(sweep: Sweep, target: float, cap: int) -> list[str]:
    """What keeps intervals wider than `target`, a half-width in points (percent): too few problems, cells that are all
    wrong or all right, problems that differ as those of the rows so far do; `cap` is the most samples."""
    counts = {name: len(problems) for name, problems in sweep.problems.items()}
    refused = [f"until_ci={target:g} will be refused: {sentence}." for sentence in beyond_reach(target, counts, cap)]
    if refused:
        return refused
    remarks = [
        f"until_ci={target:g}: of {name}, a cell that is all wrong or all right keeps ±{certain:.1f} points."
        for name, count in counts.items()
        if (certain := reach(count, cap).certain) > target
    ]
    rows = whole_samples(sweep.scores().collect(), counts).rows
    if rows.is_empty():
        return remarks
    then = widest(rows.lazy(), [cell for model in sweep.models for cell in model.cells], cap)
    return [*remarks, projection(then, cap)] if then.half_width > target else remarks


def _time_and_disk(run: FlowRun, model: SweepModel, most: Bound) -> tuple[str, str, list[str]]:
    """Both as text, and remarks about them."""
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
