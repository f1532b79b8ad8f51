"""`elastic data regrade` and `elastic data distil`: a table's rows graded again, and its correct responses as data."""

from __future__ import annotations

import json
from pathlib import Path

import click
import polars as pl
from tqdm import tqdm

from elastic_core.data.problems import Problem, read_problems
from elastic_core.data.registry import all_datasets
from elastic_core.errors import UserError, printable
from elastic_core.reasonflux.chat_templates import CHAT_TEMPLATES
from elastic_core.reasonflux.sft import TABLE_COLUMNS, alpaca_rows
from elastic_core.rewards.code.sandbox import require_sandbox
from elastic_core.sweep.rows import gradable
from elastic_core.sweep.rows import regrade as regrade_rows
from elastic_core.sweep.table import MANIFEST, SweepTable
from elastic_core.system.files import write_text
from flows.commands.options import PATH, OneOf, built_data
from flows.runtime.environment import prepare, runs_directory
from tasks.records.stage_directory import INPUTS, TABLE, USER_DATASETS
from tasks.records.tables import benchmark_files, open_table, preset_directory


@click.command()
@click.argument("table", type=PATH)
@built_data
@click.option(
    "--as-published",
    is_flag=True,
    help="By the rules of the programs of Elastic Reasoning, in the column published_score; our grades stay.",
)
def regrade(table: Path, data: Path | None, as_published: bool) -> None:
    """Grade the responses of TABLE again.

    TABLE is runs/PRESET/sweep/KEY/table; its answers, scores and statuses are rewritten.
    """
    prepare()
    all_datasets(runs_directory() / USER_DATASETS)  # They declare the graders that rows may name.
    click.echo(printable(regrade_table(table, data, as_published)))


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
        changes = regrade_rows(table, problems, bar.update, lambda: _unmark(table), as_published=as_published)
    graded = changes.filter(pl.col("after") != "not graded")
    changed = graded.filter(pl.col("before") != pl.col("after"))
    words = "{} by ours, {} as published: {} rows" if as_published else "{} → {}: {} rows"
    lines = [words.format(*row) for row in changed.iter_rows()]
    counted = "graded as published, {} otherwise than by ours" if as_published else "graded, {} changed"
    following = "elastic report"
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


@click.command()
@click.argument("table", type=PATH)
@click.option("--to", type=PATH, required=True, metavar="FILE", help="JSON file to write.")
@click.option(
    "--chat-template",
    type=OneOf(tuple(CHAT_TEMPLATES)),
    required=True,
    help="Chat template of the model that wrote the responses.",
)
@click.option("--strategy", default="reasonflux_zero", help="Strategy whose responses are taken.")
@built_data
def distil(table: Path, to: Path, chat_template: str, strategy: str, data: Path | None) -> None:
    """Write correct responses as data for fine-tuning.

    They are those in TABLE, runs/PRESET/sweep/KEY/table, and the file is in the alpaca form. Questions of benchmarks
    that a model is measured on are left out when it is fine-tuned.
    """
    if to.exists():
        raise UserError(f"--to {to}: is there already; give a file that is not")
    opened = open_table(table)
    questions = {
        (benchmark, problem.id): problem.question
        for benchmark, problems in problems_of(opened, data).items()
        for problem in problems.values()
    }
    responses = opened.scan().select(TABLE_COLUMNS).collect()
    rows = alpaca_rows(responses, questions, CHAT_TEMPLATES[chat_template], strategy)
    write_text(to, json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
    num_questions = len({row["instruction"] for row in rows})
    click.echo(f"{len(rows)} responses to {num_questions} questions in {to}; next: --set warm_start.sft.data={to}")
