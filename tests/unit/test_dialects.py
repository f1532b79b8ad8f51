"""Every client's own way to ask for more, less or no thinking is read as its sender means it, or refused."""

from __future__ import annotations

import json
import re
import sys
import time
import types
import typing
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.http import chat_body, completion_request
from elastic_core.serving.dialects import DIALECTS, OPAQUE, Refused, _sounds_like_budget
from elastic_core.serving.requests import Plan, ServeConfiguration, plan
from elastic_core.strategies import Generate, Sampling
from elastic_core.strategies.chat import ChatRequest
from tests.unit.test_serving_law import MARKS

LEVELS = {"low": Budget(8, 4), "high": Budget(64, 16)}
FREE = ServeConfiguration(None, LEVELS)
DEFAULT = ServeConfiguration(Budget(16, 5), {})
BOTH = ServeConfiguration(Budget(16, 5), LEVELS)
NO_LEVEL = ServeConfiguration(Budget(16, 5), LEVELS, "refuse")


def planned(body: dict[str, Any], config: ServeConfiguration = DEFAULT, kind: Any = "chat") -> Plan:
    return plan(kind, body, config, MARKS)


def nested(path: str, value: Any) -> Any:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def fields(*kinds: str, template: bool = False) -> list[str]:
    """The table's fields of some types, by name."""
    return [
        ".".join(path)
        for path, kind in DIALECTS.items()
        if kind in kinds and template == path[0].startswith("chat_temp")
    ]


FORMAT = {"format": {"type": "json_schema", "schema": {"properties": {"reasoning": {"type": "string"}}}}}
HELLO = [{"role": "user", "content": "hello"}]
TEMPLATE = "chat_template_kwargs"


@pytest.mark.parametrize("name", [*fields("cap"), *fields("cap", template=True)])
def test_a_cap_becomes_t_and_s_is_the_defaults(name: str) -> None:
    for value, think in ((7, 7), (0, 0), ("7", 7), (7.0, 7), (-1, None)):
        found = planned(nested(name, value))
        assert (found.budget, found.level, found.body) == (Budget(think, 5), "explicit", {})
    assert planned(nested(name, None)).level == "default"
    for value in (-2, 7.5, "many", [7], {"a": 7}, True, False):
        with pytest.raises(Refused, match=rf"^{name} is .*expected a whole number"):
            planned(nested(name, value))


@pytest.mark.parametrize("name", fields("effort"))
def test_an_effort_becomes_a_level(name: str) -> None:
    for word, budget, level in (
        ("low", "8+4", "low"),
        ("LOW", "8+4", "low"),
        ("High", "64+16", "high"),
        ("none", "0+5", "explicit"),
        ("off", "0+5", "explicit"),
        ("no_think", "0+5", "explicit"),
        ("xhigh", "unlimited+5", "explicit"),
        ("max", "unlimited+5", "explicit"),
        ("ultra", "unlimited+5", "explicit"),
        ("default", "16+5", "default"),
        ("auto", "16+5", "default"),
        ("", "16+5", "default"),
        (300, "300+5", "explicit"),
        ("10000", "10000+5", "explicit"),
    ):
        found = planned(nested(name, word), BOTH)
        assert (str(found.budget), found.level, found.body) == (budget, level, {}), word
    for word in ("hihg", 0.5, "0.5", True, ["low"], {"effort": "low"}, -2):
        with pytest.raises(Refused, match=rf"^{name} is .*expected none, minimal"):
            planned(nested(name, word), BOTH)
    with pytest.raises(Refused, match=r'hihg.*did you mean "high"'):
        planned(nested(name, "hihg"), BOTH)
    with pytest.raises(Refused, match=r"'low', and no level .*think_budget"):
        planned(nested(name, "low"))


@pytest.mark.parametrize(
    ("name", "off", "on"),
    [
        *((name, False, True) for name in fields("switch")),
        *((name, "disabled", "enabled") for name in fields("mode")),
        *((name, False, True) for name in fields("word")),
        *((name, "off", "on") for name in fields("word")),
        ("thinking.type", "between_tools", "enabled"),
        ("thinking.type", "DISABLED", "Enabled"),
    ],
)
def test_a_switch_off_is_a_budget_of_none_and_on_asks_for_nothing_more(name: str, off: Any, on: Any) -> None:
    found = planned(nested(name, off), BOTH)
    assert (found.budget, found.level, found.body) == (Budget(0, 5), "explicit", {})
    found = planned(nested(name, on), BOTH)
    assert (found.budget, found.level, found.body) == (Budget(16, 5), "default", {})
    for wrong in ("perhaps", 3.5, [], {"a": 1} if name not in ("thinking", "reasoning") else 7):
        with pytest.raises(Refused, match=rf"^{name} is .*expected"):
            planned(nested(name, wrong), BOTH)


