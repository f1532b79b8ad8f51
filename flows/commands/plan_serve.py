"""`elastic plan serve`: how many servers a load takes, by simulation of responses that a sweep measured."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from elastic_core.engines.base import RequestFailed
from elastic_core.engines.endpoint import EndpointParameters
from elastic_core.engines.http import http_pool
from elastic_core.engines.latency import Steps, measure_latency, measure_steps
from elastic_core.errors import UserError
from elastic_core.serving.load import LATE, Goal
from elastic_core.serving.simulation import COLUMNS, Machine, Replay, arrivals, simulate
from elastic_core.statistics.frontier import frontier
from elastic_core.sweep.cost import Throughput, throughput_file
from flows.commands.budgets import rows_of_model
from flows.commands.options import POSITIVE, table_of_last_run, table_options
from flows.runtime.endpoints import named_endpoint
from flows.runtime.environment import prepare, runs_directory

ELASTIC = "elastic"
_LEAST_REQUESTS, _GOALS, _MOST_SERVERS, _MOST_ROWS = 3000, 40, 1024, 8
"""Simulated requests, and how many goals of latency they take at least; servers that are tried, and shown."""
_PROMPTS, _TOKENS = 12, 64
_WARM = 0.1  # Share of the simulated time that is not counted, as servers begin empty.


class Load(NamedTuple):
    """Requests a second, how bursty they are (`arrivals`), and the seconds that 95 of 100 responses may take."""

    rate: float
    latency: float
    burstiness: float = 1.0


class Outcome(NamedTuple):
    """Shares of all requests answered rightly in time, and late; and the 95th percentile of their seconds."""

    right: float
    late: float
    p95: float


@click.command()
@table_options("Only this; may be given again.")
@click.option("--rate", type=POSITIVE, required=True, metavar="REQUESTS", help="Requests a second.")
@click.option(
    "--latency", type=POSITIVE, required=True, metavar="SECONDS", help="Within which 95 of 100 responses are to end."
)
@click.option(
    "--accuracy",
    type=click.FloatRange(min=0, max=100),
    metavar="PERCENT",
    help="Say how many servers answer so many requests rightly in time.",
)
@click.option(
    "--burstiness",
    type=POSITIVE,
    default=1.0,
    help="Shape of the gamma distribution of the gaps between requests, as in `vllm bench serve`; less is burstier.",
)
@click.option("--server", metavar="ADDRESS", help="Time this idle server now, http://host:8000/v1#MODEL.")
@click.option(
    "--step",
    type=click.FloatRange(min=0),
    nargs=2,
    metavar="ALONE EACH",
    help="Milliseconds from a token to the next of a response that is alone, and by how much each further one that is "
    "drawn at once makes it longer. Without it or --server what the sweep measured.",
)
@click.option(
    "--concurrent",
    type=click.IntRange(1, 16384),
    default=256,
    help="Responses that a server draws at once, its max_num_seqs.",
)
def plan_serve(
    table: Path | None,
    model: str | None,
    benchmarks: tuple[str, ...],
    accuracy: float | None,
    server: str | None,
    step: tuple[float, float] | None,
    concurrent: int,
    **load: float,
) -> None:
    """Say how many servers a load takes, and what comes of it on fewer.

    Requests are simulated; their lengths and scores are those of the table, with fixed budgets and with
    `elastic serve --latency`. Nothing is started.
    """
    prepare()
    table = table or table_of_last_run()
    name, replay = read_replay(table, model, benchmarks)
    if server is not None:
        machine = machine_of_server(server, replay, concurrent, runs_directory())
    elif step is not None:
        machine = machine_by_hand(*step, concurrent)
    else:
        machine = machine_of_sweep(table, name, concurrent)
    show_plan(replay, machine, Load(**load), accuracy, name)


def read_replay(directory: Path, model: str | None, benchmarks: Sequence[str]) -> tuple[str, Replay]:
    """A model of a table by its name, and its samples. UserError where there are none."""
    name, _, rows = rows_of_model(directory, model, benchmarks, COLUMNS)
    try:
        return name, Replay.of(rows)
    except ValueError as error:
        raise UserError(f"{directory}: {name}: {error}") from None


def machine_of_sweep(directory: Path, model: str, most_running: int) -> Machine:
    """The engine that a table's sweep timed; UserError where it did not."""
    file = throughput_file(directory.resolve().parent, model)
    found = Throughput.read(file) if file.exists() else None
    if found is None or found.steps is None or found.latency is None:
        raise UserError(
            f"{file}: no seconds of steps there; give --server ADDRESS, or --step ALONE EACH, or sweep this model again"
        )
    return Machine(found.steps, found.latency[1], most_running)


