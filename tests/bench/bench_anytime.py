"""One thought, several cuts: tokens that anytime rollouts sample, against rollouts that draw a thought for every
answer, with the miniature. Writes runs/bench/anytime.json.

Run by hand for less: `python -m tests.bench.bench_anytime --problems 8`.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import elastic_core.miniature
from elastic_core.budget import Budget
from elastic_core.engines.base import Engine, drive
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.vllm import VllmEngine
from elastic_core.miniature.problems import LEVELS, generate
from elastic_core.models.special_tokens import chat_prompt, load_markers
from elastic_core.strategies import Completion, Generate, Sampling
from elastic_core.strategies.separate import separate
from elastic_core.training.algorithms import Cuts, shares, think_and_answer
from elastic_core.trajectory import Trajectory
from tests.bench import results

MODEL = Path(elastic_core.miniature.__file__).parent / "base"
SAMPLING = Sampling(temperature=1.0, logprobs=True)
AT = (24, 48, 96, 144)
CUTS = Cuts(AT, shares("log-uniform", AT), answers=2, solution=32)
THOUGHTS = 8


@dataclass
class Counting:
    """An engine, and the tokens that it sampled."""

    engine: Engine
    generated: int = 0

    async def generate(self, request: Generate, seed: int) -> Completion:
        completion = await self.engine.generate(request, seed)
        self.generated += len(completion.tokens)
        return completion


class Sampled(NamedTuple):
    trajectories: list[Trajectory]
    tokens: int
    seconds: float


async def shared(engine: Engine, prompts: list[tuple[int, ...]]) -> Sampled:
    _, markers = load_markers(MODEL)
    counting = Counting(engine)
    began = time.monotonic()
    thoughts = await asyncio.gather(
        *(think_and_answer(prompt, CUTS, markers, SAMPLING, counting, seed) for prompt, seed in _seeded(prompts))
    )
    found = [answer for answered in thoughts for answers in answered for answer in answers]
    return Sampled(found, counting.generated, time.monotonic() - began)


async def apart(engine: Engine, prompts: list[tuple[int, ...]]) -> Sampled:
    _, markers = load_markers(MODEL)
    counting = Counting(engine)
    rollouts: list[Awaitable[Trajectory]] = []
    for prompt, seed in _seeded(prompts):
        for number, cut in enumerate(cut for cut in CUTS.at for _ in range(CUTS.answers)):
            run = separate(prompt, Budget(cut, CUTS.solution), markers, SAMPLING)
            # The first of eight would draw the shared thought again.
            rollouts.append(drive(run, {"policy": counting}, 1_000_000 + 100 * seed + number))
    began = time.monotonic()
    found = await asyncio.gather(*rollouts)
    return Sampled(list(found), counting.generated, time.monotonic() - began)


def _seeded(prompts: list[tuple[int, ...]]) -> Iterable[tuple[tuple[int, ...], int]]:
    return ((prompt, THOUGHTS * i + thought) for i, prompt in enumerate(prompts) for thought in range(THOUGHTS))


def prompts_of(count: int) -> list[tuple[int, ...]]:
    tokenizer, _ = load_markers(MODEL)
    return [
        chat_prompt(tokenizer, chain.question)
        for level in LEVELS
        for chain in generate(level, count // len(LEVELS), seed=0, split="tune")
    ]


async def measured(options: argparse.Namespace) -> dict[str, float]:
    engine = VllmEngine(str(MODEL), EngineParameters(device="cpu", max_model_len=512))
    try:
        await engine.warm_up()
        prompts = prompts_of(options.problems)
        one, every = await shared(engine, prompts), await apart(engine, prompts)
    finally:
        engine.shutdown()
    assert len(one.trajectories) == len(every.trajectories)
    for name, sampled in (("one thought, four cuts", one), ("a thought for every answer", every)):
        print(f"{name:28} {len(sampled.trajectories):6,} answers {sampled.tokens:9,} tokens {sampled.seconds:6.1f} s")
    lengths = [trajectory.think_tokens + trajectory.solution_tokens for trajectory in one.trajectories]
    return {
        # All tokens of independent rollouts are sampled, and all are trained on.
        "generated_per_trained_token_ratio": one.tokens / sum(lengths),
        "tokens_ratio": one.tokens / every.tokens,
        "wall_ratio": one.seconds / every.seconds,
        "answers": len(one.trajectories),
        "tokens": one.tokens,
    }


def main(options: argparse.Namespace) -> None:
    figures = asyncio.run(measured(options))
    for name, value in figures.items():
        print(f"{name:36} {value:.4g}")
    results.write("anytime", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=64)
    main(parser.parse_args())