@pytest.mark.parametrize("name", fields("off"))
def test_a_switch_that_disables_asks_for_nothing_when_it_is_false(name: str) -> None:
    assert planned({name: True}).budget == Budget(0, 5)
    assert planned({name: False, "enable_thinking": False}).budget == Budget(0, 5)
    assert planned({name: False}).level == "default"


CASES = Path(__file__).with_name("dialects.txt").read_text().splitlines()
KINDS = {"R": "responses", "M": "messages", "P": "completions"}


@pytest.mark.parametrize(
    "case", [line for line in CASES if line and not line.startswith("#")], ids=lambda line: line[:90]
)
def test_what_clients_send_is_read(case: str) -> None:
    levels = {"minimal": "2+2", "low": "8+4", "medium": "32+8", "high": "64+16"}
    config = ServeConfiguration(Budget(16, 5), {name: Budget.parse(text) for name, text in levels.items()})
    request, expected, *rest = case.split(" => ")
    body = json.loads(request[request.index("{") :])
    if expected.startswith("refused: "):
        with pytest.raises(Refused, match=f"^{re.escape(expected.removeprefix('refused: '))}"):
            planned(body, config)
        return
    found = planned(body, config, KINDS.get(request[0], "chat"))
    assert f"{found.budget} {found.level}" == expected
    assert found.body == json.loads(rest[0] if rest else "{}")


MEANT: dict[str, list[tuple[Any, Any]]] = {
    "cap": [(9, 9), (40, 40), (0, 0), (-1, -1), (None, None)],
    "effort": [(word, word) for word in ("low", "high", "none", "max")] + [("auto", None)],
    "switch": [(True, "on"), (False, "off")],
    "off": [(True, "off"), (False, None)],
    "mode": [("enabled", "on"), ("disabled", "off"), ("adaptive", None)],
    "word": [(True, "on"), (False, "off"), ("low", "low"), ("none", "none")],
    "harmless": [("auto", None), (False, None)],
}
"""Values of a field of each type, and what each asks for."""
ASKED = [(path, *pair) for path, kind in DIALECTS.items() for pair in MEANT.get(kind, [])]


def merged(bodies: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for body in bodies:
        for key, value in body.items():
            found[key] = merged([found[key], value]) if isinstance(found.get(key), dict) else value
    return found


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(ASKED), max_size=4, unique_by=lambda asked: asked[0]))
def test_any_fields_together_are_read_by_the_rules(asked: list[tuple[tuple[str, ...], Any, Any]]) -> None:
    paths = [path for path, _, _ in asked]
    assume(not any(a != b and a == b[: len(a)] for a in paths for b in paths))  # A word and an object of one name.
    body, meant = merged([nested(".".join(path), value) for path, value, _ in asked]), {each[2] for each in asked}
    efforts, caps = {each for each in meant if isinstance(each, str)} - {"on", "off"}, meant & {9, 40, 0}
    if meant >= {"on", "off"} or len(efforts) > 1:
        with pytest.raises(Refused, match=r"give one of the two$"):
            planned(body, BOTH)
        return
    level = LEVELS.get(next(iter(efforts), ""), Budget(16, 5))
    think = 0 if "off" in meant or "none" in meant else min(caps, default=None)
    if think is None and not meant & {-1, "max"}:
        think = level.think
    found = planned(body, BOTH)
    assert (found.budget, found.body.keys() - {TEMPLATE}) == (Budget(think, level.solution), set())


def test_what_our_own_client_sends_is_read_as_it_is_meant() -> None:
    """To a server of a sweep: a chat API is told an effort, one by token ids a budget."""
    for effort in FREE.levels:
        body = chat_body("model", ChatRequest("?", None, Sampling(), effort), 1)
        found = planned(body, FREE)
        assert (found.level, found.budget) == (effort, FREE.levels[effort])
        assert found.body == {name: value for name, value in body.items() if name != "reasoning_effort"}
    for budget in (Budget(7, 9), Budget(None, None), None):
        sent = completion_request("model", Generate((1,), 99, (2,), Sampling(), budget=budget), 99, 1)
        assert planned(sent, BOTH, "completions").budget == (budget or Budget(None, None))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, 512),
        ({"thinking_budget": 32}, 32),
        ({"enable_thinking": False}, 0),
        ({"max_tokens": 106}, 100),
        ({"vllm_xargs": {"think_budget": 600}}, 600),
    ],
)
def test_a_template_with_a_budget_is_told_the_one_that_applies(body: dict[str, Any], told: int) -> None:
    found = planned(body | {TEMPLATE: {"thinking_budget": 512}})
    assert (found.budget.think, found.body[TEMPLATE]) == (told, {"thinking_budget": told})
    assert found.with_thought(9, MARKS).body[TEMPLATE] == {"thinking_budget": min(9, told)}
    unlimited = planned({TEMPLATE: {"thinking_budget": -1}})
    assert (unlimited.budget.think, unlimited.body) == (None, {TEMPLATE: {"thinking_budget": -1}})


