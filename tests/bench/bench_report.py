"""The whole report of synthetic trajectory tables, of the embedded run's shape and of a million rows: seconds, peak
memory, and seconds until its page is open in a browser. Writes runs/bench/report.json.

Each is measured in a process of its own, because memory that Python has taken is seldom given back.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.trajectory import SCHEMA
from tests.bench import results
from tests.bench.inputs import missing_browser

MODELS = {"base": 1.0, "trained": 0.55}
"""How long they think, relative to each other."""
STRATEGIES = {"separate": 1.0, "budget_forcing": 0.4, "vanilla": 0.05}
"""What an unfinished thought is worth under each."""
EFFORT = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Thinking budgets, relative to the mean thought."""
MAX_OPEN_SECONDS = 2


class Shape(NamedTuple):
    """A table's size, and the limits of its report."""

    problems: Mapping[str, int]
    samples: int
    thought: int
    solution: int
    max_seconds: float
    max_gib: float


SHAPES = {
    "embedded": Shape({"miniature-easy": 100, "miniature-hard": 100}, 8, 96, 32, 10, 3),
    # The sizes of four real benchmarks: 1,030,400 rows.
    "million": Shape({"aime-2024": 30, "amc": 83, "math500": 500, "olympiadbench": 675}, 16, 1024, 256, 60, 3),
}


def write_table(shape: Shape, directory: Path) -> int:
    """A sweep's table; the number of its rows."""
    rng = np.random.default_rng(0)
    store = TrajectoryStore(directory)
    manifest = Manifest(dict.fromkeys(MODELS, "synthetic"), {}, dict.fromkeys(shape.problems, "synthetic"), {})
    rows = 0
    with store.writing(manifest):
        for benchmark, num_problems in shape.problems.items():
            hardness = rng.lognormal(0, 0.5, num_problems)
            for model, length in MODELS.items():
                thoughts = shape.thought * length * hardness[:, None] * rng.lognormal(0, 0.3, (1, shape.samples))
                luck = rng.random((num_problems, shape.samples))
                frames = list(_cells(shape, benchmark, model, np.maximum(4, thoughts).astype(int), luck, rng))
                store.append(pl.concat(frames))
                rows += sum(frame.height for frame in frames)
    return rows


def _cells(
    shape: Shape, benchmark: str, model: str, thoughts: np.ndarray, luck: np.ndarray, rng: np.random.Generator
) -> Iterator[pl.DataFrame]:
    for strategy, worth in STRATEGIES.items():
        for effort in EFFORT:
            t = int(effort * shape.thought)
            yield _cell(shape, benchmark, model, strategy, t, thoughts.ravel(), luck.ravel(), worth, rng)
    yield _cell(shape, benchmark, model, "unconstrained", None, thoughts.ravel(), luck.ravel(), 1.0, rng)


