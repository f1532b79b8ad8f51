"""Requests to OpenAI's API as the engine gets them: a level becomes its budget, a budget becomes fields that vLLM
knows.

Budgets under names that the server does not read (of other servers, misspelt, in another place) are refused: vLLM
ignores unknown fields, and the client would rely on a budget that is not kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from elastic_core.budget import Budget
from elastic_core.engines.budgets.parameters import DROP_ONE, ROOM, SOLUTION, THINK, read_budget
from elastic_core.errors import kind_of, nearest
from elastic_core.models.marks import Marks

VARIABLE = "ELASTIC_SERVE"
"""Environment variable by which the command that starts a server hands its `ServeConfiguration` to the middleware.
vLLM's `additional_config` would not do: changing it compiles the model again."""
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
_OURS = ("thinkbudget", "solutionbudget", "reasoningeffort")
_OTHERS = re.compile(
    "budget|effort|(think|thinking|reason|reasoning|thought|thoughts)(tokens?|limit|level|config|mode)"
    "|^(enable|disable|no)?(think|thinking|reasoning)$"
)
"""vLLM's thinking_token_budget, SGLang's thinking_budget, Qwen's enable_thinking, Anthropic's thinking, OpenRouter's
reasoning, llama.cpp's reasoning_budget, Dynamo's max_thinking_tokens, Gemini's thinking_level and their like."""
_CONTAINERS = (
    *("vllmxargs", "xargs", "extraargs", "extrabody", "chattemplatekwargs", "customparams", "nvext", "google"),
    "outputconfig",
)
"""Objects of a request that may hold such names."""
_SIMILARITY = 0.88  # A letter wrong, missing or swapped; llama.cpp's reasoning_format is not reasoning_effort.
_MOST_KEYS, _LONGEST_KEY, _DEEPEST = 1000, 40, 3


@dataclass(frozen=True)
class ServeConfiguration:
    """Budgets of one served model: `default` of a request that names none (None: unlimited), and `levels` by the value
    of `reasoning_effort`, empty when none was measured."""

    marks: Marks
    default: Budget | None
    levels: Mapping[str, Budget]

    def dump(self) -> str:
        return _CONFIGURATION.dump_json(self).decode()

    @classmethod
    def load(cls, text: str) -> ServeConfiguration:
        return _CONFIGURATION.validate_json(text)


_CONFIGURATION = TypeAdapter(ServeConfiguration)


class Refused(ValueError):
    """The request is at fault; the message is one sentence for the client."""


@dataclass(frozen=True)
class Plan:
    """The request for the engine, and what the client sees of the response. `level`, for the client and the counters,
    is a level's name, "explicit", "default" or "none"; `counted` is whether tokens are counted by phase."""

    body: dict[str, Any]
    budget: Budget
    level: str
    counted: bool = True
    shows_ids: bool = False
    shows_reasoning: bool = True

    def dump(self) -> bytes:
        """The body as JSON; raises Refused when it is nested too deep."""
        try:
            return orjson.dumps(self.body)
        except orjson.JSONEncodeError:
            raise Refused("the request is nested more than 250 levels deep; expected fewer") from None


def parse(body: bytes) -> dict[str, Any]:
    """A request's body; raises Refused when it is not a JSON object. Only standard JSON is accepted: vLLM's parser also
    takes NaN, lone surrogates and UTF-16, and would read what this check cannot see."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Refused(f"the request is not JSON in UTF-8: {error.msg} ({place})") from None
    if not isinstance(document, dict):
        raise Refused(f"the request is {kind_of(document)}; expected an object")
    return document


def plan(kind: Kind, body: dict[str, Any], config: ServeConfiguration) -> Plan:
    """Read a request's budget; vLLM checks the other fields. Raises Refused when the budget cannot be kept."""
    body = _read(body)
    budget, level = _budget(body, config)
    # Both return tokens of the prompt or of several candidates, whose phases cannot be counted.
    uncounted = [key for key in ("echo", "use_beam_search") if body.get(key) and (kind, key) != ("chat", "echo")]
    if budget != UNLIMITED_BUDGET:
        if uncounted:
            raise Refused(f"{uncounted[0]} together with the budget {budget}; {DROP_ONE}")
        _limit(kind, body, budget, config)
    elif uncounted:
        return Plan(body, budget, level, counted=False)
    shows_ids, shows_reasoning = bool(body.get("return_token_ids")), body.get("include_reasoning") is not False
    body["return_token_ids"] = True
    if not shows_reasoning:
        body["include_reasoning"] = True  # Without it vLLM hides the ids of the thought as well.
    return Plan(body, budget, level, shows_ids=shows_ids, shows_reasoning=shows_reasoning)