def test_a_level_tells_the_template_what_it_was_measured_with() -> None:
    config = ServeConfiguration(Budget(16, 5), LEVELS, template={"low": {"reasoning_effort": "medium"}})
    assert ServeConfiguration.load(config.dump()) == config
    for kind in ("chat", "responses", "messages"):
        told = planned({"reasoning_effort": "low"}, config, kind).body
        assert told == {TEMPLATE: {"reasoning_effort": "medium"}}
    own = {"reasoning_effort": "low", TEMPLATE: {"reasoning_effort": "xhigh", "tone": "terse"}}
    assert planned(own, config).body == {TEMPLATE: own[TEMPLATE]}
    for body in ({"reasoning_effort": "high"}, {}, {"reasoning_effort": "low", "thinking_budget": 3}):
        assert planned(body, config).body == {}
    assert planned({"reasoning_effort": "low"}, config, "completions").body == {"max_tokens": 13}


NO_VLLM = "vllm" not in sys.modules and not __import__("importlib.util").util.find_spec("vllm")


def told_to_harmony(kind: str, body: dict[str, Any]) -> str:
    """The effort in the system message that vLLM itself makes of a request."""
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
    from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.parser.harmony_utils import get_system_message
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    if kind == "responses":
        word = ResponsesRequest(model="m", input="?", **body).reasoning.effort
    elif kind == "messages":
        request = AnthropicMessagesRequest(model="m", messages=HELLO, max_tokens=9, **body)
        word = AnthropicServingMessages.to_chat_completion_request(request).reasoning_effort
    else:
        word = ChatCompletionRequest(model="m", messages=HELLO, **body).reasoning_effort
    (content,) = get_system_message(reasoning_effort=word).content
    return content.reasoning_effort.value.lower()


@pytest.mark.parametrize(
    ("kind", "field"), [("chat", "reasoning_effort"), ("responses", "reasoning"), ("messages", "output_config")]
)
def test_gpt_oss_is_served_at_the_effort_that_it_was_measured_at(kind: Any, field: str) -> None:
    """vLLM renders it itself, and reads the request's own field alone."""
    config = ServeConfiguration(Budget(16, 5), LEVELS, template={"low": {"reasoning_effort": "low"}})
    for body, word in (
        ({}, "high"),
        ({"reasoning_effort": "high"}, "high"),
        ({"reasoning_effort": "low"}, "low"),
        ({"thinking": {"type": "disabled"}}, "high"),
        ({TEMPLATE: {"reasoning_effort": "medium"}}, "medium"),
        ({TEMPLATE: {"reasoning_effort": "max"}}, "high"),
    ):
        found = plan(kind, body, config, MARKS, effort="high").body
        assert found == {field: word if kind == "chat" else {"effort": word}}
        assert NO_VLLM or told_to_harmony(kind, found) == word
    assert plan("messages", {"output_config": FORMAT}, config, MARKS, effort="high").body == {
        "output_config": FORMAT | {"effort": "high"}
    }
    assert plan("completions", {"max_tokens": 5}, config, MARKS, effort="high").body == {"max_tokens": 5}
    # Mistral's has no default, and takes nothing for a template.
    assert plan(kind, {}, config, MARKS, effort="").body == {}
    found = plan(kind, {"reasoning_effort": "low"}, config, MARKS, effort="").body
    assert found == {field: "low" if kind == "chat" else {"effort": "low"}}


@pytest.mark.parametrize("name", fields("harmless"))
def test_what_shows_remembers_or_phrases_a_thought_is_accepted_and_taken_out(name: str) -> None:
    for value in ("summarized", True, False, 3, {"type": "tokens", "total": 9}):
        found = planned(nested(name, value), BOTH)
        assert (found.budget, found.level, found.body) == (Budget(16, 5), "default", {})


