"""Requests as the engine gets them, and responses as the client gets them, without a server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import dataclass
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from fastapi import HTTPException
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.base import drive
from elastic_core.engines.budgets.parameters import validate
from elastic_core.engines.budgets.processor import Progress
from elastic_core.serving.counting import CURRENT, Count, watch
from elastic_core.serving.dialects import Refused
from elastic_core.serving.middleware import SMALL_BYTES, Budgets, _Bodies
from elastic_core.serving.replies import Reply
from elastic_core.serving.requests import VARIABLE, Plan, ServeConfiguration, parse
from elastic_core.serving.requests import plan as plan_with
from elastic_core.serving.tally import Tally
from elastic_core.strategies import STRATEGIES, Sampling
from elastic_core.trajectory import ThinkFinish
from tests.scripted import ScriptedEngine
from tests.served import BASE
from tests.unit.test_serving_law import END, EOS, MARKERS, MARKS, OTHER_EOS, PROMPT, START, WORD, budgets

LEVELS = {"low": Budget(8, 4), "high": Budget(64, 16)}
FREE = ServeConfiguration(None, LEVELS)
UNLIMITED = {"think_budget": "unlimited", "solution_budget": "unlimited", "mine": 1}
DEFAULT = ServeConfiguration(Budget(16, 8), {})


def plan(kind: Any, body: dict[str, Any], config: ServeConfiguration) -> Plan:
    return plan_with(kind, body, config, MARKS)


@pytest.mark.parametrize(
    ("kind", "body", "config", "level", "budget", "left"),
    [
        ("chat", {"model": "m", "reasoning_effort": "low"}, FREE, "low", Budget(8, 4), {"model": "m"}),
        ("chat", {}, DEFAULT, "default", Budget(16, 8), {}),
        ("chat", {"max_tokens": 5}, FREE, "none", Budget(None, None), {"max_tokens": 5}),
        ("completions", {}, DEFAULT, "default", Budget(16, 8), {"max_tokens": 25}),  # Where vLLM would take 16.
        (
            "completions",
            {"vllm_xargs": UNLIMITED},
            DEFAULT,
            "explicit",
            Budget(None, None),
            {"vllm_xargs": {"mine": 1}},
        ),
        *(
            ("chat", {"vllm_xargs": null}, DEFAULT, "default", Budget(16, 8), {})
            for null in (None, {}, {"think_budget": None}, {"think_budget": None, "solution_budget": None})
        ),
    ],
)
def test_a_request_has_the_budget_that_it_names_or_the_default_or_none(
    kind: Any, body: dict[str, Any], config: ServeConfiguration, level: str, budget: Budget, left: dict[str, Any]
) -> None:
    given = copy(body)
    planned = plan(kind, body, config)
    assert (planned.level, planned.budget) == (level, budget)
    assert {key: value for key, value in planned.body.items() if value is not None and value != {}} == left
    assert body == given, "the client's request is not changed"


@pytest.mark.parametrize(
    ("kind", "body", "budget", "room"),
    [
        ("chat", {}, "16+8", 25),
        ("chat", {"max_tokens": "500"}, "16+8", 25),
        ("chat", {"max_tokens": 20.0}, "11+8", 20),
        ("chat", {"max_tokens": 7, "max_completion_tokens": 20}, "11+8", 20),
        ("completions", {"max_tokens": 20}, "11+8", 20),
        ("responses", {"max_output_tokens": 20}, "11+8", 20),
        ("messages", {"max_tokens": 20}, "11+8", 20),
        ("chat", {"max_tokens": 5}, "0+8", 5),
        ("chat", {"max_tokens": 20, "vllm_xargs": {"think_budget": "unlimited"}}, "11+8", 20),
        ("chat", {"max_tokens": 20, "vllm_xargs": {"solution_budget": "unlimited"}}, "16+unlimited", 18),
    ],
)
def test_what_a_client_has_room_for_leaves_the_solution_its_tokens(
    kind: Any, body: dict[str, Any], budget: str, room: int
) -> None:
    """The thought gets what is left of them; a solution without a limit says nothing of how much it needs."""
    planned = plan(kind, body, DEFAULT)
    assert (str(planned.budget), planned.room) == (budget, room)


@pytest.mark.parametrize(
    ("kind", "body", "told"),
    [
        ("chat", {"max_tokens": 32000}, {"max_tokens": 26}),
        ("chat", {"max_tokens": 9, "max_completion_tokens": 32000}, {"max_tokens": 9, "max_completion_tokens": 26}),
        ("completions", {"max_tokens": 32000}, {"max_tokens": 26}),
        ("responses", {"max_output_tokens": 32000}, {"max_output_tokens": 26}),
        ("messages", {"max_tokens": 32000}, {"max_tokens": 26}),
        ("messages", {"max_tokens": 20}, {"max_tokens": 20}),
        # What may fill the context is the client's to limit.
        ("messages", {"max_tokens": 32000, "vllm_xargs": {"solution_budget": "unlimited"}}, {"max_tokens": 32000}),
    ],
)
def test_more_than_a_budget_can_take_needs_no_room_in_the_context(kind: Any, body: Any, told: dict[str, int]) -> None:
    """Agents ask for 32,000 tokens, and vLLM refuses what does not fit beside the prompt."""
    planned = plan(kind, body, DEFAULT)
    assert {key: value for key, value in planned.body.items() if key.startswith("max_")} == told


@pytest.mark.parametrize(
    ("kind", "body", "config", "sentence"),
    [
        ("chat", {"vllm_xargs": {"think_budget": -1}}, FREE, "think_budget is -1"),
        ("chat", {"vllm_xargs": {"solution_budget": 0}}, FREE, "from 1 to"),
        ("chat", {"vllm_xargs": {"think_budget": 2.0**64}}, FREE, "from 0 to"),
        ("chat", {"vllm_xargs": "abc"}, FREE, "vllm_xargs is 'abc'"),
        ("chat", {"max_tokens": 20.5}, FREE, "max_tokens is 20.5"),
        ("chat", {"max_completion_tokens": 2.0**64}, FREE, "max_completion_tokens"),
        ("chat", {"include_reasoning": "maybe"}, FREE, "include_reasoning is 'maybe'"),
        ("completions", {"vllm_xargs": {"think_budget": 3}}, FREE, r"max_tokens .*3\+unlimited"),
        ("chat", {"use_beam_search": "on"}, DEFAULT, r"use_beam_search .*16\+8"),
        ("responses", {"background": True}, FREE, "background"),
    ],
)
def test_a_budget_that_cannot_be_had_is_refused(
    kind: Any, body: dict[str, Any], config: ServeConfiguration, sentence: str
) -> None:
    with pytest.raises(Refused, match=sentence):
        plan(kind, body, config)


@pytest.mark.parametrize(
    ("request_body", "sentence"),
    [
        (b'{"max_tokens": 900, "z": NaN}', "line 1, column 26"), (b'{"z": -Infinity}', "JSON"),
        (b'{"user": "\\ud800"}', "surrogate"), (b"\xef\xbb\xbf{}", "byte order mark"),
        ("{}".encode("utf-16"), "UTF-8"), (b"", "empty"), (b'{"z": ' + 2000 * b"[" + 2000 * b"]" + b"}", "depth"),
        (b"[1]", "list"), (b"null", "null"),
    ],
)  # fmt: skip
def test_what_json_does_not_know_is_refused(request_body: bytes, sentence: str) -> None:
    """vLLM's parser takes most of it."""
    with pytest.raises(Refused, match=sentence):
        parse(request_body)
    assert plan("chat", parse(b'{"z": ' + 250 * b"[" + 250 * b"]" + b"}"), FREE).dump()
    with pytest.raises(Refused, match=" 250 "):
        plan("chat", parse(b'{"z": ' + 300 * b"[" + 300 * b"]" + b"}"), FREE).dump()


