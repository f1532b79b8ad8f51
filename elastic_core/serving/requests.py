"""Requests to the server's APIs as the engine gets them: with a budget read from its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import orjson
from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, TypeAdapter
from pydantic.dataclasses import dataclass as validated

from elastic_core.budget import Budget
from elastic_core.engines.budgets.parameters import DROP_ONE, KEY, SOLUTION, THINK, read_budget
from elastic_core.errors import kind_of
from elastic_core.models.marks import Marks
from elastic_core.serving.dialects import ARGUMENTS, EFFORT, FLAG, OURS, TEMPLATE, Refused, read_as, take_fields
from elastic_core.serving.levels import EFFORTS, Effort, TemplateSettings
from elastic_core.serving.load import Goal
from elastic_core.serving.ruled import Rule

VARIABLE = "ELASTIC_SERVE"  # Environment variable with a `ServeConfiguration`, for the middleware.
CAP = "thinking_budget"  # A chat template's name for the budget of a thought.
CONTINUES = "continue_final_message"  # vLLM's field of a chat; of a completion ours.
Kind = Literal["chat", "completions", "responses", "messages"]
Unmeasured = Literal["nearest", "default", "refuse"]
UNLIMITED_BUDGET = Budget(None, None)
_FLAG = FLAG, "true or false"
_NUMBER = TypeAdapter(Annotated[int, Field(ge=-(2**63), lt=2**63)]), "a whole number of 64 bits"
_MOST: dict[Kind, tuple[str, ...]] = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "completions": ("max_tokens",),
    "responses": ("max_output_tokens",),
    "messages": ("max_tokens",),
}
"""Fields that limit a whole response; the first that is given holds."""
_FIELDS: dict[str, tuple[TypeAdapter[Any], str]] = {
    **dict.fromkeys(("use_beam_search", "background", CONTINUES), _FLAG),
    **dict.fromkeys(("n", "max_tokens", "max_completion_tokens", "max_output_tokens"), _NUMBER),
}
"""Fields that are read here, as vLLM's own models read them: "no", "off" and 0 are false, and 20.0 is 20."""
_Text = Annotated[
    Budget, BeforeValidator(lambda text: Budget.parse(text) if isinstance(text, str) else text), PlainSerializer(str)
]
"""A budget like "512+256"."""


@validated(frozen=True, config=ConfigDict(extra="forbid"))
class ServeConfiguration:
    """Budgets of a server: the `default` budget of a request that names none (None: unlimited), and the budgets of
    `levels` by their names, empty where none was measured. A level that is missing is the `nearest` one, the `default`
    budget if there is one, or the request is refused. `reasoning_content` is whether a message has its thought by that
    older name too. `rules` are the stop rules of levels that have one, and `reads` the kind of answer in their probes
    (`elastic_core.rewards`). `closings` say how a level's cuts are worded, `efforts` which effort its chat template is
    given, by the family's name, and `template` further settings of it. `goal` is kept under load by giving less thought
    than requested."""

    default: _Text | None = None
    levels: Mapping[Effort, _Text] = Field(default_factory=dict)
    unmeasured: Unmeasured = "nearest"
    reasoning_content: bool = False
    rules: Mapping[Effort, str] = Field(default_factory=dict)
    closings: Mapping[Effort, str] = Field(default_factory=dict)
    efforts: Mapping[Effort, str] = Field(default_factory=dict)
    reads: str = "math"
    template: Mapping[Effort, TemplateSettings] = Field(default_factory=dict)
    goal: Goal | None = None

    def dump(self) -> str:
        return _CONFIGURATION.dump_json(self).decode()

    @classmethod
    def load(cls, text: str) -> ServeConfiguration:
        return _CONFIGURATION.validate_json(text)


_CONFIGURATION = TypeAdapter(ServeConfiguration)


@dataclass(frozen=True)
class Plan:
    """The request for vLLM, and its budget. `level`, for the client and the counters, is a level's name, "explicit",
    "default" or "none". `room` is how many tokens the engine must have after the prompt; `counted` is whether the
    tokens of each choice are; `rule` ends the thought, if there is one. `asked` is the budget before the load lowered
    it, which it does where `may_be_lowered`; `fixed` is whether the client forbids it. `continues` is whether the
    response goes on with an answer that the client began. `marks` close the thought, where they are not the model's."""

    kind: Kind
    body: dict[str, Any]
    budget: Budget
    level: str
    room: int = 0
    counted: bool = True
    rule: Rule | None = None
    asked: Budget = UNLIMITED_BUDGET
    fixed: bool = False
    may_be_lowered: bool = False
    continues: bool = False
    marks: Marks | None = None

    def with_thought(self, most: int | None, marks: Marks) -> Plan:
        """The plan with a thought of at most `most` tokens; None leaves it as it is."""
        if most is None:
            return self
        budget = Budget(most if self.budget.think is None else min(most, self.budget.think), self.budget.solution)
        room = min(self.room, budget.limited + marks.max_forced)
        return replace(self, body=_with_cap(self.body, budget.think, self.level), budget=budget, room=room)

    @property
    def lowered(self) -> bool:
        """Whether load took of its thought."""
        return self.budget != self.asked

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


