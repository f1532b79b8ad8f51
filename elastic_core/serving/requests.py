"""Requests to OpenAI's API as the engine gets them: a level becomes its budget, a budget becomes what vLLM knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from elastic_core.budget import Budget
from elastic_core.engines.budgets.processor import DROP_ONE, ROOM, SOLUTION, THINK, read_budget
from elastic_core.errors import kind_of, nearest
from elastic_core.serving.configuration import Offer
from elastic_core.serving.names import unread_budget

Kind = Literal["chat", "completions"]
UNLIMITED_BUDGET = Budget(None, None)
EFFORT = "reasoning_effort"
ARGUMENTS = "vllm_xargs"
_BUDGETS = f'"{THINK}" and "{SOLUTION}" in "{ARGUMENTS}"'
_FLAG = TypeAdapter(bool), "true or false"
_NUMBER = TypeAdapter(Annotated[int, Field(ge=-(2**63), lt=2**63)]), "a whole number of 64 bits"
_FIELDS: dict[str, tuple[TypeAdapter[Any], str]] = {
    **dict.fromkeys(("echo", "use_beam_search", "return_token_ids", "include_reasoning"), _FLAG),
    **dict.fromkeys(("max_tokens", "max_completion_tokens"), _NUMBER),
}
"""Fields that are read here, as vLLM's own models read them: "no", "off" and 0 are false, and 20.0 is 20."""


class Refused(ValueError):
    """The client's request is at fault; the message is one sentence for it."""


@dataclass(frozen=True)
class Plan:
    """What is asked of the engine, and what the client is to see of its response.

    Attributes:
        body: the request as the engine gets it.
        level: a level's name, "explicit", "default" or "none"; for the client and the counters.
        counted: whether the response's tokens are counted and told by phase.
        shows_ids, shows_reasoning: what the client asked for.
    """

    body: dict[str, Any]
    budget: Budget
    level: str
    counted: bool = True
    shows_ids: bool = False
    shows_reasoning: bool = True

    def dump(self) -> bytes:
        """The body as JSON.

        Raises:
            Refused: when it is nested too deep.
        """
        try:
            return orjson.dumps(self.body)
        except orjson.JSONEncodeError:
            raise Refused("the request is nested more than 250 levels deep; expected fewer") from None


def parse(body: bytes) -> dict[str, Any]:
    """A request's body. What is not JSON by the standard is refused: vLLM's parser also takes NaN, lone surrogates and
    UTF-16, so such a body would mean more to it than to us.

    Raises:
        Refused: when it is no JSON object.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(
            f"the request is no JSON in UTF-8: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from None
    if not isinstance(document, dict):
        raise Refused(f"the request is {kind_of(document)}; expected an object")
    return document


def plan(kind: Kind, body: dict[str, Any], offer: Offer) -> Plan:
    """Read a request. What is wrong with other fields is left for vLLM to say.

    Raises:
        Refused: when its budget cannot be had.
    """
    body = _read(body)
    budget, level = _budget(body, offer)
    # Both answer with tokens of a prompt or of several candidates, in which no phase can be told.
    uncounted = [key for key in ("echo", "use_beam_search") if body.get(key) and (kind, key) != ("chat", "echo")]
    if budget != UNLIMITED_BUDGET:
        if uncounted:
            raise Refused(f"{uncounted[0]} together with the budget {budget}; {DROP_ONE}")
        _limit(kind, body, budget, offer)
    elif uncounted:
        return Plan(body, budget, level, counted=False)
    shows_ids, shows_reasoning = bool(body.get("return_token_ids")), body.get("include_reasoning") is not False
    body["return_token_ids"] = True
    if not shows_reasoning:
        body["include_reasoning"] = True  # Without it vLLM hides the ids of the thought as well.
    return Plan(body, budget, level, shows_ids=shows_ids, shows_reasoning=shows_reasoning)


def _read(body: dict[str, Any]) -> dict[str, Any]:
    """A copy with the fields that matter here as vLLM would read them."""
    body = dict(body)
    for key, (adapter, expected) in _FIELDS.items():
        if body.get(key) is None:
            continue
        try:
            body[key] = adapter.validate_python(body[key])
        except ValidationError:
            raise Refused(f"{key} is {body[key]!r:.40}; expected {expected}") from None
    arguments = body.get(ARGUMENTS)
    if not isinstance(arguments, dict | None):
        raise Refused(f"{ARGUMENTS} is {arguments!r:.40}; expected an object")
    if arguments is not None:
        body[ARGUMENTS] = {key: value for key, value in arguments.items() if key != ROOM}
    return body


def _budget(body: dict[str, Any], offer: Offer) -> tuple[Budget, str]:
    """The budget and its level, taken out of the body."""
    arguments, effort = body.get(ARGUMENTS) or {}, body.pop(EFFORT, None)
    try:
        budget, unread = read_budget(arguments, offer.default), unread_budget(body)
    except ValueError as error:
        raise Refused(str(error)) from None
    if unread is not None:
        raise Refused(f'{unread} sets no budget here; give {_BUDGETS}, or "{EFFORT}"')
    given = [arguments.pop(key, None) for key in (THINK, SOLUTION)]
    explicit = any(value is not None for value in given)
    if effort is not None:
        if explicit:
            raise Refused(f"{EFFORT} together with {THINK} or {SOLUTION}; give one of the two")
        return _of_level(effort, offer), effort
    level = "explicit" if explicit else "none" if budget is None else "default"
    return budget or UNLIMITED_BUDGET, level


def _of_level(effort: Any, offer: Offer) -> Budget:
    if not offer.levels:
        raise Refused(f"{EFFORT} is {effort!r:.40}, and no level of this model was measured; give {_BUDGETS}")
    if not isinstance(effort, str) or effort not in offer.levels:
        hint = nearest(str(effort)[:40], offer.levels)
        raise Refused(f"{EFFORT} is {effort!r:.40}{hint or ';'} expected {', '.join(offer.levels)}")
    return offer.levels[effort]


def _limit(kind: Kind, body: dict[str, Any], budget: Budget, offer: Offer) -> None:
    """Have the engine keep the budget."""
    limits = {key: limit for key, limit in ((THINK, budget.think), (SOLUTION, budget.solution)) if limit is not None}
    keys = ("max_completion_tokens", "max_tokens") if kind == "chat" else ("max_tokens",)
    most = next((body[key] for key in keys if body.get(key) is not None), None)
    room = budget.limited + 1  # Think-end, where we write it.
    if most is not None:
        room = min(room, most)
    elif kind == "completions":  # Where vLLM would take 16.
        if budget.total is None:
            raise Refused(f"max_tokens is missing; give it beside the budget {budget}, which does not end by itself")
        body["max_tokens"] = room
    body[ARGUMENTS] = {**(body.get(ARGUMENTS) or {}), **limits, ROOM: room}
    stops = body.get("stop_token_ids") or []
    if isinstance(stops, list):
        body["stop_token_ids"] = [*stops, *(token for token in offer.stops.end_of_text if token not in stops)]
