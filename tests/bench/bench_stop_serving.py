"""A level with a stop rule against fixed levels, through a real server: accuracy, tokens and seconds of a request,
with 1, 32 and 128 at once. Needs a trained miniature:

    python -m tests.bench.bench_stop_serving MODEL_DIRECTORY [--rule adaptive_agree2_every16]
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from elastic_core.miniature.problems import generate
from elastic_core.rewards import grade
from elastic_core.rewards.truth import THINK_END
from elastic_core.serving.levels import LEVELS, Level, Levels
from elastic_core.statistics.intervals import mean_interval
from elastic_core.system.fingerprint import model_fingerprint
from tests.bench import results
from tests.served import elastic_serve

THINKING = {"minimal": 0, "low": 48, "medium": 96}
"""Fixed levels; `high` has the rule."""
SOLUTION, SEED = 32, 20261125
AT_ONCE = {1: 40, 32: 400, 128: 800}
"""Requests by how many are open at once."""


def offer(model: Path, rule: str, directory: Path) -> Path:
    target = directory / "model"
    shutil.copytree(model, target)
    budgets: dict[str, tuple[int | None, str | None]] = {name: (think, None) for name, think in THINKING.items()}
    budgets["high"] = None, rule
    measured = {"accuracy": 0.5, "accuracy_low": 0.0, "accuracy_high": 1.0, "num_problems": 1, "num_samples": 1}
    levels = {
        name: Level(think=think, solution=SOLUTION, rule=rule, tokens_mean=i, tokens_p95=i, **measured)
        for i, (name, (think, rule)) in enumerate(budgets.items())
    }
    Levels(
        model="model",
        weights=model_fingerprint(target),
        table="0" * 64,
        benchmarks=["miniature"],
        strategy="separate",
        margin=0.05,
        date=datetime.date(2026, 11, 25),
        levels=levels,  # type: ignore[arg-type]
    ).write(target / LEVELS)
    return target


async def measured(server: str, level: str, at_once: int, count: int) -> dict[str, Any]:
    """Means over requests, half of them easy problems and half hard ones."""
    problems = [*generate("easy", count // 2, SEED, "evaluation"), *generate("hard", count // 2, SEED, "evaluation")]
    np.random.default_rng(0).shuffle(problems)  # type: ignore[arg-type]
    room, bar = asyncio.Semaphore(at_once), tqdm(total=len(problems), desc=f"{level}, {at_once} at once", leave=False)

    async def one(client: httpx.AsyncClient, number: int, problem: Any) -> tuple[float, float, float, float]:
        body = {
            "model": "model",
            "messages": [{"role": "user", "content": problem.question}],
            "temperature": 0.8,
            "top_p": 1,
            "seed": number,
            "reasoning_effort": level,
        }
        async with room:
            began = time.perf_counter()
            answer = await client.post("/v1/chat/completions", json=body)
            seconds = time.perf_counter() - began
        answer.raise_for_status()
        choice = answer.json()["choices"][0]
        told = choice["elastic"]
        content = THINK_END + (choice["message"]["content"] or "")
        score = (await asyncio.to_thread(grade, "math", content, str(problem.answer))).score
        own = told["thinking_tokens"] + told["solution_tokens"]
        bar.update()
        return score, own, told.get("probe_tokens", 0) + told.get("wasted_tokens", 0), seconds

    limits = httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(base_url=server.removesuffix("/v1"), timeout=600, limits=limits) as client:
        began = time.perf_counter()
        found = np.array(await asyncio.gather(*(one(client, *each) for each in enumerate(problems))))
        wall = time.perf_counter() - began
    bar.close()
    score, own, beside, seconds = found.T
    low, high = mean_interval(score)
    return {
        "accuracy_share": score.mean(),
        "accuracy_low_share": max(0.0, low),
        "accuracy_high_share": min(1.0, high),
        "tokens": own.mean(),
        "beside_tokens": beside.mean(),
        "mean_seconds": seconds.mean(),
        "p95_seconds": float(np.quantile(seconds, 0.95)),
        "requests_per_second": len(found) / wall,
        "num_requests": len(found),
    }


def main(options: argparse.Namespace) -> int:
    if options.model is None:
        print(f"{results.SKIPPED}give the directory of a trained miniature")
        return 0
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        model = offer(options.model, options.rule, Path(directory))
        sizes = ("--set", "engine.max_model_len=512", "--set", "engine.max_num_seqs=256")
        with elastic_serve(model, Path(directory) / "log", *sizes) as (server, _):
            for at_once, count in AT_ONCE.items():
                for level in (*THINKING, "high"):
                    figures[f"{level} {at_once}"] = asyncio.run(measured(server, level, at_once, count))
                    results.write("stop_serving", figures)
    table = Table("level", "at once", "accuracy (%)", "tokens", "beside", "s", "p95 s", "requests/s", "requests")
    for name, each in figures.items():
        level, at_once = name.split()
        shown = options.rule if level == "high" else f"{THINKING[level]}+{SOLUTION}"
        accuracy = [100 * each[f"accuracy{end}_share"] for end in ("", "_low", "_high")]
        table.add_row(
            shown,
            at_once,
            "{:.1f} [{:.1f}, {:.1f}]".format(*accuracy),
            *(f"{each[key]:.{places}f}" for key, places in (("tokens", 0), ("beside_tokens", 0))),
            *(f"{each[key]:.2f}" for key in ("mean_seconds", "p95_seconds")),
            f"{each['requests_per_second']:.1f}",
            str(each["num_requests"]),
        )
    Console(width=160).print(table)
    print(json.dumps({"rule": options.rule}))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--rule", default="adaptive_agree2_every16")
    sys.exit(main(parser.parse_args()))
