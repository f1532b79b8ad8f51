"""`elastic compare RUN_A RUN_B`: two sweeps, or two of their cells, side by side, problem by problem."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import polars as pl

from elastic_core.errors import UserError, nearest
from elastic_core.statistics.estimates import sampled_tokens
from elastic_core.sweep.table import SweepTable
from elastic_core.trajectory import BUDGET, KEY
from flows.commands.options import table_of_last_run
from flows.runtime.environment import prepare, runs_directory
from reports.comparison import paired_cells, render_pairs
from reports.summary import metric_name
from tasks.records.mlflow_tracker import LABEL, Tracker, run_name
from tasks.records.stage_directory import TABLE
from tasks.records.tables import nearest_sweep, open_table, sound_rows

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_SHOWN_RUNS = 5


@dataclass(frozen=True)
class Side:
    """One of the two, by the name that was given; `cell` has values of the key columns when only one cell is meant."""

    name: str
    table: SweepTable
    run_id: str | None = None
    cell: Mapping[str, Any] | None = None

    def rows(self) -> pl.DataFrame:
        """Rows of complete samples, as a half-done sweep has the short responses first."""
        columns = [*KEY, "score", "think_tokens", "solution_tokens", "forced_tokens", "think_finish"]
        wanted = [pl.col(name).eq_missing(pl.lit(value)) for name, value in (self.cell or {}).items()]
        return sound_rows(self.table, columns, *wanted).with_columns(tokens=sampled_tokens())


@click.command()
@click.argument("run_a")
@click.argument("run_b", required=False)
def compare(run_a: str, run_b: str | None) -> None:
    """Compare two sweeps, cell by cell and paired by problem.

    The table is printed, and logged to MLflow. RUN_A and RUN_B are MLflow runs of a pipeline, a sweep or a single cell,
    by id or name; or directories of sweeps, runs/PRESET/sweep/KEY. Without RUN_B it is the sweep of the last run.
    """
    prepare()
    click.echo(comparison(run_a, run_b or str(table_of_last_run("RUN_B")), runs_directory()))


def comparison(first: str, second: str, runs: Path, tracking_uri: str | None = None) -> str:
    """The paired table of two runs as text, logged to MLflow as a separate run, in the experiment of the first. Each
    is a directory of a trajectory table or of a sweep, or an MLflow run of a sweep, of a pipeline with a sweep, or of a
    cell, by id or name. UserError when one is not to be found, or they have nothing in common."""
    sides = find_side(first, runs, tracking_uri), find_side(second, runs, tracking_uri)
    try:
        _require_same_problems(*sides)
        table = paired_cells(*(side.rows() for side in sides))
    except ValueError as error:
        raise UserError(f"nothing to compare: {error}") from None
    shown = render_pairs(table, *(f"{side.name} ({side.table.directory})" for side in sides))
    return f"{shown}\nlogged to MLflow as run {log_comparison(table, shown, sides, runs, tracking_uri)}"


def _require_same_problems(first: Side, second: Side) -> None:
    """Raises UserError when benchmarks of one name are other problems, or they share none."""
    ours, theirs = first.table.manifest.benchmarks, second.table.manifest.benchmarks
    common = ours.keys() & theirs.keys()
    if not common:
        raise UserError(
            f"nothing to compare: {first.name} measured {', '.join(sorted(ours))}, and {second.name} "
            f"{', '.join(sorted(theirs))}"
        )
    for name in sorted(common):
        if ours[name] != theirs[name]:
            raise UserError(
                f"{name} is not the same in both: its problems have sha256 {ours[name][:12]}… in {first.name}, and "
                f"{theirs[name][:12]}… in {second.name}; measure both on the same problems"
            )


def log_comparison(table: pl.DataFrame, shown: str, sides: tuple[Side, Side], runs: Path, uri: str | None) -> str:
    """Id of the comparison's run: its table as an artifact that MLflow shows, and the differences over tokens. The same
    two have one run, however often they are compared, unless their rows have changed."""
    first, second = sides
    preset = str(first.table.manifest.settings.get("preset", "compare"))
    tracker = Tracker(preset, runs, uri)
    named = (f"{side.table.directory.resolve()} {sorted((side.cell or {}).items())}" for side in sides)
    identity = hashlib.sha256("\0".join(named).encode()).hexdigest()[:12]
    compared = {f"compared.{k}": side.run_id for k, side in zip("ab", sides, strict=True) if side.run_id}
    tags = {"stage": "compare", **compared}
    name = run_name(f"compare {first.name} {second.name}")
    rows = table.iter_rows(named=True)
    points = [(metric_name("difference", row), round(row["tokens_a"]), row["difference"]) for row in rows]
    run_id = tracker.keep_points(f"{preset}/compare/{identity}", name, points, None, tags)
    with tracker.running(run_id):
        tracker.log(run_id, params={"a": first.table.directory, "b": second.table.directory})
        tracker.log_table(run_id, "comparison.json", table.to_dicts())
        tracker.client.log_text(run_id, shown, "comparison.txt")
    return run_id


def find_side(name: str, runs: Path, tracking_uri: str | None = None) -> Side:
    """What one argument names; UserError when it is not to be found, or names several."""
    directory = Path(name)
    if directory.is_dir():
        return Side(name, open_table(directory))
    from mlflow import MlflowClient

    # Without a Tracker, which would make an experiment.
    client = MlflowClient(tracking_uri)
    run = _run(client, name)
    if "/sweep/" not in run.data.tags.get(LABEL, ""):  # A pipeline's run, then, which has the sweep below it.
        below = client.search_runs([run.info.experiment_id], f"tags.`mlflow.parentRunId` = '{run.info.run_id}'")
        run = next((each for each in below if "/sweep/" in each.data.tags.get(LABEL, "")), run)
    tags = run.data.tags
    preset, _, rest = tags.get(LABEL, "").partition("/sweep/")
    key = rest.partition("/")[0]
    if not key:
        raise UserError(f"{name}: run {run.info.run_id} is not a sweep or a cell of one, and has no sweep below it")
    cell: dict[str, Any] | None = None
    if "t" in tags:  # A cell's run has its key columns as tags.
        budget: Iterator[int | None] = (None if tags[tag] == "unlimited" else int(tags[tag]) for tag in ("t", "s"))
        places = {name: tags[name] for name in ("model", "benchmark", "strategy")}
        cell = places | dict(zip(BUDGET, budget, strict=True))
    return Side(name, open_table(runs / preset / "sweep" / key / TABLE), run.info.run_id, cell)


def _run(client: MlflowClient, name: str) -> Run:
    """The run of an id, or the only one of a name."""
    from mlflow.exceptions import MlflowException

    with suppress(MlflowException):  # It is a name, then.
        return client.get_run(name)
    quote = '"' if "'" in name else "'"
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    named = f"attributes.run_name = {quote}{name}{quote}"
    found = [] if quote in name else list(client.search_runs(experiments, named))
    if len(found) == 1:
        return found[0]
    if not found:
        known = {str(run.info.run_name) for run in client.search_runs(experiments)}
        hint = nearest_sweep(Path(name)) or nearest(name, known) or "; a sweep's directory is runs/PRESET/sweep/KEY"
        raise UserError(f"no directory, MLflow run id or MLflow run name {name!r}{hint}")
    listed = "; ".join(f"{run.info.run_id} ({run.data.tags.get(LABEL, 'no label')})" for run in found[:_SHOWN_RUNS])
    raise UserError(f"{len(found)} MLflow runs are called {name!r}; give an id: {listed}")
