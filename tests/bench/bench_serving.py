"""Budgets over HTTP: `elastic serve` beside plain `vllm serve` on the same requests, one pass beside two requests, and
thousands of requests with budgets of their own, a fifth of which their clients leave. Writes runs/bench/serving.json.

Two servers of one program differ by some percent as long as they live, by where their memory lies: pairs of servers are
started anew until the ratios' intervals over pairs are narrow, or there are enough of them.

Run by hand for less: `python -m tests.bench.bench_serving --requests 64 --soak 500 --concurrent 1 32`, or with a model
whose tokens take longer: `--model 135m`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson
import psutil
from scipy.special import stdtrit

from elastic_core.miniature.problems import generate
from elastic_core.models.special_tokens import chat_prompt, load_markers
from elastic_core.system.network import free_ports
from flows.commands.serve import command
from tests.bench import results
from tests.served import BASE, elastic_serve, running

TOKENIZER, MARKERS = load_markers(BASE)
PROMPTS = [chat_prompt(TOKENIZER, problem.question) for problem in generate("hard", 256, seed=7, split="tune")]
SETTINGS = {"engine.max_model_len": 512, "engine.max_num_seqs": 256}
THINK, SOLUTION = 48, 16
SPLIT_CONCURRENT = 32
LEFT = 0.2
"""Share of the clients that leave before their response has ended."""
WIDTH = 0.05
"""Of a ratio's interval that is narrow enough."""
SHAPES = {"135m": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}}
"""Of SmolLM2-135M's layers, 106 M parameters; its vocabulary here is the miniature's."""


