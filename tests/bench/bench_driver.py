"""A sweep's own part of the time, on simulated engines: how long one of few samples takes against one cell after the
other, a full batch, the tail of a long one, and how many requests a core of the driver keeps going. Times of the first
three are of the simulated clock, the same on every machine. Then how many engines of a cluster a driver keeps up with,
and what Ray costs it. Writes runs/bench/driver.json.

Run by hand for less: `python -m tests.bench.bench_driver --units 2000`.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elastic_core.budget import Budget
from elastic_core.engines import ray_engine
from elastic_core.engines.parameters import EngineParameters
from elastic_core.strategies import Completion, Finish, Generate, Sampling
from elastic_core.sweep.executor import SweepResult
from elastic_core.sweep.grid import build_cells
from elastic_core.sweep.plan import SweepPlan, longest_first, plan_sweep
from elastic_core.sweep.table import TrajectoryStore
from tests import simulated
from tests.bench import results
from tests.simulated import SimulatedEngine, one_after_the_other, swept, tail, wall

SOLUTION = 1024
BUDGETS = [Budget(think, SOLUTION) for think in range(1024, 1024 * 17, 1024)]
GRID = ["vanilla", "budget_forcing", "separate"]
NUM_PLACES = 4
"""Of an engine, in the sweep whose tail is measured."""


def thought(problem: int, seed: int = 0) -> tuple[int, int]:
    """As of a reasoning model of 1.5B parameters: 1k to 30k tokens, with a long tail; samples of a problem differ by a
    third."""
    typical = np.exp(np.random.default_rng(problem).normal(np.log(4500), 0.7))
    return int(np.clip(typical * np.exp(np.random.default_rng(seed).normal(0, 0.3)), 1000, 30_000)), SOLUTION


def planned(num_problems: int, num_samples: int, strategies: list[str], budgets: list[Budget]) -> SweepPlan:
    with tempfile.TemporaryDirectory() as empty:
        finished = TrajectoryStore(Path(empty)).finished()
    cells = build_cells(["base"], ["simulated"], strategies, budgets)
    problems = simulated.problems(num_problems)
    return plan_sweep(cells, problems, num_samples=num_samples, seed=0, finished=finished)


def run(plan: SweepPlan, engines: list[SimulatedEngine], max_in_flight: int) -> SweepResult:
    with tempfile.TemporaryDirectory() as directory:
        return swept(Path(directory), plan, engines, max_in_flight)


def grid(num_problems: int, max_num_seqs: int) -> dict[str, float]:
    """All budgets and strategies of one sample a problem, on one engine."""
    plan = planned(num_problems, 1, GRID, BUDGETS)
    engine, before = (SimulatedEngine(thought, max_num_seqs=max_num_seqs) for _ in range(2))
    run(plan, [engine], 2 * max_num_seqs)
    alone = one_after_the_other(plan, before, 2 * max_num_seqs)
    longest = max(min(sum(thought(i, unit.seed)) + 2, BUDGETS[-1].limited) for i, unit in enumerate(plan.work))
    return {
        "of_longest_and_one_continuation_ratio": wall(engine) / ((longest + SOLUTION) * engine.step_seconds),
        "of_one_after_the_other_ratio": wall(engine) / alone,
        "tokens_ratio": engine.num_tokens / before.num_tokens,
    }


def tails() -> dict[str, float]:
    """Of 500 samples on eight engines, as the problems come, and longest first by what four earlier samples of each
    problem had."""
    plan = planned(125, 4, ["separate"], [Budget(29_000, SOLUTION)])
    earlier = np.random.default_rng(1).integers(2**40, size=(125, 4))
    known = {
        ("simulated", f"{i:06d}"): float(np.mean([thought(i, int(seed))[0] for seed in earlier[i]])) for i in range(125)
    }
    figures = {}
    for name, each in (("as_given", plan), ("longest_first", longest_first(plan, known))):
        engines = [SimulatedEngine(thought, max_num_seqs=NUM_PLACES) for _ in range(8)]
        run(each, engines, 2 * NUM_PLACES)
        figures[f"tail_{name}_share"] = tail(engines)
    return figures


def driver(num_units: int, num_engines: int, mean_thought: int) -> dict[str, float]:
    """The driver with everything that it does beside: prompts, rows, grades, shards. All in one process, whose time on
    processors is counted, that of simulating the engines included."""
    budgets = [Budget(mean_thought * quarter // 4, 16) for quarter in (1, 2, 3, 4)]
    plan = planned(num_units, 1, ["vanilla", "separate"], budgets)

    def lengths(problem: int, seed: int) -> tuple[int, int]:
        return mean_thought // 2 + problem * 7919 % mean_thought, 16

    engines = [SimulatedEngine(lengths, max_num_seqs=64) for _ in range(num_engines)]
    began = time.process_time()
    run(plan, engines, 128)
    seconds, requests = time.process_time() - began, sum(len(engine.spans) for engine in engines)
    return {
        "units": num_units,
        "requests": requests,
        "requests_per_minute_and_core": round(60 * requests / seconds),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def engines(count: int) -> dict[str, float]:
    """What a core of the driver keeps up with on so many engines, for responses of 9 thousand tokens: responses and
    tokens, and engines where each decodes 64 sequences of 128 tokens a second."""
    plan = planned(max(512, min(16 * count, 4096)), 1, ["separate"], [Budget(16_000, SOLUTION)])

    def lengths(problem: int, seed: int) -> tuple[int, int]:
        return 7500 + problem * 7919 % 1000, SOLUTION

    replicas = [SimulatedEngine(lengths, max_num_seqs=64) for _ in range(count)]
    began = time.process_time()
    run(plan, replicas, 128)
    seconds, tokens = time.process_time() - began, sum(engine.num_tokens for engine in replicas)
    return {
        "responses": len(plan.work),
        "responses_per_second_and_core": len(plan.work) / seconds,
        "tokens_per_second_and_core": round(tokens / seconds),
        "engines_per_core": tokens / seconds / (64 * 128),
    }


class ScriptedActor(ray_engine.EngineActor):
    """Answers a request two seconds later with as many tokens as it may."""

    async def start(self, *_: Any) -> None:
        pass

    async def shutdown(self) -> None:
        pass

    async def _generate(self, request: tuple[Generate, int]) -> Completion:
        await asyncio.sleep(2)
        return Completion(tuple(range(1000, 1000 + (request[0].max_tokens or 0))), Finish.LENGTH)


def transport(num_tokens: int) -> dict[str, float]:
    """What a request costs the driver on its way to an actor of Ray's and back."""
    import ray

    async def asked() -> tuple[int, float]:
        request = Generate(tuple(range(200)), num_tokens, (1,), Sampling())
        async with ray_engine.ray_pool({"base": "scripted"}, EngineParameters(data_parallel_size=4)) as replicas:
            began = time.process_time()
            calls = [replica["base"].generate(request, seed) for replica in replicas for seed in range(320)]
            await asyncio.gather(*calls)
            return len(calls), time.process_time() - began

    ray_engine.EngineActor = ScriptedActor  # type: ignore[misc]
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        requests, seconds = asyncio.run(asked())
    finally:
        ray.shutdown()
    return {"requests": requests, "milliseconds_of_the_driver": 1000 * seconds / requests}


def main(num_units: int, num_engines: int) -> None:
    parts: dict[str, Callable[[], dict[str, float]]] = {
        "eight_problems": lambda: grid(8, 1_000_000),
        "full_batch": lambda: grid(48, 8),
        "tails": tails,
        "driver": lambda: driver(num_units, num_engines, 256),
        "driver_of_long_thoughts": lambda: driver(max(1, num_units // 20), num_engines, 4096),
        **{f"transport_of_{count}_tokens": partial(transport, count) for count in (1000, 9000)},
        **{f"engines_{count}": partial(engines, count) for count in (1, 8, 64, 512)},
    }
    figures = {}
    for name, part in parts.items():
        figures[name] = part()
        print(name, ", ".join(f"{key} {value:,.4g}" for key, value in figures[name].items()), flush=True)
    results.write("driver", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=100_000)
    parser.add_argument("--engines", type=int, default=64)
    options = parser.parse_args()
    main(options.units, options.engines)
