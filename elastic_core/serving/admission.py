"""A `Controller` in a running server: it times its engine at the start, every request passes it, and metrics tell."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from elastic_core.engines.latency import measure_steps
from elastic_core.engines.vllm import drawn
from elastic_core.errors import UserError
from elastic_core.serving.load import Controller, Goal
from elastic_core.serving.requests import Plan
from elastic_core.serving.tally import Tally
from elastic_core.statistics.frontier import Point
from elastic_core.strategies.base import Completion, Generate

_PROMPT_TOKENS, _PROMPTS = 32, 8  # Of the requests that the engine is timed with.
_PRICE = Gauge("elastic_token_price", "Accuracy that one more token a response would buy; 0 where there is enough.")
_TRIM = Gauge("elastic_goal_trim", "What the goal is multiplied by, so that few responses are late.")
_TURNS = Counter("elastic_turns", "Times that a new request went before all that waited, as it would have been late.")
_OUT_OF_REACH = Gauge("elastic_goal_out_of_reach", "1 while the goal is not kept even with the floor.")
_GIVEN = Histogram(
    "elastic_budget_given",
    "Tokens of thought that requests got, of those with a limit.",
    ["level"],
    buckets=(0, *(2**power for power in range(4, 18))),
)
_IN_TIME = Counter("elastic_in_time", "Responses within the goal of latency.", ["level"])
_EXPECTED_RIGHT = Counter(
    "elastic_expected_right", "Of the responses within the goal, how many are right by what was measured.", ["level"]
)
_LOG = logging.getLogger("uvicorn.error")  # The server's log.


class Admission:
    """Budgets of a server's requests under load."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @classmethod
    async def by(cls, engine: Any, goal: Goal) -> Admission:
        """Time a vLLM engine that has no requests yet. UserError where even the shortest response breaks the goal."""
        config = engine.vllm_config
        most = config.scheduler_config.max_num_seqs * config.parallel_config.data_parallel_size
        vocabulary, draw = config.model_config.get_vocab_size(), random.Random(0)
        prompts = [[draw.randrange(vocabulary) for _ in range(_PROMPT_TOKENS)] for _ in range(_PROMPTS)]
        _LOG.info("timing the engine with 1 to %d requests at once", most)
        steps = await measure_steps(_Timed(engine), prompts, config.model_config.max_model_len, most)
        controller = Controller(goal, steps, most)
        floor, top = controller.points[0], controller.points[-1]
        alone = floor.tokens_p95 * steps.at(1)
        if goal.latency is not None and alone > goal.latency:
            raise UserError(
                f"--latency {goal.latency:g}: the floor, {floor.think} tokens of thought, takes {alone:.2g} s even "
                "when it is alone; expected a later goal"
            )
        timed = ", ".join(
            f"{1000 * each:.3g} ms with {count}" for count, each in zip(steps.running, steps.seconds, strict=True)
        )
        _LOG.info(
            "a step takes %s; within the goal that is about %.3g requests a second with %d tokens of thought, and %.3g "
            "with %d, the floor", timed, controller.most_arrivals(top), top.think, controller.most_arrivals(floor),
            floor.think,
        )  # fmt: skip
        return cls(controller)

    def most_thought(self) -> int | None:
        """Most tokens that the load leaves for the thought of a new request; None where there are enough."""
        return self._controller.most()

    def arrive(self, choices: int = 1) -> tuple[asyncio.Event, Callable[[Plan | None, Iterable[Tally], bool], None]]:
        """Count a request for `choices` responses. Returns an event, set when the engine has a place for it, and a
        function to call when it has finished: with its plan, None where vLLM refused it (of one choice), the tokens of
        its choices, and whether it was answered."""
        controller, arrived, place = self._controller, time.monotonic(), asyncio.Event()
        turn = controller.turns.turn
        ticket = controller.arrive(arrived, choices)
        if ticket.began is None:
            ticket.begin = place.set
        else:
            place.set()
        _PRICE.set(controller.allocation.price)
        _TURNS.inc(turn - ticket.turn)

        def over(plan: Plan | None, tallies: Iterable[Tally], answered: bool) -> None:
            now = time.monotonic()
            if plan is None:
                controller.retract(ticket, now, arrived)
                return
            governed, seconds = answered and not plan.fixed, now - arrived
            tokens = [each.length + each.excess for each in tallies]
            controller.leave(ticket, now, seconds if governed else None, tokens)
            _TRIM.set(controller.trim)
            _OUT_OF_REACH.set(not controller.in_reach)
            if not answered:
                return
            if plan.budget.think is not None:
                _GIVEN.labels(plan.level).observe(plan.budget.think)
            if controller.goal.latency is not None and seconds <= controller.goal.latency:
                _IN_TIME.labels(plan.level).inc()
                _EXPECTED_RIGHT.labels(plan.level).inc(_accuracy(controller.points, plan.budget.think))

        return place, over

    def told(self, plan: Plan) -> dict[str, Any]:
        """Fields of a response about the load, next to its budget."""
        why = "fixed" if plan.fixed else "load" if plan.lowered else "asked"
        return {"asked": str(plan.asked), "why": why, "price": self._controller.allocation.price}


def _accuracy(points: Iterable[Point], think: int | None) -> float:
    """Accuracy of the largest measured budget ≤ think; of the smallest where all are larger."""
    first, *others = points
    return next((each.accuracy for each in reversed(others) if think is None or each.think <= think), first.accuracy)


class _Timed:
    """A vLLM engine as an `Engine` of token ids, for requests that only take time."""

    def __init__(self, engine: Any) -> None:
        self._engine, self._numbers = engine, itertools.count()

    async def generate(self, request: Generate, seed: int) -> Completion:
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            max_tokens=request.max_tokens, ignore_eos=True, seed=seed, output_kind=RequestOutputKind.DELTA
        )
        prompt = TokensPrompt(prompt_token_ids=list(request.prefix))
        number = next(self._numbers)
        return await drawn(request, self._engine.generate(prompt, sampling, request_id=f"elastic-timing-{number}"))
