"""What is done with a table of 50 thousand, 500 thousand and 5 million rows: summary, report, the widest interval of
`--until`, the plan of a resumed sweep, a shard more, a comparison. Seconds, seconds of processor time, and peak memory.
Writes runs/bench/scale.json.

The rows are those of a real table, dealt anew: each sample of each problem has all rows that one sample of one problem
of the same benchmark has there. Without one they are the synthetic rows of `bench_report`.

Run by hand: `python -m tests.bench.bench_scale --from runs/embedded/sweep/KEY --rows 50000 500000`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from elastic_core.sweep.table import Manifest, SweepTable, TrajectoryStore
from elastic_core.trajectory import CELL
from tests.bench import results
from tests.bench.bench_report import SHAPES, write_table

ROWS = (50_000, 500_000, 5_000_000)
SAMPLES = 16
SHARD_ROWS = 4096
MAX_SECONDS, MAX_GIB = 60, 4


def deal(given: Path | None, num_rows: int, directory: Path) -> int:
    """Write a table of about so many rows. Returns how many they are."""
    if given is None:
        with tempfile.TemporaryDirectory() as small:
            write_table(SHAPES["embedded"], Path(small))
            rows = TrajectoryStore(Path(small)).read()
        manifest = Manifest({}, {}, dict.fromkeys(rows["benchmark"].unique(), "synthetic"), {})
    else:
        table = SweepTable(given / "table" if (given / "table").is_dir() else given)
        rows = table.read()
        whole = table.manifest
        manifest = Manifest(whole.models, whole.engines, whole.benchmarks, whole.settings)
    with TrajectoryStore(directory).writing(manifest):
        pass
    sample = ["benchmark", "problem", "sample"]
    samples = {name: part.rows() for (name,), part in rows.select(sample).unique().sort(sample).group_by("benchmark")}
    rows_each = rows.height / sum(map(len, samples.values()))
    num_problems = max(2, round(num_rows / rows_each / SAMPLES / len(samples)))
    new = [
        (name, f"{name}-{i:06}", number) for number in range(SAMPLES) for i in range(num_problems) for name in samples
    ]
    size, written = max(1, round(SHARD_ROWS / rows_each)), 0
    rng = np.random.default_rng(0)
    for shard, at in enumerate(range(0, len(new), size)):
        part = new[at : at + size]
        dealt = [(*samples[name][rng.integers(len(samples[name]))], problem, number) for name, problem, number in part]
        schema = {**{name: rows.schema[name] for name in sample}, "as": pl.String, "number": rows.schema["sample"]}
        frame = pl.DataFrame(dealt, schema, orient="row").join(rows, on=sample)
        frame = frame.with_columns(problem=pl.col("as"), sample=pl.col("number")).select(rows.columns)
        frame.write_parquet(directory / f"rows-{shard:06d}.parquet")
        written += frame.height
    return written


def summary(table: Path) -> None:
    from reports.summary import report_rows, summarize

    summarize(report_rows(SweepTable(table).scan()).collect(engine="streaming"))


def report(table: Path) -> None:
    from reports.build import build_report
    from tasks.report import report_sources

    with tempfile.TemporaryDirectory() as directory:
        build_report(report_sources(table, {}), Path(directory))


def until(table: Path) -> None:
    from elastic_core.budget import Budget
    from elastic_core.sweep.grid import Cell
    from elastic_core.sweep.stopping import widest

    rows = SweepTable(table).scan().select("problem", "score", *CELL)
    cells = [Cell(*key[:3], Budget(*key[3:])) for key in rows.select(CELL).unique().collect().iter_rows()]
    widest(rows, cells)
    widest(rows, cells, 4 * SAMPLES)


def resume(table: Path) -> None:
    """As a sweep does that lacks the smallest budget of a model's every fourth sample; of its rows 2,000 samples'."""
    from elastic_core.budget import Budget
    from elastic_core.data.problems import Problem
    from elastic_core.sweep.grid import Cell
    from elastic_core.sweep.plan import StoredRows, known_lengths, longest_first, plan_sweep

    store = TrajectoryStore(table)
    with store.writing(Manifest.load(table / "manifest.json")):
        finished = store.finished()
        model = finished["model"].cast(pl.String).min()
        mine = finished.filter(model=model).cast({"benchmark": pl.String, "problem": pl.String})
        problems = {
            str(name): [Problem(str(name), each, "", "", "math") for each in part["problem"].unique().sort()]
            for (name,), part in mine.group_by("benchmark")
        }
        cells = [Cell(*key[:3], Budget(*key[3:])) for key in mine.select(CELL).unique().iter_rows()]
        least = pl.col("think_budget") == pl.col("think_budget").min()
        left = finished.filter(~(least & (pl.col("sample") % 4 == 0)).fill_null(False))
        plan = plan_sweep(cells, problems, num_samples=SAMPLES, seed=0, finished=left)
        plan = longest_first(plan, known_lengths(store, str(model)))
        stored = StoredRows(store, plan)
        for unit in plan.work[:2000]:
            stored.rows(unit)


def append(table: Path) -> None:
    """A hundred shards more."""
    store = TrajectoryStore(table)
    with store.writing(Manifest.load(table / "manifest.json")):
        rows = pl.read_parquet(store.shards()[0])
        for i in range(100):
            store.append(rows.with_columns(sample=(pl.col("sample") + 1000 * (i + 1)).cast(pl.Int32)))
    for shard in store.shards()[-100:]:
        shard.unlink()


def compare(table: Path) -> None:
    from flows.commands.compare import find_side
    from reports.comparison import paired_cells, render_pairs

    sides = [find_side(str(table), table) for _ in range(2)]
    render_pairs(paired_cells(*(side.rows() for side in sides)), "a", "b")


TASKS: dict[str, Callable[[Path], None]] = {
    each.__name__: each for each in (summary, report, until, resume, append, compare)
}


def measured(task: str, table: Path) -> dict[str, float]:
    """Of one task in this process, imports included."""
    began = time.perf_counter()
    TASKS[task](table)
    return {
        "seconds": time.perf_counter() - began,
        "processor_seconds": time.process_time(),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main(given: Path | None, sizes: list[int], tasks: list[str]) -> None:
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as directory:
            rows = deal(given, size, Path(directory))
            for task in tasks:
                command = [sys.executable, "-m", "tests.bench.bench_scale", "--task", task, "--table", directory]
                found = json.loads(subprocess.check_output(command, text=True))
                figures.setdefault(task, {})[str(rows)] = found
                print(
                    f"{task:<8} {rows:>9,} rows  {found['seconds']:6.1f} s (limit {MAX_SECONDS})  "
                    f"{found['processor_seconds']:6.1f} s of cores  {found['peak_gib']:5.2f} GiB (limit {MAX_GIB})",
                    flush=True,
                )
    results.write("scale", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="given", type=Path, help="a sweep, or its table")
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--task", choices=TASKS)
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_args()
    if arguments.task:
        print(json.dumps(measured(arguments.task, arguments.table)))
    else:
        main(arguments.given, arguments.rows, arguments.tasks)
