"""A server under load: fixed levels, refusing, and less thought instead of a queue; as `elastic serve --latency` does
it, and as the simulation of `elastic plan serve` predicts it from the same arrivals. Needs a trained miniature with its
budgets.json in a directory called model, and the table that is of:

    python -m tests.bench.bench_load MODEL_DIRECTORY TABLE MODEL_IN_TABLE [--seconds 60] [--simulate-only]

The simulated part also has a 7B-like engine in eight replicas (`LARGE`), under Poisson and bursty arrivals.
`tests.bench.load_page` puts what was measured into docs/load.md.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from elastic_core.miniature.problems import generate
from elastic_core.rewards import grade
from elastic_core.rewards.truth import THINK_END
from elastic_core.serving.levels import EFFORTS, LEVELS, Levels, read_levels
from elastic_core.serving.load import Controller, Goal
from elastic_core.serving.simulation import Machine, Replay, arrivals, simulate
from elastic_core.statistics.frontier import Point, allocate, frontier
from elastic_core.statistics.intervals import mean_interval
from flows.commands.plan_serve import machine_by_hand, machine_of_server, read_replay
from tests.bench import results
from tests.served import elastic_serve

LOADS = (0.5, 0.8, 1.0, 1.5, 2.0)
"""In times the capacity at `high`."""
AT_ONCE, CLOSED_SECONDS, WARM, PROBLEMS, SEED = 128, 20, 10, 200, 20261120
"""The problems are those of the table."""
LARGE, LARGE_REPLICAS, LONGER = (8.0, 0.06), 8, 32
"""Milliseconds of a step alone and for each further response, as of 7 billion weights on one GPU; and by how much its
responses are longer than the miniature's."""
CHECKED, _BOXED = 100, re.compile(r"\\boxed\{(-?\d+)\}")
REFUSING, ELASTIC = "refuse", "elastic"


class Answers(NamedTuple):
    """What came of requests: seconds of each, infinite where it was refused or not over at the end; scores; tokens."""

    seconds: np.ndarray
    score: np.ndarray
    tokens: np.ndarray


async def asked(server: str, times: np.ndarray, end: float, way: str, most_open: float) -> Answers:
    """Send requests at their times; all that are open at the end are left."""
    known = [*generate("easy", PROBLEMS, SEED, "evaluation"), *generate("hard", PROBLEMS, SEED, "evaluation")]
    problems = [known[i] for i in np.random.default_rng(0).integers(len(known), size=len(times))]
    seconds, tokens = np.full(len(times), np.inf), np.zeros(len(times))
    texts: dict[int, str] = {}
    now_open = 0

    async def one(client: aiohttp.ClientSession, number: int) -> None:
        nonlocal now_open
        level = way if way in EFFORTS else "high"
        body = {
            "model": "model",
            "messages": [{"role": "user", "content": problems[number].question}],
            "temperature": 0.8,
            "seed": number,
            "reasoning_effort": level,
        }
        headers = {} if way == ELASTIC else {"Elastic-Fixed": "true"}
        now_open += 1
        try:
            began = time.perf_counter()
            async with client.post(f"{server}/v1/chat/completions", json=body, headers=headers) as response:
                response.raise_for_status()
                document = await response.json()
            seconds[number] = time.perf_counter() - began
        finally:
            now_open -= 1
        choice = document["choices"][0]
        texts[number] = THINK_END + (choice["message"]["content"] or "")
        tokens[number] = sum(choice["elastic"][f"{name}_tokens"] for name in ("thinking", "solution", "forced"))

    connector, timeout = aiohttp.TCPConnector(limit=0, force_close=True), aiohttp.ClientTimeout(600)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
        tasks, began = [], time.perf_counter()
        for number, at in enumerate(times):
            await asyncio.sleep(max(0.0, began + at - time.perf_counter()))
            if now_open < most_open:
                tasks.append(asyncio.create_task(one(client, number)))
        await asyncio.sleep(max(0.0, began + end - time.perf_counter()))
        for task in tasks:
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(error, Exception):
                raise error
    score = np.zeros(len(times))
    for i, (number, text) in enumerate(texts.items()):
        # Answers are whole numbers; that this grades as a sweep does is looked at for some, as that takes longer.
        found = _BOXED.findall(text)
        score[number] = bool(found) and found[-1] == str(problems[number].answer)
        if i < CHECKED:
            assert score[number] == (await asyncio.to_thread(grade, "math", text, str(problems[number].answer))).score
    return Answers(seconds, score, tokens)