def machine_of_server(address: str, replay: Replay, most_running: int, runs: Path) -> Machine:
    """A server at an address like http://host:8000/v1#MODEL, timed now; it should have no other load."""
    endpoint = named_endpoint("server", address, EndpointParameters(max_requests=most_running), runs)
    # The table's length, of tokens that any model has.
    lengths = replay.prompt_tokens[:_PROMPTS].astype(int).tolist()
    draw = random.Random(0)
    prompts = [[draw.randrange(_TOKENS) for _ in range(length)] for length in lengths]

    async def timed() -> Machine:
        async with http_pool({"server": endpoint}) as (replica,):
            engine = replica["server"]
            latency = await measure_latency(engine, prompts, engine.max_model_len)
            steps = await measure_steps(engine, prompts, engine.max_model_len, most_running)
            return Machine(steps, latency.input, most_running)

    try:
        return asyncio.run(timed())
    except RequestFailed as error:
        raise UserError(f"--server {address}: {error}") from None


def machine_by_hand(alone: float, each: float, most_running: int) -> Machine:
    """Milliseconds of a step of one response, and by how much each further one makes it longer."""
    seconds = (alone / 1000, (alone + each * (most_running - 1)) / 1000)
    return Machine(Steps((1, max(2, most_running)), seconds), 0.0, most_running)


def outcome(load: Load, servers: int, replay: Replay, machine: Machine, goal: Goal) -> Outcome:
    """Simulate a load on `servers` servers."""
    seconds = max(_LEAST_REQUESTS / load.rate, _GOALS * load.latency)
    times = arrivals(load.rate, seconds, 0, load.burstiness)
    samples = np.random.default_rng(1).integers(len(replay.tokens), size=len(times))
    seen = simulate(times, samples, replay, machine, [machine.server(goal) for _ in range(servers)])
    seen = seen[seen.arrived >= _WARM * seconds]
    in_time = seen.seconds <= load.latency
    p95 = float(np.quantile(seen.seconds, 0.95))
    return Outcome(float((seen.score * in_time).mean()), float(1 - in_time.mean()), p95)


def goals(replay: Replay, latency: float) -> dict[str, Goal]:
    """Fixed budgets on the frontier by their thinking tokens, and all of them as the load allows."""
    measured = replay.points()
    kept = frontier(measured)
    between = tuple(each for each in measured if kept[0].think <= each.think <= kept[-1].think)
    return {f"t = {each.think}": Goal((each,)) for each in kept} | {ELASTIC: Goal(between, latency)}


def show_plan(replay: Replay, machine: Machine, load: Load, accuracy: float | None, named: str) -> None:
    """Print what numbers of servers give, up to the number at which the dearest budget keeps the goal, and how many
    reach an accuracy. UserError where no number does."""
    ways = goals(replay, load.latency)
    dearest = list(ways)[-2]

    def keeps(servers: int) -> bool:
        return outcome(load, servers, replay, machine, ways[dearest]).late <= LATE

    most = 1
    while not keeps(most):
        most *= 2
        if most > _MOST_SERVERS:
            raise UserError(
                f"{dearest} is late on {_MOST_SERVERS} servers too: expected a later --latency than {load.latency:g} s"
            )
    below = range(most // 2 + 1, most)
    most = below.start + bisect_left(below, True, key=keeps)
    rows = sorted({max(1, round(most * (i + 1) / _MOST_ROWS)) for i in range(_MOST_ROWS)})
    loads = tqdm(list(product(rows, ways)), desc="simulated loads", leave=False)
    results = {(servers, name): outcome(load, servers, replay, machine, ways[name]) for servers, name in loads}
    table = Table("servers", *(f"{name}: right in time (%), p95 (s)" for name in ways), box=None, pad_edge=False)
    for servers in rows:
        found = (results[servers, name] for name in ways)
        table.add_row(str(servers), *(f"{100 * each.right:.1f}  {_seconds(each.p95)}" for each in found))
    console = Console()
    console.print(
        f"{named}: {len(replay.tokens)} samples, {load.rate:g} requests a second, 95 % within {load.latency:g} s"
    )
    console.print(table)
    if accuracy is not None:
        for name in ways:
            enough = [servers for servers in rows if results[servers, name].right >= accuracy / 100]
            text = str(enough[0]) if enough else f"more than {most}, or never"
            console.print(f"{name}: servers for {accuracy:g} % right in time: {text}")


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds < 100 else ">100"
