"""A grid of budgets by a sweep beside the same grid by what a user would pick instead: inspect_ai against `vllm serve`
with its own `thinking_token_budget`. The shipped miniature, 100 hard problems × 4 samples × 8 budgets. Tokens
sampled, and seconds from the command to the table, of them those with the engine up. Writes runs/bench/harness.json.

inspect_ai has an environment of its own, made from tests/clients.txt.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.data.problems import read_problems
from elastic_core.miniature.warm_start import BASE
from elastic_core.sweep.table import SweepTable
from elastic_core.system.network import HOST, free_ports
from elastic_core.trajectory import BUDGET
from flows.commands.checks.runner import newest
from reports.summary import report_rows, summarize
from tasks.records.stage_directory import TABLE
from tests.bench import results
from tests.bench.bench_sweep import flow_metrics
from tests.served import CPU, SMALL, VLLM, running

BENCHMARK, SAMPLES, SOLUTION = "miniature-hard", 4, 32
BUDGETS = (0, 16, 32, 48, 64, 96, 128, 192)


def ours(runs: Path) -> tuple[dict[str, float], pl.DataFrame]:
    """Figures of the sweep, and its summary of each budget."""
    changes: dict[str, Any] = {
        "data.benchmarks": [BENCHMARK],
        "sweep.models": ["base"],
        "sweep.strategies": ["separate"],
        "sweep.budgets": [f"{think}+{SOLUTION}" for think in BUDGETS],
        "sweep.samples": SAMPLES,
        "engine.max_model_len": 512,
    }
    reported = flow_metrics(runs, changes)
    figures = {
        "command_to_table_seconds": reported["command_seconds"],
        "engine_up_seconds": reported["seconds"],
        "tokens": reported["tokens_generated"],
    }
    table = SweepTable(newest(runs / "embedded", "sweep/*") / TABLE)
    return figures, summarize(report_rows(pl.scan_parquet(table.shards())).collect()).sort(*BUDGET)


def theirs(directory: Path, runs: Path) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Figures of inspect_ai, and what it says of each budget."""
    python = directory / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
    packages = Path(__file__).parents[1] / "clients.txt"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", packages], check=True)
    problems = read_problems(newest(runs / "embedded", "data/*") / f"{BENCHMARK}.parquet")
    lines = [json.dumps({"id": each.id, "input": each.question, "target": each.truth}) for each in problems]
    (directory / "problems.jsonl").write_text("\n".join(lines))
    (port,) = free_ports(1)
    serve = [sys.executable, "-c", VLLM, "serve", str(BASE), "--served-model-name", "m", "--port", str(port), *SMALL]
    serve += ["--reasoning-parser", "deepseek_r1"]
    began = time.monotonic()
    with running(serve, port, directory / "vllm.log", environment=CPU):
        up = time.monotonic()
        done = subprocess.run(
            [python, Path(__file__).with_name("harness_task.py"), f"http://{HOST}:{port}", "m",
             directory / "problems.jsonl", directory / "logs", str(SAMPLES), str(SOLUTION), *map(str, BUDGETS)],
            env={**os.environ, "HERE_API_KEY": "none"}, cwd=directory, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        ended = time.monotonic()
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    tokens = sum(each["tokens"] for each in told)
    return {"command_to_table_seconds": ended - began, "engine_up_seconds": ended - up, "tokens": tokens}, told


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        sweep, accuracies = ours(directory / "runs")
        harness, told = theirs(directory, directory / "runs")
    for cell, each in zip(accuracies.iter_rows(named=True), told, strict=True):
        interval = ", ".join(f"{100 * cell[name]:.1f}" for name in ("ci_low", "ci_high"))
        print(f"t = {each['think']}: ours {100 * cell['avg_at_k']:.1f} [{interval}] %; inspect_ai {json.dumps(each)}")
    ratios = {f"{name.removesuffix('_seconds')}_ratio": sweep[name] / harness[name] for name in sweep}
    results.write("harness", {"ours": sweep, "inspect_ai": harness, **ratios})


if __name__ == "__main__":
    main()