def _read(body: dict[str, Any]) -> dict[str, Any]:
    """A copy, in which the fields of `_FIELDS` have vLLM's types."""
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


def _budget(body: dict[str, Any], config: ServeConfiguration) -> tuple[Budget, str]:
    arguments, effort = body.get(ARGUMENTS) or {}, body.pop(EFFORT, None)
    try:
        budget, unread = read_budget(arguments, config.default), unread_budget(body)
    except ValueError as error:
        raise Refused(str(error)) from None
    if unread is not None:
        raise Refused(f'{unread} sets no budget here; give {_BUDGETS}, or "{EFFORT}"')
    given = [arguments.pop(key, None) for key in (THINK, SOLUTION)]
    explicit = any(value is not None for value in given)
    if effort is not None:
        if explicit:
            raise Refused(f"{EFFORT} together with {THINK} or {SOLUTION}; give one of the two")
        if not config.levels:
            raise Refused(f"{EFFORT} is {effort!r:.40}, and no level of this model was measured; give {_BUDGETS}")
        if not isinstance(effort, str) or effort not in config.levels:
            hint = nearest(str(effort)[:40], config.levels)
            raise Refused(f"{EFFORT} is {effort!r:.40}{hint or ';'} expected {', '.join(config.levels)}")
        return config.levels[effort], effort
    level = "explicit" if explicit else "none" if budget is None else "default"
    return budget or UNLIMITED_BUDGET, level


def _limit(kind: Kind, body: dict[str, Any], budget: Budget, config: ServeConfiguration) -> None:
    """Add the fields by which the engine keeps the budget."""
    limits = {key: limit for key, limit in ((THINK, budget.think), (SOLUTION, budget.solution)) if limit is not None}
    keys = ("max_completion_tokens", "max_tokens") if kind == "chat" else ("max_tokens",)
    most = next((body[key] for key in keys if body.get(key) is not None), None)
    room = budget.limited + config.marks.max_forced
    if most is not None:
        room = min(room, most)
    elif kind == "completions":  # Where vLLM would take 16.
        if budget.total is None:
            raise Refused(f"max_tokens is missing; give it beside the budget {budget}, which does not end by itself")
        body["max_tokens"] = room
    body[ARGUMENTS] = {**(body.get(ARGUMENTS) or {}), **limits, ROOM: room}
    stops = body.get("stop_token_ids") or []
    if isinstance(stops, list):
        body["stop_token_ids"] = [*stops, *(token for token in config.marks.end_of_text if token not in stops)]


def unread_budget(body: Mapping[str, Any]) -> str | None:
    """The first field that names a budget which is not read, as a path of keys. Null and true limit nothing. A
    ValueError on more than 1,000 keys."""
    for number, (path, value) in enumerate(_entries(body)):
        if number == _MOST_KEYS:
            raise ValueError(f"the request has more than {_MOST_KEYS} keys; expected fewer")
        if value is not None and value is not True and _names_budget(path[-1]):
            return ".".join(path)
    return None


def _entries(holder: Mapping[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in holder.items():
        if len(key) > _LONGEST_KEY or (at == ("vllm_xargs",) and key in (THINK, SOLUTION)):
            continue
        yield (*at, key), value
        if isinstance(value, dict) and len(at) < _DEEPEST and _near(_letters(key), _CONTAINERS):
            yield from _entries(value, (*at, key))


@lru_cache(maxsize=1024)
def _names_budget(key: str) -> bool:
    letters = _letters(key)
    return bool(_OTHERS.search(letters)) or _near(letters, _OURS)


def _letters(key: str) -> str:
    return re.sub("[^a-z]", "", key.lower())


@lru_cache(maxsize=1024)
def _near(letters: str, names: tuple[str, ...]) -> bool:
    return bool(get_close_matches(letters, names, n=1, cutoff=_SIMILARITY))