def lowered(body: dict[str, Any], left: int | None, kind: Any = "chat", **options: Any) -> Plan:
    """Where the load leaves so much for a thought."""
    planned = plan_with(kind, body, FREE, MARKS, **options)
    return planned.with_thought(left, MARKS) if planned.may_be_lowered else planned


@pytest.mark.parametrize(
    ("body", "left", "budget"),
    [
        ({"reasoning_effort": "high"}, None, "64+16"),
        ({"reasoning_effort": "high"}, 10, "10+16"),
        ({"reasoning_effort": "low"}, 10, "8+4"),
        ({}, 10, "10+unlimited"),
        ({"vllm_xargs": {"think_budget": 300}}, 10, "10+unlimited"),
        ({"vllm_xargs": {"think_budget": 0, "solution_budget": 3}}, 10, "0+3"),
        ({"reasoning_effort": "high", "elastic": {"fixed": True}}, 10, "64+16"),
        ({"reasoning_effort": "high", "elastic": {"fixed": False}}, 10, "10+16"),
        ({"elastic": {"fixed": True}}, 10, "unlimited"),
        # With a budget these would be refused; a load refuses no request.
        ({"ignore_eos": True}, 10, "unlimited"),
        ({"min_tokens": 5}, 10, "unlimited"),
        ({"n": "2", "response_format": {"type": "json_object"}}, 10, "unlimited"),
    ],
)
def test_load_takes_of_a_thought_and_never_adds_to_it(body: dict[str, Any], left: int | None, budget: str) -> None:
    planned = lowered(body, left)
    asked = plan("chat", {key: value for key, value in body.items() if key != "elastic"}, FREE).budget
    assert str(planned.budget) == budget and planned.asked == asked
    assert planned.lowered == (planned.budget != asked) and "elastic" not in planned.body
    kept = lowered({"reasoning_effort": "high"}, 10, fixed=True)
    assert (kept.budget, kept.fixed) == (LEVELS["high"], True), "a header keeps a budget as it is"


