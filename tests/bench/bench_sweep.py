"""One thought, the whole grid: the same cells with and without the continuation memo, against plain `LLM.generate`, and
what Prefect, MLflow and the table cost. Writes runs/bench/sweep.json.

Run by hand for less: `python -m tests.bench.bench_sweep --problems 20 --samples 2`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

import elastic_core.miniature
from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.base import Engine
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.ray_engine import RayEngine
from elastic_core.miniature.problems import LEVELS, generate
from elastic_core.models.special_tokens import load_markers
from elastic_core.seeds import request_seed
from elastic_core.strategies import Generate, Sampling
from elastic_core.sweep.executor import SweepResult, run_sweep
from elastic_core.sweep.grid import Cell, build_cells
from elastic_core.sweep.models import Prompts
from elastic_core.sweep.plan import Sharing, SweepPlan, plan_sweep
from elastic_core.sweep.rows import RowBuilder
from elastic_core.sweep.table import Manifest, SweepTable, TrajectoryStore
from elastic_core.trajectory import BUDGET
from reports.summary import report_rows, summarize
from tests.bench import results

MODEL = Path(elastic_core.miniature.__file__).parent / "base"
PARAMETERS = EngineParameters(max_model_len=512)
SAMPLING = Sampling(temperature=0.8, top_p=1.0)
BUDGETS = [Budget(think, 32) for think in range(0, 256, 16)]
ROUNDS = 3
STRATEGIES = ["vanilla", "budget_forcing", "separate"]


class Swept(NamedTuple):
    summary: pl.DataFrame
    result: SweepResult


def problems(count: int) -> dict[str, list[Problem]]:
    """Easy and hard ones together, as a benchmark has them."""
    return {
        "miniature": [
            Problem("miniature", f"{level}-{i}", chain.question, str(chain.answer), "math")
            for level in LEVELS
            for i, chain in enumerate(generate(level, count // len(LEVELS), seed=0, split="tune"))
        ]
    }


@contextmanager
def planned(
    options: argparse.Namespace, cells: Sequence[Cell], sharing: Sharing, seed: int
) -> Iterator[tuple[TrajectoryStore, SweepPlan]]:
    with tempfile.TemporaryDirectory() as directory:
        store = TrajectoryStore(Path(directory))
        with store.writing(Manifest({}, {}, {}, {})):
            yield (
                store,
                plan_sweep(
                    cells,
                    problems(options.problems),
                    num_samples=options.samples,
                    seed=seed,
                    finished=store.finished(),
                    sharing=sharing,
                ),
            )


async def swept(
    engine: Engine, options: argparse.Namespace, cells: Sequence[Cell], sharing: Sharing, seed: int
) -> Swept:
    tokenizer, markers = load_markers(MODEL)
    with planned(options, cells, sharing, seed) as (store, plan):
        result = await run_sweep(
            plan,
            sampling=SAMPLING,
            prompts=Prompts(tokenizer),
            replicas=[{"base": engine}],
            rows=RowBuilder(tokenizer, markers, "model", PARAMETERS.fingerprint),
            store=store,
            max_in_flight=2 * PARAMETERS.max_num_seqs,
        )
        return Swept(summarize(report_rows(store.scan()).collect()), result)


def plain_vllm() -> Any:
    """vLLM's own `LLM` with the engine's settings."""
    from vllm import LLM

    return LLM(
        str(MODEL),
        dtype="float32",
        max_model_len=PARAMETERS.max_model_len,
        max_num_seqs=PARAMETERS.max_num_seqs,
        enforce_eager=True,
        kv_cache_memory_bytes=2**30,
        block_size=32,
        enable_chunked_prefill=False,
        max_num_batched_tokens=8192,
        skip_tokenizer_init=True,
        generation_config="vllm",
        disable_log_stats=True,
    )


def generated(llm: Any, options: argparse.Namespace, cells: Sequence[Cell], seed: int) -> tuple[int, float]:
    """Tokens and seconds of `LLM.generate` on the requests of vanilla cells that do not share."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    tokenizer, markers = load_markers(MODEL)
    prompts = Prompts(tokenizer)
    with planned(options, cells, "independent", seed) as (_, plan):
        work = [(unit, prompts.ids(unit.problem, unit.cells[0].strategy, unit.cells[0].budget)) for unit in plan.work]
    asked = [
        SamplingParams(
            temperature=SAMPLING.temperature,
            top_p=SAMPLING.top_p,
            seed=request_seed(unit.seed, Generate(prompt, None, (), SAMPLING)),
            max_tokens=unit.cells[0].budget.total,
            stop_token_ids=list(markers.end_of_text),
            ignore_eos=True,
            detokenize=False,
        )
        for unit, prompt in work
    ]
    inputs = [TokensPrompt(prompt_token_ids=list(prompt)) for _, prompt in work]
    began = time.monotonic()
    outputs = llm.generate(inputs, asked, use_tqdm=False)
    seconds = time.monotonic() - began
    return sum(len(output.outputs[0].token_ids) for output in outputs), seconds


