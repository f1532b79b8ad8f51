"""A sweep of a vLLM server against the same sweep of an engine of ours: tokens per second. Equal rows are what
tests/integration/test_endpoint.py checks; here only the time counts. Writes runs/bench/endpoint.json.

Both have the same settings, and run in turns, as two engines at once would share the cores. A model of two million
parameters is the hardest case: a token costs little, and a request as much as with a large one.

Run by hand for less: `python -m tests.bench.bench_endpoint --problems 20 --samples 2`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path
from typing import Any

from elastic_core.engines.endpoint import Endpoint, EndpointParameters, parse_address
from elastic_core.engines.http import http_pool
from elastic_core.engines.ray_engine import RayEngine
from elastic_core.sweep.executor import SweepResult
from elastic_core.sweep.grid import build_cells
from elastic_core.system.network import free_ports
from flows.runtime.endpoints import find_endpoints
from tests.bench import results
from tests.bench.bench_sweep import BUDGETS, MODEL, PARAMETERS, STRATEGIES, line, problems, swept
from tests.vllm_server import VllmServer

SHARINGS = ("memo", "independent")


async def rounds(engine: Any, name: str, options: argparse.Namespace) -> dict[str, list[SweepResult]]:
    """By how cells share what they draw; the first round warms up and is left out."""
    grid = build_cells(["base"], list(problems(options.problems)), STRATEGIES, BUDGETS[::4])
    found: dict[str, list[SweepResult]] = {sharing: [] for sharing in SHARINGS}
    for sharing in SHARINGS:
        for seed in range(options.rounds + 1):
            result = (await swept(engine, options, grid, sharing, seed)).result  # type: ignore[arg-type]
            line(f"{name}, {sharing}", result.rows_written, result.tokens_generated, result.seconds)
            found[sharing].append(result)
    return {sharing: each[1:] for sharing, each in found.items()}


async def of_ours(options: argparse.Namespace) -> dict[str, list[SweepResult]]:
    async with RayEngine(str(MODEL), PARAMETERS) as engine:
        return await rounds(engine, "an engine of ours", options)


async def of_a_server(endpoint: Endpoint, options: argparse.Namespace) -> dict[str, list[SweepResult]]:
    async with http_pool({"base": endpoint}) as (replica,):
        return await rounds(replica["base"], "a server", options)


def main(options: argparse.Namespace) -> None:
    import ray

    ray.init(address="local", num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    ours = asyncio.run(of_ours(options))
    ray.shutdown()
    (port,) = free_ports(1)
    assert PARAMETERS.max_model_len is not None
    with (
        tempfile.TemporaryDirectory() as directory,
        VllmServer(port, Path(directory) / "log", PARAMETERS.max_model_len, PARAMETERS.max_num_seqs) as server,
    ):
        behind = {"base": (parse_address(server.address),)}
        parameters = EndpointParameters(max_requests=2 * PARAMETERS.max_num_seqs)
        endpoint = find_endpoints(behind, {"base": str(MODEL)}, parameters, Path(directory))["base"]
        theirs = asyncio.run(of_a_server(endpoint, options))
    figures: dict[str, Any] = {}
    for sharing in SHARINGS:
        pairs = list(zip(ours[sharing], theirs[sharing], strict=True))
        assert all(a.tokens_generated == b.tokens_generated for a, b in pairs), "the same seeds draw the same tokens"
        speeds = [[each.tokens_per_second for each in found[sharing]] for found in (ours, theirs)]
        local, served = map(statistics.median, speeds)
        figures[sharing] = {
            "local_tokens_per_second": local,
            "endpoint_tokens_per_second": served,
            "endpoint_vs_local_ratio": served / local,
        }
        print(f"{sharing}: {served:,.0f} against {local:,.0f} tokens/s, {served / local:.2f} times")
    results.write("endpoint", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    main(parser.parse_args())
