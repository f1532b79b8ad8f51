"""Requests to OpenAI's API as the engine gets them: a level becomes its budget, a budget becomes what vLLM knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from elastic_core.budget import Budget
from elastic_core.errors import nearest
from elastic_core.serving.law import ROOM, SOLUTION, THINK, read_budget
from elastic_core.serving.offer import Offer

Kind = Literal["chat", "completions"]
UNLIMITED_BUDGET = Budget(None, None)
EFFORT = "reasoning_effort"


class Refused(ValueError):
    """The client's request is at fault; the message is one sentence for it."""


@dataclass(frozen=True)
class Plan:
    """What is asked of the engine, and what the client is to see of its response.

    Attributes:
        body: the request as the engine gets it.
        level: a level's name, "explicit", "default" or "none"; for the counters.
        counted: whether the response's tokens are counted and told by phase.
        shows_ids, shows_reasoning: what the client asked for.
    """

    body: dict[str, Any]
    budget: Budget
    level: str
    counted: bool = True
    shows_ids: bool = False
    shows_reasoning: bool = True


def plan(kind: Kind, body: dict[str, Any], offer: Offer) -> Plan:
    """Read a request. What is wrong with other fields is left for vLLM to say.

    Raises:
        Refused: when its budget cannot be had.
    """
    body = dict(body)
    budget, level = _budget(body, offer)
    # Both answer with tokens of a prompt or of several candidates, in which no phase can be told.
    uncounted = [key for key in ("echo", "use_beam_search") if body.get(key)]
    if budget != UNLIMITED_BUDGET:
        if uncounted and (kind == "completions" or "use_beam_search" in uncounted):
            raise Refused(f"{uncounted[0]} together with a budget; drop one")
        _limit(kind, body, budget, offer)
    elif uncounted:
        return Plan(body, budget, level, counted=False)
    shows_ids, shows_reasoning = bool(body.get("return_token_ids")), body.get("include_reasoning", True) is not False
    body["return_token_ids"] = True
    if not shows_reasoning:
        body["include_reasoning"] = True  # Without it vLLM hides the ids of the thought as well.
    return Plan(body, budget, level, shows_ids=shows_ids, shows_reasoning=shows_reasoning)


def _budget(body: dict[str, Any], offer: Offer) -> tuple[Budget, str]:
    """The budget and its level, taken out of the body."""
    arguments = body.get("vllm_xargs")
    arguments = dict(arguments) if isinstance(arguments, dict) else {}
    effort = body.pop(EFFORT, None)
    explicit = THINK in arguments or SOLUTION in arguments
    if effort is not None and explicit:
        raise Refused(f"{EFFORT} together with {THINK} or {SOLUTION}; give one of the two")
    if effort is not None:
        return _of_level(effort, offer), effort
    try:
        budget = read_budget(arguments, offer.default)
    except ValueError as error:
        raise Refused(str(error)) from None
    for key in (THINK, SOLUTION, ROOM):
        arguments.pop(key, None)
    if isinstance(body.get("vllm_xargs"), dict):
        body["vllm_xargs"] = arguments
    level = "explicit" if explicit else "none" if budget is None else "default"
    return budget or UNLIMITED_BUDGET, level


def _of_level(effort: Any, offer: Offer) -> Budget:
    if not offer.levels:
        raise Refused(f"{EFFORT} is {effort!r:.40}, and {offer.unmeasured}")
    if not isinstance(effort, str) or effort not in offer.levels:
        hint = nearest(str(effort), offer.levels)
        raise Refused(f"{EFFORT} is {effort!r:.40}{hint or ';'} expected {', '.join(offer.levels)}")
    return offer.levels[effort]


def _limit(kind: Kind, body: dict[str, Any], budget: Budget, offer: Offer) -> None:
    """Have the engine keep the budget."""
    limits = {key: limit for key, limit in ((THINK, budget.think), (SOLUTION, budget.solution)) if limit is not None}
    keys = ("max_completion_tokens", "max_tokens") if kind == "chat" else ("max_tokens",)
    most = next((body[key] for key in keys if body.get(key) is not None), None)
    room = budget.limited + 1  # Think-end, where we write it.
    if isinstance(most, int):
        room = min(room, most)
    elif kind == "completions" and most is None:  # Where vLLM would take 16.
        if budget.total is None:
            raise Refused(f"max_tokens is missing; give it beside the budget {budget}, which does not end by itself")
        body["max_tokens"] = room
    body["vllm_xargs"] = {**(body.get("vllm_xargs") or {}), **limits, ROOM: room}
    stops = body.get("stop_token_ids") or []
    if isinstance(stops, list):
        body["stop_token_ids"] = [*stops, *(token for token in offer.stops.end_of_text if token not in stops)]