async def capacity(server: str) -> float:
    """Requests a second at `high`, with so many open all the time."""
    gate, done, began = asyncio.Semaphore(AT_ONCE), 0, time.perf_counter()

    async def one(client: aiohttp.ClientSession, number: int) -> None:
        nonlocal done
        problem = problems[number % len(problems)]
        messages = [{"role": "user", "content": problem.question}]
        body = {"model": "model", "messages": messages, "temperature": 0.8, "reasoning_effort": "high", "seed": number}
        async with gate:
            if time.perf_counter() - began > CLOSED_SECONDS:
                return
            headers = {"Elastic-Fixed": "true"}
            async with client.post(f"{server}/v1/chat/completions", json=body, headers=headers) as response:
                await response.read()
            done += 1

    problems = [*generate("easy", 500, SEED, "tune"), *generate("hard", 500, SEED, "tune")]
    np.random.default_rng(0).shuffle(problems)  # type: ignore[arg-type]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as client:
        await asyncio.gather(*(one(client, number) for number in range(20000)))
    return done / (time.perf_counter() - began)


def ways(replay: Replay, levels: Mapping[str, int], goal: Goal) -> dict[str, Goal]:
    """The goal of a server by way; `levels` are thinking budgets in tokens."""
    points = {each.think: each for each in replay.points()}
    found = {name: Goal((points[think],)) for name, think in levels.items()}
    return {**found, REFUSING: found["high"], ELASTIC: goal}


def figures(
    seconds: np.ndarray, score: np.ndarray, arrived: np.ndarray, end: float, latency: float
) -> dict[str, float]:
    """Of what arrived after the warm-up and early enough to be late by the end, as shares of it; answers a second are
    those of the whole time."""
    over = arrived + seconds <= end
    seconds = np.where(over, seconds, np.inf)
    counted = (arrived >= WARM) & (arrived <= end - latency)
    right = (score * (seconds <= latency))[counted]
    low, high = mean_interval(right)
    answered = seconds[(arrived >= WARM) & over]
    return {
        "right_share": right.mean(),
        "right_low_share": max(0.0, low),
        "right_high_share": min(1.0, high),
        "late_share": float((seconds[counted] > latency).mean()),
        "p95_seconds": float(np.quantile(answered, 0.95)) if len(answered) else float("inf"),
        "answers_per_second": float((over & (arrived + seconds >= WARM)).sum()) / (end - WARM),
        "num_requests": int(counted.sum()),
    }


def simulated(
    times: np.ndarray,
    end: float,
    replay: Replay,
    machine: Machine,
    servers: list[Controller],
    most_open: float,
    latency: float,
) -> dict[str, float]:
    samples = np.random.default_rng(1).integers(len(replay.tokens), size=len(times))
    seen = simulate(times, samples, replay, machine, servers, most_open)
    return figures(seen.seconds, seen.score, seen.arrived, end, latency)


def oracle(points: tuple[Point, ...], machine: Machine, latency: float, rate: float) -> float:
    """Accuracy of the best mixture of budgets for a load that is known and does not vary: what the engine draws within
    the goal, by its timing; an upper limit, as no response is late."""
    controller = Controller(Goal(points, latency), machine.steps, machine.most_running)
    best = []
    for top in points:
        vertices = frontier([each for each in points if each.think <= top.think])
        best.append(allocate(vertices, controller.tokens(top.tokens_p95, rate)).accuracy)
    return max(best)


def large(replay: Replay, levels: Mapping[str, int]) -> Iterator[tuple[str, float, str, dict[str, float], float]]:
    """Arrivals, load, way, figures and the oracle's accuracy of a 7B-like engine in replicas."""
    long = Replay(replay.think, replay.tokens * LONGER, replay.scores, replay.prompt_tokens)
    machine = machine_by_hand(*LARGE, 256)
    points = tuple(each for each in long.points() if each.think <= levels["high"])
    high = points[-1]
    # Twice as long as the longest response takes alone.
    latency = 2 * high.tokens_p95 * machine.steps.at(1)
    full = LARGE_REPLICAS * machine.most_running / machine.steps.at(machine.most_running) / high.tokens
    end, goal = 40 * latency, Goal(points, latency)
    for name, burstiness in (("Poisson", 1.0), ("bursty", 0.25)):
        for load in tqdm(LOADS, desc=name, leave=False):
            times = arrivals(load * full, end, 1, burstiness)
            for way, aim in ways(long, levels, goal).items():
                servers = [machine.server(aim) for _ in range(LARGE_REPLICAS)]
                limit = 256 if way == REFUSING else float("inf")
                found = simulated(times, end, long, machine, servers, limit, latency)
                yield name, load, way, found, oracle(points, machine, latency, load * full / LARGE_REPLICAS)


