"""`elastic serve` beside `vllm serve`, and beside vLLM's own `thinking_token_budget`, on one device at the same time.

    python -m tests.gpu.serving MODEL --device cuda --out serving.json

Both servers are up all the time and are asked in turns. Ratios are of ours to plain `vllm serve`, on requests of equal
length: without a budget, under t + s of ours, and under vLLM's t.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp

from elastic_core.system.network import free_ports
from flows.commands.serve import command
from tests.bench.bench_serving import PROMPTS, Timed, at_once, streamed, without
from tests.served import running

THINK = {"cuda": 128, "cpu": 16}
CLIENTS = {"cuda": (32, 256, 512), "cpu": (8,)}
PRESET = {"cuda": "e1-math-1.5b", "cpu": "embedded"}
WAYS = (("plain", "free"), ("ours", "free"), ("ours", "budget"), ("plain", "native"))


def body(i: int, name: str, kind: str, think: int) -> dict[str, Any]:
    """The i-th request: 2t tokens, of which t are the thought's where there is a budget."""
    asked = {"model": name, "prompt": PROMPTS[i % len(PROMPTS)], "seed": i, "temperature": 1.0, "stream": True}
    asked |= {"return_token_ids": True, "max_tokens": 2 * think, "ignore_eos": True}
    if kind == "budget":
        del asked["ignore_eos"]
        return asked | {"max_tokens": 2 * think + 8, "vllm_xargs": {"think_budget": think, "solution_budget": think}}
    return asked | {"thinking_token_budget": think} if kind == "native" else asked


def ask(url: str, name: str, kind: str, think: int, share: range, clients: int, start: float) -> list[Timed]:
    """The requests of one process, from a moment on that all of them begin at."""

    async def all_of_them() -> list[Timed]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=2**20) as client:
            await asyncio.sleep(max(0, start - time.time()))
            found, _ = await at_once(
                clients, len(share), lambda i: streamed(client, url, body(share[i], name, kind, think))
            )
            return found

    return asyncio.run(all_of_them())


def asked(pool: Any, processes: int, url: str, name: str, kind: str, think: int, clients: int) -> dict[str, float]:
    """Tokens per second, and the median seconds to the first token, of three requests for each client."""
    start, count = time.time() + 0.5, 3 * clients
    shares = [range(first, count, processes) for first in range(processes)]
    within = max(1, clients // processes)
    parts = pool.starmap(ask, [(url, name, kind, think, share, within, start) for share in shares])
    seconds, found = time.time() - start, [each for part in parts for each in part]
    return {
        "tokens_per_second": sum(len(each.ids) for each in found) / seconds,
        "first_token_p50_ms": 1000 * statistics.median(each.times[0] for each in found if each.times),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    gpu, think = options.device == "cuda", THINK[options.device]
    settings: dict[str, Any] = {"engine.max_model_len": 1024, "engine.max_num_seqs": max(CLIENTS[options.device])}
    settings |= {"engine.data_parallel_size": 1, "engine.kv_cache_gib": 14} if gpu else {}
    ports = free_ports(2)
    further = ["--stream-interval", "16"]
    started = command(
        PRESET[options.device],
        settings,
        str(options.model),
        budget=None,
        host="127.0.0.1",
        port=ports[0],
        further=further,
    )
    ours = list(started.arguments)
    plain = without(ours, "--logits-processors", "--middleware")
    plain[plain.index("--port") + 1] = str(ports[1])
    processes, rounds = (4, options.rounds) if gpu else (1, 1)
    seen: dict[str, list[dict[str, float]]] = {}
    with ExitStack() as stack:
        servers = (
            running(arguments, port, options.out.with_name(f"{label}.log"), environment=started.environment)
            for label, arguments, port in (("ours", ours, ports[0]), ("plain", plain, ports[1]))
        )
        # One after the other where they measure the same GPU's free memory.
        with ThreadPoolExecutor(1 if gpu else 2) as starting:
            list(starting.map(stack.enter_context, servers))
        pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(processes))
        urls = {"ours": f"http://127.0.0.1:{ports[0]}", "plain": f"http://127.0.0.1:{ports[1]}"}
        for clients in CLIENTS[options.device]:
            for number in range(rounds + 1):  # The first warms up.
                for who, kind in WAYS if number % 2 else WAYS[::-1]:
                    figures = asked(pool, processes, urls[who], started.name, kind, think, clients)
                    if number:
                        seen.setdefault(f"{clients} clients, {who}, {kind}", []).append(figures)
    medians = {
        name: {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
        for name, rounds in seen.items()
    }
    found: dict[str, Any] = {"rounds": rounds, "think": think, "medians": medians, "ratios": {}}
    for clients in CLIENTS[options.device]:
        base = medians[f"{clients} clients, plain, free"]
        for who, kind in WAYS[1:]:
            name = f"{clients} clients, {who}, {kind}"
            found["ratios"][name] = {key: medians[name][key] / base[key] for key in base}
    shares = (f"{name} {each['tokens_per_second']:.2f}" for name, each in found["ratios"].items())
    finding = f"tokens/s as a share of plain vllm serve: {'; '.join(shares)} (n = {rounds} rounds)"
    options.out.write_text(json.dumps({"finding": finding, **found}, indent=2) + "\n")
    print(finding)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