def plan(
    kind: Kind,
    body: dict[str, Any],
    config: ServeConfiguration,
    marks: Marks,
    fixed: bool = False,
    effort: str | None = None,
    worded: Mapping[str, Marks] | None = None,
) -> Plan:
    """Read a request's budget; vLLM checks the other fields. `fixed` is whether a header says that the budget is not to
    be lowered; the body may say it too. `effort` is as of `_tell`; `worded` are marks by level. Raises Refused when the
    budget cannot be kept."""
    body = _read(body)
    fixed = _is_fixed(body) or fixed
    budget, level, hides = _budget(body, config)
    own = (worded or {}).get(level)
    marks = own or marks
    _tell(kind, body, next((each for name, each in config.template.items() if name == level), {}), effort)
    if hides is not None and kind in ("chat", "responses"):  # The others show it: they have no such field.
        body["include_reasoning"] = not hides
    if body.get("background"):
        raise Refused("background is true, and the response of another request has no counts; expected false")
    found = Plan(kind, body, budget, level, fixed=fixed, continues=_continues(kind, body), marks=own)
    if found.continues and kind == "chat":
        body.setdefault("add_generation_prompt", False)  # vLLM's default contradicts it.
    if found.continues:  # vLLM would take the answer, which has no marks, for a thought, and hide it.
        body.pop("include_reasoning", None)
    if body.get("use_beam_search"):  # Dropped candidates look like responses.
        if budget != UNLIMITED_BUDGET:
            raise Refused(f"use_beam_search together with the budget {budget}; {DROP_ONE}")
        return replace(found, counted=False, fixed=True)
    most = next((body[key] for key in _MOST[kind] if body.get(key) is not None), None)
    budget = _within(budget, most, marks)
    may_be_lowered = not fixed and _may_be_lowered(kind, body, budget, most)
    if budget == UNLIMITED_BUDGET:  # It may fill the context, and so it may when the load has lowered it.
        return replace(found, may_be_lowered=may_be_lowered)
    room = budget.limited + marks.max_forced
    rule = next((Rule(name, config.reads) for each, name in config.rules.items() if each == level), None)
    if most is not None:
        room = min(room, most)
        if budget.total is not None and rule is None:  # vLLM refuses what does not fit, and agents ask 32,000.
            ends = budget.total + marks.max_forced + 1
            body.update({key: min(body[key], ends) for key in _MOST[kind] if body.get(key) is not None})
    elif kind == "completions":  # Where vLLM would take 16.
        if budget.total is None and rule is None:
            raise Refused(f"max_tokens is missing; give it beside the budget {budget}, which does not end by itself")
        body["max_tokens"] = room
    body = _with_cap(body, budget.think, level)
    return replace(found, body=body, budget=budget, room=room, rule=rule, asked=budget, may_be_lowered=may_be_lowered)


def _may_be_lowered(kind: Kind, body: Mapping[str, Any], budget: Budget, most: int | None) -> bool:
    """Whether the request is answered with less thought too: one without a budget may have fields that exclude it."""
    if budget != UNLIMITED_BUDGET:
        return True
    excluded = body.get("ignore_eos") or body.get("min_tokens")
    several = (body.get("n") or 1) != 1 and (body.get("response_format") or body.get("structured_outputs"))
    return not excluded and not several and (kind != "completions" or most is not None)  # Else vLLM takes 16 tokens.


def _is_fixed(body: dict[str, Any]) -> bool:
    """Whether the request's budget is not to be lowered; takes the field out."""
    given = body.pop(KEY, None)
    if given is None:
        return False
    if not isinstance(given, dict) or given.keys() - {"fixed"}:
        raise Refused(f'{KEY} is {given!r:.40}; expected {{"fixed": true}}, or nothing')
    try:
        return bool(read_as(FLAG, given.get("fixed", False), "true or false"))
    except ValueError as error:
        raise Refused(f"{KEY}.fixed is {error}") from None


def _read(body: dict[str, Any]) -> dict[str, Any]:
    """A copy, in which the fields of `_FIELDS` have vLLM's types."""
    body = dict(body)
    for key, (adapter, expected) in _FIELDS.items():
        if body.get(key) is None:
            continue
        try:
            body[key] = read_as(adapter, body[key], expected)
        except ValueError as error:
            raise Refused(f"{key} is {error}") from None
    arguments = body.get(ARGUMENTS)
    if not isinstance(arguments, dict | None):
        raise Refused(f"{ARGUMENTS} is {arguments!r:.40}; expected an object")
    _require_shallow(body.get("structured_outputs"))
    if arguments is not None:
        body[ARGUMENTS] = dict(arguments)
    return body