def main(options: argparse.Namespace) -> int:
    if options.model is None:
        print(f"{results.SKIPPED}give the directory of a trained miniature, its table, and its name there")
        return 0
    levels = read_levels(options.model / LEVELS)
    thinks = {name: level.think for name, level in levels.levels.items() if level.think is not None}
    _, replay = read_replay(options.table, options.name, [])
    console, collected = Console(width=200), dict[str, Any]()
    shown = Table("load", "way", "right in time (%)", "late (%)", "p95 (s)", "answers/s", "requests", "simulated:",
                  "late", "p95", "answers/s", "oracle")  # fmt: skip
    if not options.simulate_only:
        sizes = ("--set", "engine.max_model_len=512", "--set", f"engine.max_num_seqs={AT_ONCE}")
        with tempfile.TemporaryDirectory() as directory:
            log = Path(directory) / "log"
            with elastic_serve(options.model, log, "--latency", str(options.latency), *sizes) as (server, _):
                measured(options, server, levels, replay, shown, collected)
        console.print(shown)
    small = Table("arrivals", "load", "way", "right in time (%)", "late (%)", "p95 (s)", "oracle (%)")
    for arriving, load, way, found, best in large(replay, thinks):
        collected[f"large {arriving} {load} {way}"] = {**found, "oracle_share": best}
        small.add_row(arriving, str(load), way, _share(found), f"{100 * found['late_share']:.1f}",
                      f"{found['p95_seconds']:.1f}", f"{100 * best:.1f}")  # fmt: skip
    console.print(small)
    results.write("load", collected)
    return 0


def measured(
    options: argparse.Namespace, server: str, levels: Levels, replay: Replay, shown: Table, collected: dict[str, Any]
) -> None:
    """The real server beside its simulation, with the engine timed right before each cell: on a shared machine a step
    takes up to twice as long some minutes later, which is not the simulation's error."""
    end, latency = options.seconds, options.latency

    def timed() -> Machine:
        with tempfile.TemporaryDirectory() as runs:
            return machine_of_server(f"{server}/v1#model", replay, AT_ONCE, Path(runs))

    machine = timed()
    full = asyncio.run(capacity(server))
    thinks = {name: level.think for name, level in levels.levels.items() if level.think is not None}
    goal = Goal(tuple(each for each in levels.measured if each.think <= thinks["high"]), latency)
    collected["engine"] = {"capacity_per_second": full, "steps_seconds": list(machine.steps.seconds)}
    print(f"capacity at high {full:.1f} requests a second; steps {machine.steps}", flush=True)
    most_open = int(full * latency)
    for load in options.loads:
        times = arrivals(load * full, end, 1)
        best = oracle(goal.points, machine, latency, load * full)
        for way, aim in ways(replay, thinks, goal).items():
            if options.ways and way not in options.ways:
                continue
            limit, now = most_open if way == REFUSING else float("inf"), timed()
            found = asyncio.run(asked(server, times, end, way, limit))
            seen = figures(found.seconds, found.score, times, end, latency)
            predicted = simulated(times, end, replay, now, [now.server(aim)], limit, latency)
            collected[f"{load} {way}"] = {**seen, "oracle_share": best}
            collected[f"{load} {way} simulated"] = predicted
            results.write("load", collected)
            print(load, way, {key: round(value, 3) for key, value in seen.items()}, "simulated",
                  {key: round(value, 3) for key, value in predicted.items()}, flush=True)  # fmt: skip
            shown.add_row(str(load), way, *_row(seen), str(seen["num_requests"]), *_row(predicted), f"{100 * best:.1f}")
            time.sleep(3 + latency)  # What was left is aborted, and the load forgotten.


def _row(found: dict[str, float]) -> tuple[str, ...]:
    late, p95 = f"{100 * found['late_share']:.1f}", f"{found['p95_seconds']:.2f}"
    return _share(found), late, p95, f"{found['answers_per_second']:.1f}"


def _share(found: dict[str, float]) -> str:
    return "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * found[f"right{part}_share"] for part in ("", "_low", "_high")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("name", nargs="?")
    parser.add_argument("--latency", type=float, default=1.5)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS)
    parser.add_argument("--ways", nargs="*")
    parser.add_argument("--simulate-only", action="store_true")
    sys.exit(main(parser.parse_args()))
