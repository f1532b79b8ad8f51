"""Whose credit? The experiment of docs/credit.md: trainings and their measurement, arm by arm and seed by seed.

    python -m tests.experiments.credit            # what is missing, in the order of the plan; ends with the table
    python -m tests.experiments.credit --hours 3  # begins no further training after so long
    python -m tests.experiments.credit --table    # the table of what is there

A training's scores lie in tests/experiments/credit/ARM@SEED.parquet as soon as they are there, and are not measured
again. Killed, the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.statistics.budgets import anytime_accuracy, anytime_differences
from elastic_core.statistics.estimates import problem_table, seed_name, seeds_as_one
from elastic_core.sweep.table import SweepTable
from elastic_core.system.files import replacing
from flows import presets
from flows.runtime.environment import runs_directory
from flows.runtime.run import FlowRun
from tasks.records.mlflow_tracker import flatten
from tasks.records.stage_directory import TABLE

PRESET = Path(__file__).with_suffix(".toml")
RESULTS = Path(__file__).with_suffix("")
SEEDS = range(11, 19)
BASELINE, PRIMARY = "e1", "whole-std"
SECONDARY = ("segment-own", "whole", "segment-own-std", "segment", "segment-std", "whole-own", "whole-own-std")
STAGES = (
    (BASELINE, PRIMARY),
    (*SECONDARY, "e1-longer"),
    ("e1-filtered", "whole-std-filtered", "e1-batch", "whole-batch"),
)
"""Arms in the order of the plan; of each stage seed after seed."""


def planned() -> Iterator[tuple[str, int]]:
    for arms in STAGES:
        for seed in SEEDS:
            yield from ((arm, seed) for arm in arms)


def result(arm: str, seed: int) -> Path:
    return RESULTS / f"{seed_name(arm, seed)}.parquet"


def measure(arm: str, seed: int) -> None:
    """Train one arm with one seed, measure it, and keep its scores."""
    variant = presets.resolve(str(PRESET)).ablation[arm]
    changes = flatten({"ablation": {}, "train": {**variant.train, "seed": seed}})
    changes["ablation"] = {}
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    began = time.monotonic()
    # Runs of their own: two at a time would wait for each other's Ray, and share nothing.
    environment = {**os.environ, "ELASTIC_RUNS": str(runs_directory() / "credit" / seed_name(arm, seed))}
    log = runs_directory() / "credit" / f"{seed_name(arm, seed)}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    elastic = [sys.executable, "-m", "flows.commands", "run", "pipeline", "--preset", str(PRESET), *words]
    with log.open("ab") as output:
        subprocess.run(elastic, check=True, env=environment, stdout=output, stderr=subprocess.STDOUT)
    keep(arm, seed, Path(environment["ELASTIC_RUNS"]), changes)
    print(f"{seed_name(arm, seed)}: {(time.monotonic() - began) / 60:.1f} min", flush=True)


def keep(arm: str, seed: int, runs: Path, changes: dict[str, Any]) -> None:
    run = FlowRun(presets.resolve(str(PRESET), changes), runs)
    place = ["benchmark", "problem", "think_budget"]
    rows = SweepTable(run.sweep.directory / TABLE).read()
    scores = rows.group_by(place).agg(right=pl.col("score").sum().cast(pl.UInt8), samples=pl.len().cast(pl.UInt8))
    with replacing(result(arm, seed)) as temporary:
        scores.sort(place).write_parquet(temporary, compression="zstd")


def rows_of(arms: Sequence[str]) -> pl.DataFrame:
    """Samples of every training that is there, both levels as one benchmark."""
    found = []
    for arm, seed in planned():
        if arm in arms and result(arm, seed).exists():
            counts = pl.read_parquet(result(arm, seed)).with_columns(model=pl.lit(seed_name(arm, seed)))
            found.append(counts)
    problem = pl.concat_str("benchmark", "problem", separator="/")
    each = pl.int_ranges(pl.col("samples").cast(pl.Int64))
    rows = pl.concat(found).with_columns(problem=problem, sample=each).explode("sample")
    return rows.with_columns(
        score=(pl.col("sample") < pl.col("right")).cast(pl.Float64),
        benchmark=pl.lit("both"), strategy=pl.lit("separate"), solution_budget=pl.lit(32, pl.Int64),
    )  # fmt: skip


def table() -> None:
    """Anytime accuracy of every arm, and what it has over E1 with the seeds that both have."""
    done = {arm: [seed for seed in SEEDS if result(arm, seed).exists()] for arms in STAGES for arm in arms}
    compared = [arm for arm, seeds in done.items() if arm != BASELINE and len({*seeds} & {*done[BASELINE]}) > 1]
    if not compared:
        print("no arm has two seeds that E1 has too")
        return
    for arm in compared:
        both = {*done[arm]} & {*done[BASELINE]}
        rows = rows_of([arm, BASELINE])
        rows = rows.filter(pl.col("model").is_in([seed_name(name, seed) for name in (arm, BASELINE) for seed in both]))
        problems = problem_table(
            seeds_as_one(rows), ["score"], ["model", "benchmark", "strategy", "think_budget", "solution_budget"]
        )
        accuracy = {row["model"]: row for row in anytime_accuracy(problems).to_dicts()}
        (over,) = anytime_differences(problems, [(BASELINE, arm)]).to_dicts()
        cells = [f"{100 * accuracy[name]['anytime']:.1f}" for name in (BASELINE, arm)]
        interval = f"{100 * over['difference']:+.1f} [{100 * over['low']:+.1f}, {100 * over['high']:+.1f}]"
        print(f"| {arm} | {len(both)} | {cells[0]} | {cells[1]} | {interval} | {over['num_problems']} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=float("inf"), help="begin no further training after so long")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    parser.add_argument("--table", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    deadline = time.monotonic() + 3600 * arguments.hours

    def perform(arm: str, seed: int) -> None:
        if time.monotonic() < deadline:
            measure(arm, seed)

    if not arguments.table:
        missing = [(arm, seed) for arm, seed in planned() if not result(arm, seed).exists()]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for done in [pool.submit(perform, *each) for each in missing]:
                done.result()
    table()


if __name__ == "__main__":
    main()
