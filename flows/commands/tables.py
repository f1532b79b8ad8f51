"""Trajectory tables put to further use. `elastic regrade TABLE`: graded once more, by the grader as it is now.
`elastic data distil TABLE`: the correct responses of a strategy as fine-tuning data."""

from __future__ import annotations

from pathlib import Path

from tqdm import tqdm

from elastic_core.data.problems import Problem, read_problems
from elastic_core.errors import UserError
from elastic_core.reasonflux.chat_templates import CHAT_TEMPLATES
from elastic_core.reasonflux.sft import TABLE_COLUMNS, alpaca_rows, write_alpaca
from elastic_core.rewards.code.sandbox import require_sandbox
from elastic_core.sweep.rows import regrade
from elastic_core.sweep.store import MANIFEST
from elastic_core.sweep.table import SweepTable
from tasks.records.stage_directory import TABLE, benchmark_files, open_table, preset_directory


def regrade_table(directory: Path, data: Path | None) -> str:
    """Grade a table again and say what changed.

    A sweep whose grades change is no longer finished, nor is another one that has these rows: running it again
    generates nothing and records them in MLflow.

    Args:
        directory: of a trajectory table.
        data: directory of built data sets; None looks for those that the table was made with, below its runs directory.

    Raises:
        UserError: when the table or its problems are not there, or a sweep is writing it.
    """
    table = open_table(directory)
    problems = problems_of(table, data)
    if any(problem.grader == "code" for benchmark in problems.values() for problem in benchmark.values()):
        require_sandbox()
    _require_problems(table, problems)
    total = table.scan().select("sample").collect().height
    with tqdm(total=total, unit="rows", desc="regrade") as bar:
        # Before the rows, so that a run that is killed leaves no marker of grades that MLflow does not have.
        changes = regrade(table, problems, bar.update, lambda: _unmark(table))
    changed = changes.filter(changes["before"] != changes["after"])
    lines = [f"{before} → {after}: {rows} rows" for before, after, rows in changed.iter_rows()]
    return "\n".join([*lines, f"{total} rows graded, {changed['rows'].sum()} changed; next: {_next(table)}"])


def _is_of_a_sweep(table: SweepTable) -> bool:
    return (table.directory.resolve().parent / "inputs.json").is_file()


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


def _next(table: SweepTable) -> str:
    if _is_of_a_sweep(table) and not _markers(table):
        return "elastic run sweep, which records the grades in MLflow, then elastic run report"
    return "elastic run report"


def problems_of(table: SweepTable, data: Path | None) -> dict[str, dict[str, Problem]]:
    """The problems of a table's benchmarks, by id.

    Args:
        data: as in `regrade_table`.

    Raises:
        UserError: when they are not there.
    """
    names = list(table.manifest.benchmarks)
    there = {name: data / f"{name}.parquet" for name in names} if data else benchmark_files(table)
    for name in names:
        if name not in there or not there[name].is_file():
            sha256, beside = table.manifest.benchmarks[name], preset_directory(table) / "data"
            where = there[name] if data else f"{beside} (sha256 {sha256[:12]}…)"
            raise UserError(f"the problems of {name} are not at {where}; build them, or give --data DIRECTORY")
    return {name: {problem.id: problem for problem in read_problems(there[name])} for name in names}


def _require_problems(table: SweepTable, problems: dict[str, dict[str, Problem]]) -> None:
    for benchmark, problem in table.scan().select("benchmark", "problem").unique().collect().iter_rows():
        if problem not in problems.get(benchmark, {}):
            raise UserError(f"{table.directory}: problem {problem} of {benchmark} is not among the problems given")


def distil(directory: Path, strategy: str, chat_template: str, to: Path, data: Path | None = None) -> str:
    """Write an alpaca file from the table's correct rows of a strategy, and say what is in it.

    Args:
        directory: of a trajectory table.
        chat_template: of the model that wrote them.
        data: directory of built data sets; None looks for those that the table was made with.

    Raises:
        UserError: when the table or its problems are not there, no row is correct, or `to` exists.
    """
    if to.exists():
        raise UserError(f"--to {to}: is there already; give a file that is not")
    table = open_table(directory)
    questions = {
        (benchmark, problem.id): problem.question
        for benchmark, problems in problems_of(table, data).items()
        for problem in problems.values()
    }
    found = table.scan().select(TABLE_COLUMNS).collect()
    rows = alpaca_rows(found, questions, CHAT_TEMPLATES[chat_template], strategy)
    write_alpaca(rows, to)
    num_questions = len({row["instruction"] for row in rows})
    return f"{len(rows)} responses to {num_questions} questions in {to}; next: --set warm_start.sft.data={to}"
