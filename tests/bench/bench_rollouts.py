"""What a training step's rollouts reach of the engine's own throughput: steps of a real training through verl and Ray,
against the engine alone with rollouts of as many problems of the same kind; and in one request a rollout
(train.one_pass) against two. Writes runs/bench/rollouts.json.

Run by hand for less: `python -m tests.bench.bench_rollouts --steps 3 --rounds 2`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

import elastic_core.miniature
from elastic_core.budget import Budget
from elastic_core.engines.base import drive
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.vllm import VllmEngine
from elastic_core.miniature.problems import LEVELS, generate
from elastic_core.models.special_tokens import chat_prompt, load_markers
from elastic_core.strategies import Sampling
from elastic_core.strategies.separate import separate
from elastic_core.training.grpo.step_metrics import GENERATED
from flows import presets
from tests.bench import results

MODEL = Path(elastic_core.miniature.__file__).parent / "base"
PRESET = "embedded"


def of_training(steps: int, *, one_pass: bool = False) -> list[float]:
    """Tokens per second of each step's rollouts, but the first's, where kernels are made ready."""
    with tempfile.TemporaryDirectory() as runs:
        settings = (f"train.steps={steps}", "train.validate_every=0", f"train.one_pass={str(one_pass).lower()}")
        command = [sys.executable, "-m", "flows.commands", "run", "train", "--preset", PRESET]
        command += [argument for setting in settings for argument in ("--set", setting)]
        subprocess.run(command, env={**os.environ, "ELASTIC_RUNS": runs}, check=True)
        (metrics,) = Path(runs).glob(f"{PRESET}/train/*/metrics.parquet")
        values = pl.read_parquet(metrics)
    generated, seconds = (
        values.filter(name=name).sort("step")["value"].to_list() for name in (GENERATED, "timing_s/gen")
    )
    return [(generated[step] - generated[step - 1]) / seconds[step] for step in range(1, steps)]


async def of_engine(rounds: int) -> list[float]:
    """Tokens per second of as many rollouts by the engine alone."""
    training = presets.resolve(PRESET).training
    tokenizer, markers = load_markers(MODEL)
    problems = [
        chain.question
        for level in LEVELS
        for chain in generate(level, training.batch_size // len(LEVELS), seed=0, split="tune")
    ]
    prompts = [chat_prompt(tokenizer, question) for question in problems for _ in range(training.group_size)]
    sampling = Sampling(temperature=training.temperature, logprobs=True)
    parameters = EngineParameters(max_model_len=training.context_tokens, max_num_seqs=training.max_sequences)
    engine = VllmEngine(str(MODEL), parameters)
    found = []
    try:
        await engine.warm_up()
        for number in range(rounds):
            began = time.monotonic()
            rollouts = await asyncio.gather(
                *(
                    drive(
                        separate(prompt, Budget.parse(training.budget), markers, sampling),
                        {"policy": engine},
                        len(prompts) * number + seed,
                    )
                    for seed, prompt in enumerate(prompts)
                )
            )
            tokens = sum(rollout.think_tokens + rollout.solution_tokens for rollout in rollouts)
            found.append(tokens / (time.monotonic() - began))
    finally:
        engine.shutdown()
    return found


def main(options: argparse.Namespace) -> None:
    alone, trained = asyncio.run(of_engine(options.rounds)), of_training(options.steps)
    in_one_pass = of_training(options.steps, one_pass=True)
    figures = {
        "engine_tokens_per_second": alone,
        "training_tokens_per_second": trained,
        "training_per_engine_ratio": statistics.median(trained) / statistics.median(alone),
        "one_pass_tokens_per_second": in_one_pass,
        "one_pass_per_two_requests_ratio": statistics.median(in_one_pass) / statistics.median(trained),
    }
    for name, value in figures.items():
        print(f"{name:28} {value}")
    results.write("rollouts", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    main(parser.parse_args())