def _require_shallow(structured: Any) -> None:
    """Raises Refused on what is no object, which vLLM answers with status 500, and on a grammar that is JSON in a text,
    and nested deeper than JSON in a request may be."""
    if not isinstance(structured, dict | None):
        raise Refused(f"structured_outputs is {structured!r:.40}; expected an object")
    for key in ("json", "structural_tag"):
        if isinstance(text := (structured or {}).get(key), str):
            try:
                orjson.dumps(orjson.loads(text))
            except orjson.JSONDecodeError as error:
                raise Refused(f"structured_outputs.{key} is not JSON: {error.msg}") from None
            except orjson.JSONEncodeError:
                raise Refused(f"structured_outputs.{key} is nested more than 250 levels deep; expected fewer") from None


def _budget(body: dict[str, Any], config: ServeConfiguration) -> tuple[Budget, str, bool | None]:
    """The budget that a request asks for, its level, and whether it hides the thought."""
    arguments = body.get(ARGUMENTS) or {}
    try:
        own = read_budget(arguments) or UNLIMITED_BUDGET
    except ValueError as error:
        raise Refused(str(error)) from None
    given = {key for key in (THINK, SOLUTION) if arguments.pop(key, None) is not None}
    cap, effort, field, native, hides = take_fields(body)
    is_open = cap is None and THINK not in given  # Whether a level may limit the thought.
    level = None if effort is None else _level(effort, config)
    takes_default = config.unmeasured == "default" and config.default is not None
    if is_open and effort is not None and level is None and not takes_default:
        why = f"which was not measured of this model; expected {', '.join(config.levels)}"
        raise Refused(f"{field} is {effort!r}, {why if config.levels else _NO_LEVEL}")
    if is_open and effort is None and native is not None and config.levels:
        level = next((name for name in config.levels if name == native), None)  # Else the default budget caps it.
    base = config.default or UNLIMITED_BUDGET if level is None else config.levels[level]
    think = own.think if THINK in given else base.think if cap is None else None if isinstance(cap, str) else cap
    solution = own.solution if SOLUTION in given else base.solution
    if level is not None and is_open:
        return Budget(think, solution), level, hides
    default = "none" if config.default is None else "default"
    return Budget(think, solution), "explicit" if given or cap is not None else default, hides


_NO_LEVEL = f"and no level of this model was measured; give {OURS}, or serve it with --budget and --unmeasured default"


def _level(effort: str, config: ServeConfiguration) -> Effort | None:
    """The level of an effort, None where it has none. A missing one is the next higher one, as levels are chosen."""
    at = EFFORTS.index(effort)
    level = next((each for each in (*EFFORTS[at:], *reversed(EFFORTS[:at])) if each in config.levels), None)
    return level if level == effort or config.unmeasured == "nearest" else None


def _continues(kind: Kind, body: dict[str, Any]) -> bool:
    """Whether the response goes on with an answer in the prompt. Takes the field of a completion out."""
    if kind == "responses":
        items = body.get("input")
        last = items[-1] if isinstance(items, list) and items and isinstance(items[-1], dict) else {}
        return last.get("type", "message") == "message" and last.get("status") in ("in_progress", "incomplete")
    return bool(body.pop(CONTINUES, False) if kind == "completions" else body.get(CONTINUES))


def _tell(kind: Kind, body: dict[str, Any], settings: TemplateSettings, effort: str | None) -> None:
    """Set the chat template's settings of a level, unless the client sets them. An `effort` is the default of a model
    that vLLM renders by the request's field alone, "" where it has none."""
    given = body.get(TEMPLATE) or {}
    if kind == "completions" or not isinstance(given, dict):
        return
    merged = {**settings, **given}
    if effort is not None:
        word = merged.pop(EFFORT, effort)
        word = word if word in EFFORTS[1:] else effort  # Those of harmony; vLLM refuses others.
        if word and kind == "chat":
            body[EFFORT] = word
        elif word:
            key = "reasoning" if kind == "responses" else "output_config"
            body[key] = {**(body.get(key) or {}), "effort": word}
    body[TEMPLATE] = merged
    if not merged:
        del body[TEMPLATE]


def _with_cap(body: dict[str, Any], think: int | None, level: str) -> dict[str, Any]:
    """The body with the thought's budget where the client named one to the chat template. A level tells the template
    what it was measured with."""
    given = body.get(TEMPLATE)
    if think is None or level in EFFORTS or not isinstance(given, dict) or given.get(CAP) is None:
        return body
    return {**body, TEMPLATE: {**given, CAP: think}}


def _within(budget: Budget, most: int | None, marks: Marks) -> Budget:
    """The budget with a thought that leaves room for the solution in `most` tokens, where the solution has a limit:
    else the response would be cut while it thinks."""
    if most is None or budget.solution is None:
        return budget
    room = max(0, most - budget.solution - marks.max_forced)
    return budget if budget.think is not None and budget.think <= room else Budget(room, budget.solution)