def test_a_level_that_was_not_measured_is_the_nearest_the_default_or_refused() -> None:
    """The next higher one, which has at least its accuracy, as levels are chosen."""
    efforts = ("minimal", "low", "medium", "high")
    assert [planned({"reasoning_effort": each}, FREE).level for each in efforts] == ["low", "low", "high", "high"]
    cheap = ServeConfiguration(None, {"minimal": Budget(1, 1)})
    assert planned({"reasoning_effort": "high"}, cheap).level == "minimal"
    with pytest.raises(Refused, match=r"'medium', which was not measured .*expected low, high"):
        planned({"reasoning_effort": "medium"}, NO_LEVEL)
    for levels in ({}, LEVELS):
        found = planned({"reasoning_effort": "medium"}, ServeConfiguration(Budget(16, 5), levels, "default"))
        assert (found.level, found.budget) == ("default", Budget(16, 5))
    with pytest.raises(Refused, match="--unmeasured default"):  # There is no budget that it could get.
        planned({"reasoning_effort": "low"}, ServeConfiguration(None, {}, "default"))
    # Where it is not needed, nothing is refused.
    for config in (NO_LEVEL, DEFAULT):
        assert planned({"reasoning_effort": "medium", "thinking_budget": 3}, config).budget == Budget(3, 5)
        assert planned({TEMPLATE: {"reasoning_effort": "medium"}}, config).level == "default"


def test_other_fields_pass() -> None:
    """Those of OpenAI, of other servers and of extensions, and the client's own words in them."""
    names = """model store modalities service_tier verbosity safety_identifier prompt_cache_key best_of suffix top_a
        transforms provider usage options keep_alive num_predict cache_prompt resolution solution speed betas"""
    unlike = {"messages", "input", "structured_outputs"}  # Their types are checked.
    body = {name: {"a": [1, {"b": "x"}]} for name in names.split()} | {
        "reasoning": None,
        "x" * 3000: 1,
        **{name: [{"effort": 1, "thinking_budget": {"a": 2}}] for name in sorted(OPAQUE - unlike)},
        "structured_outputs": {"json": {"thinking_budget": {"a": 2}}},
        "output_config": FORMAT,
        "messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}], "reasoning": "hm"}],
    }
    assert planned(body, FREE).body == {key: value for key, value in body.items() if value is not None}
    passing = {"thinking": {"type": "adaptive", "new": "word", "newer": True}}
    assert planned(passing, FREE).body == {}


def test_a_request_is_read_in_bounds() -> None:
    with pytest.raises(Refused, match="1000"):
        planned({str(i): i for i in range(1001)})
    assert planned(nested(".".join("a" * 900), {}), FREE).level == "none"


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ({"x": [{}] * 200_000}, "1000 keys"),
        ({"messages": [{"type": "output_config"}] * 20_000}, "1000 times"),
        ({"input": [{"type": "output_config", **{f"{i}k{j}": 1 for j in range(990)}} for i in range(99)]}, "1000 keys"),
        ({"a" * 10**6: {str(i): i for i in range(900)}}, None),
        (nested("thinking" + ".a" * 200, [1] * 200_000), None),
    ],
    ids=["objects", "updates", "keys of updates", "a long key", "depth"],
)
def test_no_request_holds_up_the_others(body: dict[str, Any], refused: str | None) -> None:
    """The loop that reads a request answers all of them; a megabyte like these took a minute or two."""
    start = time.process_time()
    with pytest.raises(Refused, match=refused) if refused else nullcontext():
        planned(body, FREE)
    assert time.process_time() - start < 2


def names_of(model: Any) -> set[str]:
    """The fields of a request's model: pydantic's, or a TypedDict's."""
    if isinstance(model, types.UnionType) or typing.get_origin(model) is typing.Union:
        return set().union(*map(names_of, typing.get_args(model)))
    return set(getattr(model, "model_fields", None) or typing.get_type_hints(model))


def models() -> dict[str, Any]:
    from anthropic.types import beta, message_create_params
    from openai.types.chat import completion_create_params
    from openai.types.responses import response_create_params
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    return {
        "openai chat": completion_create_params.CompletionCreateParams,
        "openai responses": response_create_params.ResponseCreateParams,
        "anthropic": message_create_params.MessageCreateParams,
        "anthropic beta": beta.message_create_params.MessageCreateParams,
        "vLLM chat": ChatCompletionRequest,
        "vLLM completions": CompletionRequest,
        "vLLM responses": ResponsesRequest,
        "vLLM messages": AnthropicMessagesRequest,
    }


@pytest.mark.skipif(NO_VLLM, reason="vLLM")
def test_every_field_of_the_installed_clients_and_servers_is_known_or_sounds_like_nothing() -> None:
    """Fails on the day that one of them adds a budget."""
    for name, model in models().items():
        unknown = {each for each in names_of(model) if _sounds_like_budget(each) and (each,) not in DIALECTS}
        holders = {path[0] for path in DIALECTS}
        assert unknown - holders - OPAQUE == set(), name