def test_a_client_without_a_budget_may_fill_the_context_under_load_too() -> None:
    assert lowered({}, 10).room == 0
    assert lowered({"max_tokens": 50}, 10, "completions").room == 0
    assert lowered({}, 10, "completions").budget == Budget(None, None), "vLLM takes 16 tokens"
    assert not plan("chat", {"use_beam_search": True}, FREE).counted, "beams that are dropped cannot be counted"


@pytest.mark.parametrize("given", [{"fix": True}, True, {"fixed": "perhaps"}])
def test_what_is_misspelt_for_the_load_is_refused(given: Any) -> None:
    with pytest.raises(Refused, match="elastic"):
        lowered({"elastic": given}, None)


def test_what_a_server_offers_survives_its_environment() -> None:
    for config in (FREE, DEFAULT, ServeConfiguration(Budget(None, 4), {}, "refuse", True)):
        assert ServeConfiguration.load(config.dump()) == config


def engine_output(stream: list[int], budget: Budget) -> list[int]:
    """Tokens that an engine with the processor writes, a cut's own included."""
    drawn, progress, output = iter(stream), Progress(budget, MARKS), []
    while len(output) < 60:
        forced, _, _ = progress.update(output)
        output.append(next(drawn, WORD) if forced is None else forced)
        if output[-1] in MARKS.end_of_text:
            break
    return output


@given(st.lists(st.sampled_from([START, END, EOS, WORD, WORD]), max_size=40), budgets)
def test_tokens_are_counted_as_separate_counts_them(stream: list[int], budget: Budget) -> None:
    drawn = iter(stream)
    engine = ScriptedEngine(lambda prefix, seed: next(drawn, WORD), context=60 + len(PROMPT))
    rollout = STRATEGIES["separate"].decode(PROMPT, budget, MARKERS, Sampling())
    expected = asyncio.run(drive(rollout, {"policy": engine}, seed=0))
    tally = Tally(budget, MARKS, None)
    output = engine_output(stream, budget)
    assert tally.add(output) == tally.length
    tally.finish = "stop" if output[-1] in MARKS.end_of_text else "length"
    if expected.think_finish is ThinkFinish.END_OF_TEXT:
        assert (tally.thought, tally.thinking) == ("end_of_text", expected.think_tokens + 1)
    elif tally.solution_start is not None:
        assert tally.thought == expected.think_finish
        found = (tally.thinking, tally.solution, tally.forced)
        assert found == (expected.think_tokens, expected.solution_tokens, expected.forced_tokens)
        if budget.solution is not None:
            assert tally.is_cut == (expected.solution_finish == "length" and tally.solution == budget.solution)


class Kind(Enum):
    """vLLM's kinds of output."""

    DELTA = auto()
    FINAL_ONLY = auto()


