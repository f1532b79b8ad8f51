"""A server under load, without the server: discrete events, with the lengths and scores of responses that a table has.

All responses that run go on at the same pace, which `Steps` gives for their number; the prompt of a new
one holds up all others. Requests wait in their turns for one of the engine's places.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from elastic_core.engines.latency import Steps
from elastic_core.serving.load import Controller, Goal, Ticket
from elastic_core.statistics.frontier import Point
from elastic_core.strategies import SERVED

COLUMNS = (
    "benchmark", "problem", "sample", "strategy", "think_budget", "solution_budget", "prompt_tokens", "think_tokens",
    "forced_tokens", "solution_tokens", "think_finish", "score",
)  # fmt: skip
"""Columns that are read of a trajectory table."""
_SAMPLE = ["benchmark", "problem", "sample"]
_OUTCOME = np.dtype([("arrived", float), ("seconds", float), ("place", int), ("tokens", float), ("score", float)])


class Machine(NamedTuple):
    """A server's engine: its steps, seconds of a prompt's token, and how many responses it runs in parallel."""

    steps: Steps
    prompt_token: float
    most_running: int

    def server(self, goal: Goal) -> Controller:
        """A server with this engine and no requests; one of a single budget always gives that."""
        return Controller(goal, self.steps, self.most_running)


@dataclass(frozen=True)
class Replay:
    """Samples of a table: what each takes and scores under each thinking budget.

    Attributes:
        think: ascending, shape (budgets,).
        tokens: of a response, the forced ones included, shape (samples, budgets).
        scores: in [0, 1], shape (samples, budgets).
        prompt_tokens: shape (samples,).
    """

    think: np.ndarray
    tokens: np.ndarray
    scores: np.ndarray
    prompt_tokens: np.ndarray

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Replay:
        """Read rows of one model: samples that have all thinking budgets of `separate`, at the solution budget that has
        most of them. ValueError where there is none."""
        served = rows.filter(strategy=SERVED).drop_nulls(["think_budget", "solution_budget"])
        if served.is_empty():
            raise ValueError(f"no rows of {SERVED} with both budgets limited")
        sizes = served.group_by("solution_budget").agg(pl.col("think_budget").n_unique())
        (solution, _) = sizes.sort("think_budget", "solution_budget").row(-1)
        tokens = pl.sum_horizontal("think_tokens", "forced_tokens", "solution_tokens")
        cells = served.filter(solution_budget=solution).with_columns(tokens=tokens)
        think = cells["think_budget"].unique().sort()
        whole = cells.filter(pl.len().over(_SAMPLE) == len(think)).sort(*_SAMPLE, "think_budget")
        if whole.is_empty():
            raise ValueError("no sample has all thinking budgets yet; finish the sweep")

        def columns(name: str) -> np.ndarray:
            return whole[name].cast(pl.Float64).to_numpy().reshape(-1, len(think))

        return cls(think.to_numpy(), columns("tokens"), columns("score"), columns("prompt_tokens")[:, 0])

    def points(self) -> list[Point]:
        """Measurements of each budget."""
        found = []
        for place, think in enumerate(self.think.tolist()):
            tokens = self.tokens[:, place]
            p95 = float(np.quantile(tokens, 0.95))
            found.append(Point(think, float(self.scores[:, place].mean()), float(tokens.mean()), p95))
        return found


def arrivals(rate: float, seconds: float, seed: int, burstiness: float = 1.0) -> np.ndarray:
    """Times of requests, with gaps of a gamma distribution of this shape, as in `vllm bench serve`; 1 is Poisson."""
    random = np.random.default_rng(seed)
    count = int(rate * seconds * 1.2) + int(20 * (rate * seconds / burstiness) ** 0.5) + 20
    times = np.cumsum(random.gamma(burstiness, 1 / (rate * burstiness), count))
    return times[times < seconds]


def simulate(
    times: np.ndarray,
    samples: np.ndarray,
    replay: Replay,
    machine: Machine,
    servers: Sequence[Controller],
    most_open: float = math.inf,
) -> np.recarray:
    """Simulate requests that arrive at `times`, ascending, of the replay's `samples`, and ask for the largest budget.

    Args:
        servers: a new `Machine.server` for each engine; they take requests in turns.
        most_open: requests of one server after which it refuses more.

    Returns:
        By arrival a record of each request: when it `arrived`, `seconds` until its answer, `place` of its budget,
        `tokens` and `score`. Of one that was refused the seconds are infinite, the place is -1 and the score 0.
    """
    count = len(servers)
    shares = [_one(times[i::count], samples[i::count], replay, machine, servers[i], most_open) for i in range(count)]
    columns = [np.concatenate(parts) for parts in zip(*shares, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return np.rec.fromarrays([each[order] for each in columns], dtype=_OUTCOME)


def _one(
    times: np.ndarray, samples: np.ndarray, replay: Replay, machine: Machine, server: Controller, most_open: float
) -> tuple[np.ndarray, ...]:
    count, places = len(times), {think: place for place, think in enumerate(replay.think.tolist())}
    seconds, place = np.full(count, np.inf), np.full(count, -1)
    tokens, score = np.zeros(count), np.zeros(count)
    running: list[tuple[float, int]] = []  # By the pace's clock at which they end.
    tickets = dict[int, Ticket]()
    clock = now = 0.0  # Tokens that a response that runs all the time has by now; seconds.
    held = 0.0  # Seconds that prompts still hold up the engine.

    def begin(request: int) -> None:
        nonlocal held
        sample = samples[request]
        held += machine.steps.request + machine.prompt_token * replay.prompt_tokens[sample]
        heapq.heappush(running, (clock + replay.tokens[sample, place[request]], request))

    def go_on(until: float) -> None:
        """Advance to a time, and end what ends before."""
        nonlocal clock, now, held
        while running:
            step = machine.steps.at(len(running))
            end = now + held + (running[0][0] - clock) * step
            if end > until:
                worked = max(0.0, until - now - held)
                held = max(0.0, held - (until - now))
                clock, now = clock + worked / step, until
                return
            clock, request = heapq.heappop(running)
            now, held = end, 0.0
            seconds[request] = now - times[request]
            server.leave(tickets.pop(request), now, seconds[request], [tokens[request]])
        now, held = until, 0.0

    for request, time in enumerate(times):
        go_on(float(time))
        if len(tickets) >= most_open:
            continue
        ticket = tickets[request] = server.arrive(now)
        think = server.most()
        given = place[request] = places[server.points[-1].think if think is None else think]
        tokens[request], score[request] = (each[samples[request], given] for each in (replay.tokens, replay.scores))
        if ticket.began is None:
            ticket.begin = partial(begin, request)
        else:
            begin(request)
    go_on(math.inf)
    return times, seconds, place, tokens, score