@dataclass
class Timed:
    """A streamed response: tokens, and seconds between its request and each of them."""

    ids: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    elastic: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Server:
    url: str
    process: psutil.Process

    @property
    def family(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """Of all its processes since they began: what else the machine does is not in it."""
        return sum(sum(each.cpu_times()[:2]) for each in self.family)

    def memory_mib(self) -> float:
        return sum(each.memory_info().rss for each in self.family) / 2**20


def request(i: int, **arguments: Any) -> dict[str, Any]:
    """The i-th: equal numbers draw equal tokens."""
    return {
        "model": "base",
        "prompt": PROMPTS[i % len(PROMPTS)],
        "seed": i,
        "temperature": 1.0,
        "stream": True,
        "return_token_ids": True,
        **arguments,
    }


def budgeted(i: int, think: int, solution: int) -> dict[str, Any]:
    return request(i, vllm_xargs={"think_budget": think, "solution_budget": solution})


async def streamed(client: aiohttp.ClientSession, url: str, body: dict[str, Any], most: int | None = None) -> Timed:
    """A response, or its first `most` chunks, after which the client leaves."""
    timed, began = Timed(), time.perf_counter()
    async with client.post(f"{url}/v1/completions", json=body, raise_for_status=True) as response:
        chunks = 0
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            chunks += 1
            for choice in orjson.loads(line[6:])["choices"]:
                if choice["token_ids"]:
                    timed.times.append(time.perf_counter() - began)
                timed.ids += choice["token_ids"]
                timed.elastic = choice.get("elastic") or timed.elastic
            if chunks == most:
                break
    return timed


def drawn_model(directory: Path, shape: dict[str, int]) -> Path:
    """A Llama with weights that were drawn, and the miniature's tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    target = shutil.copytree(BASE, directory / "base")
    (target / "model.safetensors").unlink()
    config = LlamaConfig.from_pretrained(BASE, **shape, num_key_value_heads=3, head_dim=64)
    LlamaForCausalLM(config).save_pretrained(target)
    return target


@contextmanager
def servers(directory: Path, model: Path, plain_first: bool) -> Iterator[tuple[Server, Server]]:
    """Ours, and plain vLLM with the same engine. Both are up all the time and used in turns, so that what
    else the machine does hits both."""
    sets = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    started = command("embedded", SETTINGS, str(model), budget=None, host="127.0.0.1", port=1, further=[])
    plain = without(started.arguments, "--logits-processors", "--middleware")
    (port,) = free_ports(1)
    plain[plain.index("--port") + 1] = str(port)
    begun: dict[str, Server] = {}
    with ExitStack() as stack:
        for name in ("plain", "ours") if plain_first else ("ours", "plain"):
            if name == "ours":
                begun[name] = Server(*stack.enter_context(elastic_serve(model, directory / "ours.log", *sets)))
            else:
                log = directory / "plain.log"
                process = stack.enter_context(running(plain, port, log, environment=started.environment))
                begun[name] = Server(f"http://127.0.0.1:{port}", process)
        yield begun["ours"], begun["plain"]


def without(arguments: list[str], *flags: str) -> list[str]:
    kept = iter(arguments)
    return [argument for argument in kept if argument not in flags or next(kept) is None]


class Round(NamedTuple):
    """What came, and the seconds that it took, by the clock and of the server's processors."""

    found: list[Timed]
    seconds: float
    cpu_seconds: float


async def measured_round(server: Server, concurrent: int, count: int, one: Callable[[int], Awaitable[Any]]) -> Round:
    before = server.cpu_seconds()
    found, seconds = await at_once(concurrent, count, one)
    return Round(found, seconds, server.cpu_seconds() - before)


async def at_once(concurrent: int, count: int, one: Callable[[int], Awaitable[Any]]) -> tuple[list[Any], float]:
    """Results of one(0), one(1), ... with so many under way, and the seconds they all took."""
    gate = asyncio.Semaphore(concurrent)

    async def within(i: int) -> Any:
        async with gate:
            return await one(i)

    began = time.perf_counter()
    found = await asyncio.gather(*(within(i) for i in range(count)))
    return found, time.perf_counter() - began


async def compared(
    options: argparse.Namespace, client: aiohttp.ClientSession, ours: Server, plain: Server, concurrent: int
) -> dict[str, list[Round]]:
    """Rounds of both on requests without a budget, whose tokens are equal, and of ours on budgets."""
    free = {"max_tokens": THINK + SOLUTION, "ignore_eos": True}
    count = max(8, min(options.requests, 16 * concurrent))
    seen: dict[str, list[Round]] = {"ours": [], "plain": [], "budgets": []}

    def without(i: int) -> dict[str, Any]:
        return request(i, **free)

    ways = [
        ("ours", ours, without),
        ("plain", plain, without),
        ("budgets", ours, lambda i: budgeted(i, THINK, SOLUTION)),
    ]
    for number in range(options.rounds):
        for name, server, body in ways if number % 2 else reversed(ways):
            seen[name].append(
                await measured_round(
                    server, concurrent, count, lambda i, s=server, b=body: streamed(client, s.url, b(i))
                )
            )
    assert [timed.ids for timed in seen["ours"][0].found] == [timed.ids for timed in seen["plain"][0].found]
    return seen


RATIOS = {
    "throughput": "tokens_per_second",
    "first token p50": "first_token_p50_ms",
    "next token p50": "next_token_p50_ms",
    "processor time": "cpu_ms_per_token",
}


def told(pairs: list[dict[str, list[Round]]]) -> dict[str, Any]:
    """Medians, and ratios of ours to plain vLLM's with their intervals over pairs of servers."""
    each = [{name: _medians(rounds) for name, rounds in pair.items()} for pair in pairs]
    ratios = {
        name: interval([one["ours"][figure] / one["plain"][figure] for one in each]) for name, figure in RATIOS.items()
    }
    budgets = interval([one["budgets"]["cpu_ms_per_token"] / one["plain"]["cpu_ms_per_token"] for one in each])
    return {
        "pairs": len(pairs),
        **{name: {key: statistics.median(one[name][key] for one in each) for key in each[0][name]} for name in each[0]},
        "ratios": {**ratios, "processor time with budgets": budgets},
    }


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """The mean, and its 95 % interval by Student's t; of one ratio there is none."""
    mean = statistics.mean(ratios)
    if len(ratios) < 2:
        return mean, 0.0, float("inf")
    half = float(stdtrit(len(ratios) - 1, 0.975)) * statistics.stdev(ratios) / len(ratios) ** 0.5
    return mean, mean - half, mean + half


def _figures(found: list[Timed], seconds: float, cpu_seconds: float) -> dict[str, float]:
    tokens = sum(len(timed.ids) for timed in found)
    first = [timed.times[0] for timed in found if timed.times]
    gaps = [b - a for timed in found for a, b in zip(timed.times, timed.times[1:], strict=False)]
    return {
        "tokens_per_second": tokens / seconds,
        "cpu_ms_per_token": 1000 * cpu_seconds / tokens,
        "first_token_p50_ms": 1000 * statistics.median(first),
        "first_token_p99_ms": 1000 * _quantile(first, 0.99),
        "next_token_p50_ms": 1000 * statistics.median(gaps),
        "next_token_p99_ms": 1000 * _quantile(gaps, 0.99),
    }


def _medians(rounds: list[Round]) -> dict[str, float]:
    each = [_figures(*one) for one in rounds]
    return {name: statistics.median(row[name] for row in each) for name in each[0]}


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def split(options: argparse.Namespace, client: aiohttp.ClientSession, ours: Server) -> dict[str, Any]:
    """The same number of responses from one pass, and from the two requests of `separate`."""

    async def twice(i: int) -> Timed:
        asked = request(i, max_tokens=THINK, stop_token_ids=[MARKERS.close[0], *MARKERS.end_of_text])
        thought = await streamed(client, ours.url, asked)
        ids = [token for token in thought.ids if token not in MARKERS.end_of_text]
        end = [] if ids and ids[-1] == MARKERS.close[0] else [MARKERS.close[0]]
        prompt = [*PROMPTS[i % len(PROMPTS)], *ids, *end]
        solution = await streamed(client, ours.url, {**request(i, max_tokens=SOLUTION), "prompt": prompt})
        return Timed([*ids, *end, *solution.ids])

    async def once(i: int) -> Timed:
        return await streamed(client, ours.url, budgeted(i, THINK, SOLUTION))

    rounds: dict[str, list[Round]] = {"one_pass": [], "two_requests": []}
    for _ in range(options.rounds):
        for name, way in (("one_pass", once), ("two_requests", twice)):
            rounds[name].append(await measured_round(ours, SPLIT_CONCURRENT, options.requests, way))
    seconds = {name: statistics.median(each.seconds for each in found) for name, found in rounds.items()}
    cpu = {name: statistics.median(each.cpu_seconds for each in found) for name, found in rounds.items()}
    speedup, saved = (of["two_requests"] / of["one_pass"] for of in (seconds, cpu))
    print(f"one pass: {speedup:.2f} times as fast as two requests, {saved:.2f} times less processor time", flush=True)
    return {"seconds": seconds, "cpu_seconds": cpu, "one_pass_speedup": speedup, "one_pass_cpu_speedup": saved}


async def soaked(options: argparse.Namespace, client: aiohttp.ClientSession, ours: Server) -> dict[str, Any]:
    """Random budgets, and clients that leave. Memory is looked at once a tenth of the requests has warmed it up."""
    draw = random.Random(0)
    scripts = [
        (draw.randint(0, 120), draw.randint(1, 40), draw.randint(1, 40) if draw.random() < LEFT else None)
        for _ in range(options.soak)
    ]

    async def one(i: int) -> str:
        think, solution, most = scripts[i]
        timed = await streamed(client, ours.url, budgeted(i, think, solution), most)
        if timed.elastic:
            closed = MARKERS.close[0] in timed.ids
            start = timed.ids.index(MARKERS.close[0]) + 1 if closed else len(timed.ids)
            forced = closed and start == think + 1
            over = start - forced > think or len(timed.ids) - start > solution
            return "over" if over else "kept"
        return "left" if most is not None else "lost"

    warm = options.soak // 10
    first, _ = await at_once(max(options.concurrent), warm, one)
    before = ours.memory_mib()
    rest, seconds = await at_once(max(options.concurrent), options.soak - warm, lambda i: one(warm + i))
    found = [*first, *rest]
    return {
        "requests": options.soak,
        "requests_per_second": len(rest) / seconds,
        **{name: found.count(name) for name in ("kept", "left", "over", "lost")},
        "memory_before_mib": before,
        "memory_after_mib": ours.memory_mib(),
        "still_running": await _running(client, ours.url),
    }


async def _running(client: aiohttp.ClientSession, url: str) -> int:
    """Requests that the engine still has, a moment after the last response."""
    await asyncio.sleep(2)
    async with client.get(f"{url}/metrics") as response:
        lines = (await response.text()).splitlines()
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting{")
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(names)))