@dataclass
class SamplingParams:
    """What is read and written of vLLM's."""

    output_kind: Kind
    n: int = 1
    structured_outputs: object = None
    extra_args: dict[str, Any] | None = None
    stop: tuple[int, ...] = ()
    max_tokens: int | None = None
    stream_interval: int | None = None

    def clone(self) -> SamplingParams:
        return copy(self)

    def update_from_generation_config(self, config: dict[str, Any]) -> None:
        self.stop = tuple(config["eos_token_id"])


class Engine:
    """What is called of vLLM's engine: it yields given tokens, `size` at a time."""

    def __init__(self, tokens: list[int], size: int, finish: str | None, index: int = 0) -> None:
        self.model_config = SimpleNamespace(
            model=str(BASE), tokenizer=str(BASE), logits_processors=["elastic_core.engines.budgets.v1:SeparateBudgets"]
        )
        config = SimpleNamespace(reasoning_parser="qwen3", enable_in_reasoning=False)
        self.vllm_config = SimpleNamespace(structured_outputs_config=config)
        self.asked: list[SamplingParams] = []
        self.is_closed = False
        self._given = tokens, size, finish, index

    async def generate(self, prompt: Any, sampling_params: Any, request_id: str, **options: Any) -> AsyncIterator[Any]:
        self.asked.append(sampling_params)
        self.options = options
        tokens, size, finish, index = self._given
        kind = sampling_params.output_kind
        ends = [len(tokens)] if kind is Kind.FINAL_ONLY else [*range(size, len(tokens), size), len(tokens)]
        start, given = 0, prompt.get("prompt_token_ids", list(PROMPT))
        try:
            for end in ends:
                ids = tokens[start:end]
                start = end
                completion = SimpleNamespace(
                    index=index,
                    token_ids=ids,
                    text=TOKENIZER.decode(ids, True),
                    logprobs=list(ids),
                    stop_reason=3,
                    finish_reason=None,
                )
                if end == len(tokens):
                    completion.finish_reason = finish
                finished = completion.finish_reason is not None
                yield SimpleNamespace(
                    outputs=[completion], prompt_token_ids=given, finished=finished, prompt_logprobs=None
                )
        finally:
            self.is_closed = True

    async def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)


class _Tokenizer:
    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return "".join(map(str, ids))


TOKENIZER = _Tokenizer()


def counted(
    engine: Engine, budget: Budget, kind: Kind, *, grammar: bool = False, prompt: Any = PROMPT, **options: Any
) -> tuple[Count, list[Any]]:
    """What comes out of an engine that is watched, for a request under a budget; `options` are of its plan."""
    count = Count(
        MARKERS,
        TOKENIZER,
        Plan(**{"kind": "chat", "body": {}, "budget": budget, "level": "explicit", "room": 9} | options),
    )
    watch(engine)

    async def run() -> list[Any]:
        CURRENT.set(count)
        sampling = SamplingParams(kind, structured_outputs=grammar or None)
        given: Any = {"prompt_token_ids": list(prompt)}
        return [output async for output in engine.generate(given, sampling, "1", reasoning_ended=True)]

    return count, asyncio.run(run())


@given(st.lists(st.sampled_from([END, WORD, WORD, WORD]), max_size=20), budgets, st.integers(1, 5))
def test_a_stream_says_what_the_whole_response_says(stream: list[int], budget: Budget, size: int) -> None:
    """In chunks of any size: the same counts, and nothing of the token that cut the solution."""
    output = engine_output(stream, budget)
    finish = "stop" if output[-1] in MARKS.end_of_text else "length"
    told = []
    for kind in Kind:
        count, seen = counted(Engine(output, size, finish), budget, kind)
        (tally,) = count.tallies.values()
        completions = [each.outputs[0] for each in seen]
        ids = [i for each in completions for i in each.token_ids]
        assert list(ids) == output[: tally.length]
        assert len(completions[-1].logprobs) == len(completions[-1].token_ids)
        assert (completions[-1].finish_reason, completions[-1].stop_reason) == (
            ("length", None) if tally.cut else (finish, 3)
        )
        told.append(count.told())
    assert told[0] == told[1]
    assert told[0]["budget"] == str(budget)


