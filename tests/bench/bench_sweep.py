"""What a sweep costs: tokens/s of the engine in this process, through a Ray actor, and of a whole sweep.

Run by hand: `python tests/bench/bench_sweep.py --problems 200 --samples 8`.
"""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

import elastic_core.miniature
from elastic_core.budget import parse_grid
from elastic_core.data.problems import Problem
from elastic_core.engines.base import Engine
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.ray_pool import RayEngine
from elastic_core.engines.vllm import VllmEngine
from elastic_core.markers import load_markers
from elastic_core.miniature.problems import LEVELS, evaluation_rows
from elastic_core.strategies import Generate, Sampling
from elastic_core.sweep.executor import SweepResult, plan_sweep, run_sweep
from elastic_core.sweep.grid import build_cells
from elastic_core.sweep.manifest import Manifest
from elastic_core.sweep.rows import RowBuilder
from elastic_core.sweep.store import TrajectoryStore

MODEL = Path(elastic_core.miniature.__file__).parent / "base"
PARAMETERS = EngineParameters(max_model_len=512)
SAMPLING = Sampling(temperature=0.8, top_p=0.95)
BUDGETS = ["0+32", "16+32", "32+32", "48+32", "64+32", "96+32", "128+32", "192+32"]


def report(name: str, rows: int, tokens: int, seconds: float, cpu: float) -> None:
    print(
        f"{name:24} {rows:7} rows {tokens:9} tokens {seconds:7.1f} s {tokens / seconds:8.0f} tokens/s "
        f"{rows / seconds:6.0f} rows/s {1000 * cpu / rows:6.2f} ms/row of this process",
        flush=True,
    )


async def requests(name: str, engine: Engine, num: int, in_flight: int) -> None:
    """Random prompts of 30 tokens, 20 to 150 tokens each."""
    rng = random.Random(0)
    limit = asyncio.Semaphore(in_flight)

    async def one(seed: int) -> int:
        prefix = tuple(rng.randrange(7, 50) for _ in range(30))
        async with limit:
            return len((await engine.generate(Generate(prefix, rng.randint(20, 150), (), SAMPLING), seed)).tokens)

    began, cpu = time.monotonic(), time.process_time()
    tokens = sum(await asyncio.gather(*(one(i) for i in range(num))))
    report(name, num, tokens, time.monotonic() - began, time.process_time() - cpu)


async def sweep(engine: Engine, num_problems: int, num_samples: int, in_flight: int) -> None:
    problems = {
        f"miniature-{level}": [
            Problem(f"miniature-{level}", str(row["index"]), row["question"], row["answer"], "math")
            for row in evaluation_rows(level, num_problems // len(LEVELS), seed=0, split="tune")
        ]
        for level in LEVELS
    }
    strategies = ["vanilla", "budget_forcing", "separate", "unconstrained"]
    cells = build_cells(["base"], list(problems), strategies, parse_grid(BUDGETS))
    tokenizer, markers = load_markers(MODEL)

    def progress(result: SweepResult) -> None:
        print(
            f"  {result.rows_written} of {result.rows_total} rows, {result.tokens_per_second:.0f} tokens/s", flush=True
        )

    with tempfile.TemporaryDirectory() as directory:
        store = TrajectoryStore(Path(directory))
        rows = RowBuilder(tokenizer, markers, "model", PARAMETERS.fingerprint)
        with store.writing(Manifest({}, {}, {}, {})):
            plan = plan_sweep(cells, problems, num_samples=num_samples, seed=0, store=store)
            cpu = time.process_time()
            result = await run_sweep(
                plan,
                sampling=SAMPLING,
                engines={"policy": engine},
                rows=rows,
                store=store,
                max_in_flight=in_flight,
                on_progress=progress,
            )
        cpu = time.process_time() - cpu
        report(f"sweep, {in_flight} in flight", result.rows_written, result.tokens_generated, result.seconds, cpu)


async def main(options: argparse.Namespace) -> None:
    import ray

    engine = VllmEngine(str(MODEL), PARAMETERS)
    await engine.warm_up()
    for _ in range(2):
        await requests("in this process", engine, options.requests, options.in_flight)
    engine.shutdown()

    ray.init(address="local", num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    async with RayEngine(str(MODEL), PARAMETERS) as remote:
        for _ in range(2):
            await requests("through a Ray actor", remote, options.requests, options.in_flight)
        await sweep(remote, options.problems, options.samples, options.in_flight)
    ray.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--in-flight", type=int, default=512)
    asyncio.run(main(parser.parse_args()))