async def measured(
    options: argparse.Namespace, ours: Server, plain: Server, concurrents: list[int], is_first: bool
) -> dict[str, Any]:
    connector, timeout = aiohttp.TCPConnector(limit=0, force_close=True), aiohttp.ClientTimeout(600)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=2**20) as client:
        for server in (ours, plain):  # Kernels are ready.
            await at_once(64, 64, lambda i, u=server.url: streamed(client, u, request(i, max_tokens=32)))
        rounds = {concurrent: await compared(options, client, ours, plain, concurrent) for concurrent in concurrents}
        if not is_first:
            return {"rounds": rounds}
        return {
            "rounds": rounds,
            "split": await split(options, client, ours),
            "soak": await soaked(options, client, ours),
        }


def _is_narrow(figures: dict[str, Any]) -> bool:
    return all(
        figures["ratios"][name][2] - figures["ratios"][name][1] < WIDTH for name in ("throughput", "first token p50")
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=512, help="of each round")
    parser.add_argument("--model", choices=["miniature", *SHAPES], default="miniature")
    parser.add_argument("--rounds", type=int, default=2, help="of each pair of servers")
    parser.add_argument("--pairs", type=int, default=8, help="of servers, at most")
    parser.add_argument("--concurrent", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--soak", type=int, default=10_000, help="requests with random budgets")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        model = drawn_model(Path(directory), SHAPES[options.model]) if options.model in SHAPES else BASE
        pairs: dict[int, list[dict[str, list[Round]]]] = {concurrent: [] for concurrent in options.concurrent}
        for number in range(options.pairs):
            with servers(Path(directory), model, plain_first=bool(number % 2)) as (ours, plain):
                found = asyncio.run(measured(options, ours, plain, list(pairs), number == 0))
            if number == 0:
                once = {name: found[name] for name in ("split", "soak")}
            for concurrent, rounds in found["rounds"].items():
                pairs[concurrent].append(rounds)
            if number and all(_is_narrow(told(each)) for each in pairs.values()):
                break
    figures = {f"concurrent_{concurrent}": told(each) for concurrent, each in pairs.items()} | once
    for concurrent in pairs:
        ratios = figures[f"concurrent_{concurrent}"]["ratios"]
        shown = ", ".join(f"{name} {mean:.3f} [{low:.3f}, {high:.3f}]" for name, (mean, low, high) in ratios.items())
        print(f"{concurrent} at once, of plain vLLM's: {shown}; n = {number + 1} pairs of servers", flush=True)
    results.write("serving" if model == BASE else f"serving-{options.model}", figures)
    soak = figures["soak"]
    print(
        f"{soak['requests']:,} requests: {soak['over']} over budget, {soak['lost']} lost, {soak['left']} left",
        flush=True,
    )
    return int(bool(soak["over"] or soak["lost"] or soak["still_running"]))


if __name__ == "__main__":
    sys.exit(main())