@given(st.lists(st.sampled_from([END, WORD, WORD]), min_size=4, max_size=20), st.integers(1, 4), st.integers(1, 5))
def test_under_a_grammar_the_response_ends_after_s_tokens(stream: list[int], solution: int, size: int) -> None:
    """Which forces nothing, so the engine goes on."""
    budget = Budget(4, solution)
    thought = [*stream[:2], END]
    output = [*thought, *[WORD] * 30]
    expected = output[: output.index(END) + 1 + solution]
    for kind in Kind:
        engine = Engine(output, size, "stop")
        count, seen = counted(engine, budget, kind, grammar=True)
        completions = [each.outputs[0] for each in seen]
        ids = [i for each in completions for i in each.token_ids]
        assert list(ids) == expected
        assert "".join(each.text for each in completions) == TOKENIZER.decode(expected, True)
        assert completions[-1].finish_reason == "length" and seen[-1].finished and engine.is_closed
        assert len(seen) == 1 or kind is not Kind.FINAL_ONLY
        (told,) = count.tallies.values()
        assert (told.solution, told.is_cut) == (solution, True)
        assert engine.asked[0].extra_args == {"think_budget": 4, "elastic_room": 9, "elastic_closed": False}


@given(st.lists(st.sampled_from([END, WORD, WORD, WORD]), max_size=60), budgets, st.integers(1, 7))
def test_an_engine_that_goes_on_beyond_a_budget_is_stopped_and_what_it_drew_is_counted(
    stream: list[int], budget: Budget, size: int
) -> None:
    """Whatever a request brought it to: nothing that was to be forced is."""
    drawn = [*stream, *[WORD] * 30]
    shown = []
    for kind in Kind:
        engine = Engine(drawn, size, "length")
        count, seen = counted(engine, budget, kind)
        (tally,) = count.tallies.values()
        completions = [each.outputs[0] for each in seen]
        ids = [i for each in completions for i in each.token_ids]
        shown.append(list(ids))
        assert tally.length == len(ids) and list(ids) == drawn[: len(ids)]
        assert tally.thinking <= (len(drawn) if budget.think is None else budget.think)
        assert tally.solution <= (len(drawn) if budget.solution is None else budget.solution)
        if tally.excess:
            assert (tally.finish, completions[-1].finish_reason, seen[-1].finished) == ("length", "length", True)
            assert "".join(each.text for each in completions) == TOKENIZER.decode(ids, True)
            assert engine.is_closed and count.told()["excess_tokens"] == tally.excess
            asked = engine.asked[0]
            if budget.total is None:  # A response that is not streamed is looked at meanwhile.
                assert asked.output_kind is not Kind.FINAL_ONLY and asked.stream_interval <= 64
            else:  # The engine itself ends it.
                assert asked.max_tokens == budget.total + MARKS.max_forced + 1
        else:
            assert tally.length + tally.cut == len(drawn)
    assert shown[0] == shown[1]


def drain(engine: Engine, count: Count, sampling: SamplingParams) -> None:
    """Read what comes out of an engine that is watched."""
    watch(engine)

    async def run() -> None:
        CURRENT.set(count)
        async for _ in engine.generate({}, sampling, "1"):
            pass

    asyncio.run(run())


def test_a_client_cannot_have_a_budget_looked_at_more_rarely() -> None:
    engine, count = (
        Engine([WORD], 1, "length"),
        Count(MARKERS, TOKENIZER, Plan("chat", {}, Budget(4, None), "explicit")),
    )
    drain(engine, count, SamplingParams(Kind.DELTA, stream_interval=10**9))
    assert engine.asked[0].stream_interval == 64


FLOATS = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")


def vllm_parameters(**given: Any) -> Any:
    fields = dict.fromkeys(FLOATS, 1.0) | {"n": 1, "logit_bias": None, "extra_args": None} | given
    return SimpleNamespace(__struct_fields__=tuple(fields), **fields)