def _cell(
    shape: Shape,
    benchmark: str,
    model: str,
    strategy: str,
    t: int | None,
    thoughts: np.ndarray,
    luck: np.ndarray,
    worth: float,
    rng: np.random.Generator,
) -> pl.DataFrame:
    """Every sample of every problem: a thought that is cut loses the part of its worth that it lacks."""
    rows = len(thoughts)
    limit = np.full(rows, 2**30 if t is None else t)
    used = np.minimum(thoughts, limit)
    closed = thoughts <= limit
    forced = ~closed & (strategy != "vanilla")
    score = (luck < np.where(closed, 0.9, 0.8 * worth * used / thoughts)).astype(float)
    solution = rng.integers(shape.solution // 4, shape.solution, rows)
    wrong = rng.integers(0, 12, rows)
    solution = np.where(closed | forced, solution, 0)
    bounds = np.append(0, np.cumsum(used + forced + solution))
    ids, marks = np.random.default_rng(0).integers(0, 32_000, bounds[-1]), np.zeros(bounds[-1], bool)
    marks[(bounds[:-1] + used)[forced]] = True  # A think-end of one token, where the thought was cut.
    problems = rows // shape.samples
    # As long as the miniature's: reading these columns would show, and the machine's disk bears them.
    text = [f"<b>{number}</b> and so on, step by step, " for number in wrong]
    columns: dict[str, Any] = {
        "model": [model] * rows,
        "benchmark": [benchmark] * rows,
        "problem": [f"{benchmark}-{i:04}" for i in np.repeat(np.arange(problems), shape.samples)],
        "sample": np.tile(np.arange(shape.samples), problems),
        "strategy": [strategy] * rows,
        "think_budget": [t] * rows,
        "solution_budget": [None if t is None else shape.solution] * rows,
        "prompt_tokens": [80] * rows,
        "think_tokens": used,
        "forced_tokens": forced.astype(int),
        "navigator_tokens": [0] * rows,
        "solution_tokens": solution,
        "think_finish": np.where(closed, "closed", np.where(forced, "forced", "length")),
        "solution_finish": np.where(closed | forced, "stop", "not_applicable"),
        "answer": np.where(score == 1, "42", wrong.astype(str)),
        "score": score,
        "grade_status": np.where(score == 1, "correct", "wrong"),
        "thinking": text,
        "solution": text,
        "response_ids": pa.LargeListArray.from_arrays(bounds, ids.astype(np.uint32)),
        "forced": pa.LargeListArray.from_arrays(bounds, marks),
        "dropped": [[]] * rows,
        "seed": [0] * rows,
        "engine_fingerprint": ["synthetic"] * rows,
        "model_fingerprint": ["synthetic"] * rows,
    }
    return pl.DataFrame(
        {name: pl.Series(name, columns.get(name, [None] * rows), dtype) for name, dtype in SCHEMA.items()}
    )


def build(table: Path) -> dict[str, float]:
    """Seconds, imports included, and peak memory of one report, in this process; seconds to open its page."""
    started = time.perf_counter()
    from reports.build import build_report
    from reports.content import ReportSources

    with tempfile.TemporaryDirectory() as directory:
        build_report(ReportSources(TrajectoryStore(table).scan()), Path(directory))
        seconds = time.perf_counter() - started
        gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        figures = {"seconds": seconds, "peak_gib": gib}
        if missing_browser() is None:
            figures["open_seconds"] = open_page(Path(directory) / "report.html")
    return figures


def open_page(file: Path) -> float:
    """Seconds until a browser that is running shows the page, its figures and the first trajectory."""
    from playwright.sync_api import sync_playwright

    from tests.browser import watched

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with watched(chromium) as page:
            started = time.perf_counter()
            page.goto(file.as_uri())
            page.locator(".list").get_by_role("option").first.wait_for()
            page.evaluate("Promise.all(Array.from(document.images, image => image.decode()))")
            seconds = time.perf_counter() - started
        chromium.close()
    return seconds


def main(names: list[str], repeats: int) -> None:
    if reason := missing_browser():
        print(f"{results.SKIPPED}open_seconds: {reason}")
    figures: dict[str, dict[str, Any]] = {}
    for name in names:
        shape = SHAPES[name]
        with tempfile.TemporaryDirectory() as directory:
            rows = write_table(shape, Path(directory))
            command = [sys.executable, "-m", "tests.bench.bench_report", "--build", directory]
            found = [json.loads(subprocess.check_output(command, text=True)) for _ in range(repeats)]
        seconds = sorted(one["seconds"] for one in found)
        gib = max(one["peak_gib"] for one in found)
        opening = sorted(one["open_seconds"] for one in found if "open_seconds" in one)
        opens = f"opens in {opening[0]:.2f} to {opening[-1]:.2f} s (limit {MAX_OPEN_SECONDS})  " if opening else ""
        print(
            f"{name:<9} {rows:>9,} rows  {seconds[0]:5.1f} to {seconds[-1]:5.1f} s (limit {shape.max_seconds:g})  "
            f"{gib:4.2f} GiB (limit {shape.max_gib:g})  {opens}n={repeats}"
        )
        figures[name] = {"rows": rows, "seconds": seconds, "peak_gib": gib}
        if opening:
            figures[name]["open_seconds"] = opening
    results.write("report", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.build:
        print(json.dumps(build(arguments.build)))
    else:
        main(arguments.shapes, arguments.repeats)