def flow_metrics(runs: Path, changes: Mapping[str, Any]) -> dict[str, float]:
    """Run the sweep flow of `embedded` with changed settings, as users do; what it reports, and its seconds."""
    from mlflow import MlflowClient

    sets = [part for key, value in changes.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    command = [sys.executable, "-m", "flows.commands", "run", "sweep", "--preset", "embedded", *sets]
    began = time.monotonic()
    subprocess.run(command, env={**os.environ, "ELASTIC_RUNS": str(runs)}, check=True, stdout=subprocess.DEVNULL)
    whole = time.monotonic() - began
    client = MlflowClient(f"sqlite:///{runs}/mlflow.db")
    experiment = client.get_experiment_by_name("embedded")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], "attributes.run_name = 'sweep'")
    return {**found[0].data.metrics, "command_seconds": whole}


def bookkeeping(options: argparse.Namespace) -> dict[str, float]:
    """What the sweep flow reports of itself, and the time that its table takes alone."""
    with tempfile.TemporaryDirectory() as runs:
        changes = {
            "base": "shipped",
            "sweep.models": ["base"],
            "sweep.strategies": STRATEGIES,
            "sweep.budgets": [str(budget) for budget in BUDGETS],
            "sweep.samples": options.samples,
            "engine.max_model_len": 512,
        }
        metrics = flow_metrics(Path(runs), changes)
        table = next(Path(runs).glob("embedded/sweep/*/table"))
        return {**metrics, "store_alone_seconds": stored_alone(table)}


def stored_alone(table: Path) -> float:
    """Seconds that writing a table takes on a machine that does nothing else, in shards as the sweep wrote them."""
    shards = [pl.read_parquet(file) for file in SweepTable(table).shards()]
    with tempfile.TemporaryDirectory() as directory:
        store = TrajectoryStore(Path(directory))
        with store.writing(Manifest({}, {}, {}, {})):
            began = time.monotonic()
            for shard in shards:
                store.append(shard)
            return time.monotonic() - began


def agree(a: pl.DataFrame, b: pl.DataFrame) -> tuple[int, int]:
    """Cells whose accuracies lie within each other's intervals, and all cells."""
    keys = ["benchmark", "strategy", *BUDGET]
    both = a.join(b, on=keys, suffix="_b")
    inside = pl.col("avg_at_k").is_between("ci_low_b", "ci_high_b") & pl.col("avg_at_k_b").is_between(
        "ci_low", "ci_high"
    )
    return both.filter(inside).height, both.height


def line(name: str, rows: int, tokens: int, seconds: float) -> None:
    print(
        f"{name:34} {rows:8,} rows {tokens:11,} tokens {seconds:8.1f} s {tokens / seconds:9,.0f} tokens/s", flush=True
    )


async def through_ray(options: argparse.Namespace) -> dict[str, Any]:
    names = list(problems(options.problems))
    grid = build_cells(["base"], names, STRATEGIES, BUDGETS)
    vanilla = build_cells(["base"], names, ["vanilla"], BUDGETS[12:])
    figures: dict[str, Any] = {}
    async with RayEngine(str(MODEL), PARAMETERS) as engine:
        llm = plain_vllm()
        ratios = []
        for seed in range(
            ROUNDS + 1
        ):  # Side by side, as the machine's speed changes by the minute; the first warms up.
            tokens, seconds = generated(llm, options, vanilla, seed)
            line("LLM.generate", len(vanilla) * options.problems * options.samples, tokens, seconds)
            ours = (await swept(engine, options, vanilla, "independent", seed)).result
            line("executor, the same requests", ours.rows_written, ours.tokens_generated, ours.seconds)
            assert ours.tokens_generated == tokens
            ratios.append(seconds / ours.seconds)
        del llm
        figures["executor_vs_generate_ratio"] = statistics.median(ratios[1:])
        figures["executor_vs_generate_ratio_range"] = [min(ratios[1:]), max(ratios[1:])]
        shared = await swept(engine, options, grid, "memo", seed=0)
        line("grid, one thought", shared.result.rows_written, shared.result.tokens_generated, shared.result.seconds)
        # Another seed: with the same one forced cells would be equal token by token, and agree for no good reason.
        apart = await swept(engine, options, grid, "independent", seed=1)
        line(
            "grid, every cell by itself", apart.result.rows_written, apart.result.tokens_generated, apart.result.seconds
        )
    inside, cells = agree(shared.summary, apart.summary)
    figures["tokens_ratio"] = shared.result.tokens_generated / apart.result.tokens_generated
    figures["wall_ratio"] = apart.result.seconds / shared.result.seconds
    figures["cells"], figures["cells_agree"] = cells, inside
    figures["grading_share"] = shared.result.grading_seconds / shared.result.seconds
    return figures


def main(options: argparse.Namespace) -> None:
    import ray

    ray.init(address="local", num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    figures = asyncio.run(through_ray(options))
    ray.shutdown()

    flow = bookkeeping(options)
    around = flow["bookkeeping_seconds"] + flow["store_alone_seconds"]
    figures["overhead_share"] = around / (flow["bookkeeping_seconds"] + flow["seconds"])
    print(
        f"flow: sweep {flow['seconds']:.1f} s; Prefect and MLflow {flow['bookkeeping_seconds']:.2f} s; store "
        f"{flow['store_alone_seconds']:.2f} s ({flow['store_seconds']:.2f} s while it waits for the cores)"
    )
    figures["problems"], figures["samples"] = options.problems, options.samples
    for name, value in figures.items():
        print(f"{name:28} {value if isinstance(value, list) else format(value, '.4g')}")
    results.write("sweep", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--samples", type=int, default=8)
    main(parser.parse_args())