@pytest.mark.parametrize("value", [1e-320, 1e-46, -1e-40, 1e39, 1e300, float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("name", [*FLOATS, "logit_bias", "one_of_a_later_vllm"])
def test_a_number_that_float32_does_not_hold_is_refused_with_a_budget_and_without(name: str, value: float) -> None:
    """vLLM applies penalties after a token was forced: minus infinity times 0 is NaN."""
    for extra_args in (None, {"think_budget": 3}):
        given: dict[str, Any] = {name: {5: value} if name == "logit_bias" else value, "extra_args": extra_args}
        with pytest.raises(ValueError, match=re.escape(f" is {value!r}; expected 0, or a size from 1.17")):
            validate(vllm_parameters(**given))


@pytest.mark.parametrize("value", [0, 0.0, -0.0, 1, 0.7, -2.0, 1.2e-38, 3.4e38])
def test_a_number_that_float32_holds_is_taken(value: float) -> None:
    for name in FLOATS:
        validate(vllm_parameters(**{name: value}, logit_bias={5: value}))


@pytest.mark.parametrize("key", ["json", "structural_tag"])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [('{"items": ' * 300 + "{}" + "}" * 300, "more than 250 levels"), ("[" * 100_000, "not JSON"), ("{", "not JSON")],
)
def test_a_grammar_in_a_text_is_no_deeper_than_one_in_the_request(key: str, text: str, sentence: str) -> None:
    with pytest.raises(Refused, match=f"structured_outputs.{key} is {'nested ' if 'levels' in sentence else ''}"):
        plan("chat", {"structured_outputs": {key: text}}, FREE)
    assert plan("chat", {"structured_outputs": {key: '{"type": "string"}'}}, FREE)


def test_the_engine_is_told_the_budget_and_every_end_of_text() -> None:
    engine = Engine([WORD], 1, "length")
    counted(engine, Budget(4, None), Kind.DELTA)
    (asked,) = engine.asked
    assert (asked.extra_args, asked.stop) == (
        {"think_budget": 4, "elastic_room": 9, "elastic_closed": False},
        (EOS, OTHER_EOS),
    )
    free = Engine([WORD], 1, "length")
    counted(free, Budget(None, None), Kind.DELTA)
    assert (free.asked[0].extra_args, free.asked[0].stop) == (None, ())


@pytest.mark.parametrize(
    ("turn", "closed"),
    [((), True), ((WORD,), True), ((START, WORD), False), ((START, WORD, END, WORD), True), ((EOS, WORD), True)],
)
def test_an_answer_that_the_client_began_is_solution_unless_its_thought_is_open(
    turn: tuple[int, ...], closed: bool
) -> None:
    prompt = (*PROMPT, EOS, *turn)
    engine = Engine([WORD] * 3, 1, "length")
    counted(engine, Budget(4, 5), Kind.DELTA, prompt=prompt, continues=True)
    assert engine.asked[0].extra_args is not None and engine.asked[0].extra_args["elastic_closed"] is closed


@pytest.mark.parametrize("budget", [Budget(4, 5), Budget(4, None), Budget(None, None)])
def test_a_grammar_begins_after_the_thought_also_where_that_is_hidden(budget: Budget) -> None:
    """vLLM 0.29 says that a thought which is hidden has ended before the response begins."""
    for body, ended in (({"include_reasoning": False}, False), ({}, budget.solution is None)):
        engine = Engine([WORD] * 3, 1, "length")
        counted(engine, budget, Kind.DELTA, grammar=True, body=body)
        assert engine.options["reasoning_ended"] is ended


@pytest.mark.parametrize(
    ("kind", "body", "continues"),
    [
        ("chat", {"continue_final_message": "yes"}, True),
        ("chat", {"messages": [{"role": "assistant", "content": "x"}]}, False),
        ("completions", {"continue_final_message": True, "max_tokens": 9}, True),
        ("completions", {"max_tokens": 9}, False),
        ("responses", {"input": [{"role": "assistant", "status": "incomplete", "content": []}]}, True),
        ("responses", {"input": [{"type": "reasoning", "status": "incomplete", "content": []}]}, False),
        ("responses", {"input": [{"role": "user", "content": "x"}]}, False),
        ("responses", {"input": "x"}, False),
        ("messages", {"messages": [{"role": "assistant", "content": "x"}]}, False),
    ],
)
def test_a_client_may_have_its_answer_continued(kind: Any, body: dict[str, Any], continues: bool) -> None:
    found = plan(kind, body, DEFAULT)
    assert found.continues is continues
    assert ("continue_final_message" in found.body) == (continues and kind == "chat")


@pytest.mark.parametrize("key", ["message", "delta"])
def test_what_goes_on_with_an_answer_is_content(key: str) -> None:
    """vLLM's parser takes what has no marks for a thought."""
    prompt, finish = (*PROMPT, EOS), "stop"
    count, _ = counted(Engine([WORD] * 3, 1, finish), Budget(4, 5), Kind.DELTA, prompt=prompt, continues=True)
    reply = Reply("chat", count)
    document = {"choices": [{"index": 0, key: {"reasoning": " is 40", "content": None}, "finish_reason": None}]}
    assert reply.concerns(orjson.dumps(document))
    reply.edit(document)
    assert document["choices"][0][key] == {"reasoning": None, "content": " is 40"}
    assert plan("chat", {"continue_final_message": True, "include_reasoning": False}, FREE).body == {
        "continue_final_message": True,
        "add_generation_prompt": False,
    }


def test_choices_of_several_prompts_are_numbered_as_openai_numbers_them() -> None:
    count = Count(MARKERS, TOKENIZER, Plan("completions", {}, Budget(None, None), "none"))
    for index in (0, 1):
        drain(Engine([WORD] * (index + 1), 1, "length", index), count, SamplingParams(Kind.FINAL_ONLY, n=2))
    assert {index: tally.length for index, tally in count.tallies.items()} == {0: 1, 3: 2}


def whole_count(kind: Any = "chat") -> Count:
    """Of a response of two tokens of thought, a forced end, and three of a solution that was cut."""
    count = Count(MARKERS, TOKENIZER, Plan(kind, {}, Budget(2, 3), "low"))
    tally = count.tallies[0] = Tally(Budget(2, 3), MARKS, None)
    tally.add([WORD, WORD, END, WORD, WORD, WORD])
    tally.finish = "length"
    return count


TOLD = {"budget": "2+3", "level": "low", "thought": "forced"} | {
    "thinking_tokens": 2, "solution_tokens": 3, "forced_tokens": 1,
}  # fmt: skip


def test_a_chat_is_told_of_its_budget() -> None:
    choice = {"index": 0, "message": {"reasoning": "hm"}, "finish_reason": "tool_calls"}
    document = {"choices": [choice], "usage": {"prompt_tokens": 4, "completion_tokens": 7, "total_tokens": 11}}
    Reply("chat", whole_count(), reasoning_content=True).edit(document)
    message = {"reasoning": "hm", "reasoning_content": "hm"}
    # A call that was cut is not a whole one.
    assert document["choices"] == [{"index": 0, "message": message, "finish_reason": "length", "elastic": TOLD}]
    details = {"completion_tokens_details": {"reasoning_tokens": 2, "forced_tokens": 1}}
    assert document["usage"] == {"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9} | details


def test_a_response_is_told_of_its_budget_whole_and_in_the_streams_last_event() -> None:
    usage = {"input_tokens": 4, "output_tokens": 7, "output_tokens_details": {"tool_output_tokens": 0}}
    details = {"tool_output_tokens": 0, "reasoning_tokens": 2, "forced_tokens": 1}
    expected = {"input_tokens": 4, "output_tokens": 5, "total_tokens": 9, "output_tokens_details": details}
    reply = Reply("responses", whole_count("responses"))
    document: dict[str, Any] = {"status": "incomplete", "usage": dict(usage)}
    event = {"type": "response.completed", "response": {"status": "incomplete", "usage": dict(usage)}}
    for edited in (document, event):
        reply.edit(edited)
    assert document == event["response"] == {"status": "incomplete", "usage": expected, "elastic": TOLD}
    assert reply.concerns(orjson.dumps(event)) and not reply.concerns(orjson.dumps({"type": "response.created"}))


def test_a_message_is_told_of_its_budget_whole_and_in_the_streams_last_event() -> None:
    reply, usage = Reply("messages", whole_count("messages")), {"output_tokens": 7}
    document: dict[str, Any] = {"type": "message", "stop_reason": "tool_use", "usage": dict(usage)}
    event: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": dict(usage)}
    for edited in (document, event):
        reply.edit(edited)
    assert document == {"type": "message", "stop_reason": "max_tokens", "usage": {"output_tokens": 5}, "elastic": TOLD}
    assert event["delta"] == {"stop_reason": "max_tokens"} and event["elastic"] == TOLD
    assert reply.concerns(orjson.dumps(event)) and not reply.concerns(orjson.dumps({"type": "message_start"}))


def test_what_a_model_writes_is_no_event_of_ours() -> None:
    """Its quotes are escaped."""
    text = '"finish_reason":"stop" "usage":{} "type":"message_delta" "type":"response.completed" "error"'
    event = b"data: " + orjson.dumps({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})
    for kind in ("chat", "completions", "responses", "messages"):
        assert not Reply(kind, whole_count(kind)).concerns(event)  # type: ignore[arg-type]


class App:
    """An ASGI application that answers with given messages, and remembers what it was asked."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages, self.asked = messages, None
        self.state = SimpleNamespace(engine_client=Engine([], 1, None))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked = orjson.loads((await receive())["body"])
        for message in self.messages:
            await send(message)


def call(
    app: App, path: str, body: Any, monkeypatch: pytest.MonkeyPatch, budgets: Budgets | None = None
) -> tuple[int, bytes, list[bytes]]:
    """Status, body, and the body's pieces."""
    monkeypatch.setenv(VARIABLE, DEFAULT.dump())
    sent: list[dict[str, Any]] = []
    encoded = orjson.dumps(body)
    pieces = [encoded[:3], encoded[3:]]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-length", str(len(encoded)).encode())]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "app": app}
    asyncio.run((budgets or Budgets(app))(scope, receive, send))
    bodies = [message["body"] for message in sent[1:]]
    return sent[0]["status"], b"".join(bodies), bodies


def start(kind: bytes, status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]}


def body(text: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text, "more_body": more}


def test_events_that_are_torn_apart_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    event = b'data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
    app = App(start(b"text/event-stream"), *(body(event[i : i + 1], True) for i in range(len(event))), body(b""))
    status, text, _ = call(app, "/v1/completions", {"prompt": "x"}, monkeypatch)
    assert (status, text) == (200, event)
    assert app.asked == {"prompt": "x", "max_tokens": 25}


def test_a_stream_that_begins_with_an_error_is_a_refusal_and_errors_pass_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = b'{"error":{"message":"too long","code":400}}'
    app = App(start(b"text/event-stream"), body(b"data: " + error + b"\n\n", True), body(b"data: [DONE]\n\n"))
    assert call(app, "/v1/completions", {"stream": True}, monkeypatch)[:2] == (400, error)
    app = App(start(b"application/json", 401), body(b"{}"))
    assert call(app, "/v1/chat/completions", {}, monkeypatch)[:2] == (401, b"{}")


async def sent(bodies: _Bodies, *pieces: bytes, whole: bool = False) -> AsyncExitStack:
    """A connection that is open until the stack is closed."""
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages[-1]["more_body"] = not whole

    async def receive() -> Any:
        return messages.pop(0) if messages else await asyncio.Event().wait()

    stack = AsyncExitStack()
    try:
        bounded = stack.enter_context(bodies.bounded(receive))
        for _ in pieces:
            await bounded()
    except HTTPException:
        await stack.aclose()
        raise
    return stack


def test_bodies_that_never_end_hold_no_more_than_there_is_for_all_and_keep_no_usual_request_out() -> None:
    async def run() -> None:
        bodies, piece = _Bodies(), bytes(31 * 2**20)
        held = [await sent(bodies, piece) for _ in range(8)]
        with pytest.raises(HTTPException) as refusal:
            await sent(bodies, piece)
        assert refusal.value.status_code == 503
        for _ in range(100):
            held.append(await sent(bodies, bytes(SMALL_BYTES)))
        await held[0].aclose()
        await sent(bodies, piece, whole=True), await sent(bodies, piece, piece[:99], whole=True)
        held.append(await sent(bodies, piece))
        await held[1].aclose()
        with pytest.raises(HTTPException) as refusal:
            await sent(bodies, piece, piece, whole=True)
        assert refusal.value.status_code == 413
        for each in held:
            await each.aclose()
        assert bodies._waiting == 0

    asyncio.run(run())


def test_a_body_that_stops_halfway_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic_core.serving.middleware._SLOWEST", 0.01)

    async def run() -> None:
        with _Bodies().bounded(asyncio.Event().wait) as bounded:  # type: ignore[arg-type]
            with pytest.raises(HTTPException) as refusal:
                await bounded()
            assert refusal.value.status_code == 408

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/v1/responses/1/cancel", "/inference/v1/generate", "/invocations"])
def test_no_path_generates_without_a_budget(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App()
    assert call(app, path, {}, monkeypatch)[0] == 404 and app.asked is None
