"""One engine alone: whether budgets are kept to the token, also where a graph pads its batch, and tokens per second
with and without budgets, as a share of what the card could do. Every request has a seed.

    python -m tests.gpu.engine MODEL --device cuda --out engine.json

The card's limit of a step is the bytes that it has to read, weights and cache, over its memory's bandwidth, which is
measured by a copy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from math import prod
from pathlib import Path
from typing import Any

from elastic_core.budget import Budget
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.vllm import VllmEngine
from elastic_core.miniature.problems import generate
from elastic_core.models.files import tensors
from elastic_core.models.marks import Marks
from elastic_core.models.special_tokens import chat_prompt, load_markers
from elastic_core.strategies import Completion, Generate, Sampling

MIXED = (3, 5, 200)
"""Requests under mixed budgets; graphs of 4 and 8 pad the first two."""
LENGTH, LONGEST = {"cuda": 512, "cpu": 32}, {"cuda": 200, "cpu": 40}
"""Tokens of a timed response, and the most thought of a mixed budget, with half as many of a solution."""


def is_kept(response: tuple[int, ...], budget: Budget, marks: Marks) -> bool:
    """Whether a response is one of `separate` under a limited budget: its thought ended by itself, or was closed at t;
    then end-of-text by itself, or at s. A text that ended within its thought counts as kept."""
    t, s = budget.think, budget.solution
    assert t is not None and s is not None
    start = marks.end(response, 0, t)
    if start is None:
        if any(token in marks.end_of_text for token in response[:t]):
            return response[-1] in marks.end_of_text and len(response) <= t
        closing = marks.closing(response[:t])
        start = t + len(closing)
        if tuple(response[t:start]) != closing:
            return False
    ends = [i for i, token in enumerate(response[start:]) if token in marks.end_of_text]
    return bool(ends) and ends[0] <= s and len(response) == start + ends[0] + 1


class Bench:
    """Requests to one engine, all at once."""

    def __init__(self, engine: VllmEngine, model: Path) -> None:
        self.engine = engine
        tokenizer, self.markers = load_markers(model)
        self.prompts = [chat_prompt(tokenizer, each.question) for each in generate("hard", 64, seed=0, split="tune")]

    async def respond(self, number: int, length: int, budget: Budget | None) -> Completion:
        """Without a budget a response has exactly `length` tokens."""
        prompt, stop = self.prompts[number % len(self.prompts)], self.markers.end_of_text if budget else ()
        return await self.engine.generate(Generate(prompt, length, stop, Sampling(), budget=budget), seed=number)

    async def mixed(self, longest: int) -> dict[str, int]:
        """How many of MIXED kept their budgets, of thoughts up to `longest`."""
        draw, kept = random.Random(0), {}
        for count in MIXED:
            budgets = [Budget(draw.randint(0, longest), draw.randint(1, longest // 2)) for _ in range(count)]
            found = await asyncio.gather(*(self.respond(i, 400, budget) for i, budget in enumerate(budgets)))
            pairs = zip(found, budgets, strict=True)
            kept[f"kept_of_{count}"] = sum(is_kept(each.tokens, budget, self.markers) for each, budget in pairs)
        return kept

    async def speed(self, sequences: int, length: int, budget: Budget | None) -> float:
        """Tokens per second."""
        began = time.perf_counter()
        found = await asyncio.gather(*(self.respond(i, length + 1, budget) for i in range(sequences)))
        return sum(len(each.tokens) for each in found) / (time.perf_counter() - began)


def bandwidth(device: str) -> float:
    """Bytes per second of the memory, read and written by a copy."""
    import torch

    block = torch.empty((1 if device == "cpu" else 4) << 28, dtype=torch.uint8, device=device)
    other, least = torch.empty_like(block), float("inf")
    for _ in range(5):
        began = time.perf_counter()
        other.copy_(block)
        if device == "cuda":
            torch.cuda.synchronize()
        least = min(least, time.perf_counter() - began)
    return 2 * block.numel() / least


def bytes_of_a_step(model: Path, sequences: int, context: float) -> float:
    """Weights once, and the cache of a mean context for each sequence; 2 bytes a number."""
    config = json.loads((model / "config.json").read_text())
    heads = config.get("num_key_value_heads", config["num_attention_heads"])
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    weights = sum(2 * prod(each["shape"]) for each in tensors(model).values())
    return weights + sequences * context * 4 * config["num_hidden_layers"] * heads * size


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    length = LENGTH[options.device]
    figures: dict[str, Any] = {
        "model": str(options.model),
        "executor": options.executor,
        "bandwidth": options.bandwidth,
    }
    # Without a GPU only exactness counts, and a second engine takes as long as the rest.
    for keeps in (True,) if options.device == "cpu" else (True, False):
        parameters = EngineParameters(
            device=options.device,
            dtype="float32" if options.device == "cpu" else "bfloat16",
            max_model_len=2048 if options.device == "cuda" else 512,
            max_num_seqs=max(options.sequences),
            kv_cache_gib=18 if options.device == "cuda" else 1,
            enforce_eager=options.device == "cpu",
            vllm={"distributed_executor_backend": options.executor} if options.executor else {},
        )
        began = time.perf_counter()
        engine = await asyncio.to_thread(VllmEngine, str(options.model), parameters, keeps_budgets=keeps)
        try:
            await engine.warm_up()
            name = "with budgets" if keeps else "plain"
            figures[f"{name}, start_seconds"] = time.perf_counter() - began
            bench = Bench(engine, options.model)
            if keeps:
                figures |= await bench.mixed(LONGEST[options.device])
            for sequences in options.sequences:
                budget = Budget(length // 2, length // 2) if keeps else None
                speed = await bench.speed(sequences, length, budget)
                seconds = bytes_of_a_step(options.model, sequences, 64 + length / 2) / options.bandwidth
                figures[f"{name}, {sequences} sequences, tokens_per_second"] = speed
                figures[f"{name}, {sequences} sequences, share of the card's limit"] = speed * seconds / sequences
        finally:
            engine.shutdown()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--sequences", type=int, nargs="+", default=[256, 512])
    parser.add_argument("--executor", choices=("uni", "mp"), help="vLLM's, where it matters; vLLM's own choice without")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.bandwidth = bandwidth(options.device)
    figures = asyncio.run(measure(options))
    kept = {count: figures[f"kept_of_{count}"] for count in MIXED}
    speeds = (f"{name.split(',')[0]} {value:,.0f}" for name, value in figures.items() if name.endswith("_second"))
    finding = f"budgets kept: {', '.join(f'{k} of {n}' for n, k in kept.items())}; tokens/s: {', '.join(speeds)}"
    options.out.write_text(json.dumps({"finding": finding, **figures}, indent=2) + "\n")
    print(finding)
    return int(any(k != n for n, k in kept.items()))


if __name__ == "__main__":
    raise SystemExit(main())
