"""Closings and efforts: how a cut is worded, what the chat template is told, and that budgets stay exact."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.base import closed_at, drive
from elastic_core.engines.budgets.parameters import closing_arguments, worded
from elastic_core.engines.budgets.processor import Progress, force
from elastic_core.engines.memo import ContinuationMemo
from elastic_core.miniature.grammar import EFFORT_TEMPLATE, build_tokenizer
from elastic_core.models.families import Thought
from elastic_core.models.marks import Marks, Soft
from elastic_core.models.special_tokens import resolve_markers
from elastic_core.serving.requests import ServeConfiguration, plan
from elastic_core.serving.tally import Tally
from elastic_core.strategies import STRATEGIES, Completion, Generate, Sampling
from elastic_core.strategies.separate import separate_native
from elastic_core.strategies.variants import Closing, expanded, split_variant, variant_name
from elastic_core.sweep.sound import broken_rules
from elastic_core.trajectory import ThinkFinish, Trajectory
from tests.marks import markers, single
from tests.scripted import ScriptedEngine

END, EOT, PROMPT = 7, 0, (9, 9)
MARKERS = markers(single(8, END, EOT))
SOFT = st.sampled_from(["soft", "soft-1-top1", "soft-top4"])
TOKENIZER = build_tokenizer()
MINIATURE = resolve_markers(TOKENIZER)


def hashed(prefix: tuple[int, ...], seed: int, vocabulary: int = 8) -> int:
    return hash((prefix, seed)) % vocabulary


class Ranked(ScriptedEngine):
    """A scripted engine that ranks think-end by the prefix alone, as a model does."""

    async def generate(self, request: Generate, seed: int) -> Completion:
        if not request.near:
            return await super().generate(request, seed)
        self.requests.append(request)
        rank = self.rank(request.stop[0])
        return closed_at(request, [{request.stop[0]: rank(request.prefix[:at])} for at in range(len(request.prefix))])

    @staticmethod
    def rank(token: int) -> Any:
        return lambda prefix: 1 + hash(("rank", prefix, token)) % 5


def respond(strategy: str, budget: Budget, seed: int, engine: Any = None, marks: Any = None) -> Trajectory:
    engine = engine or Ranked(lambda prefix, number: hashed(prefix, seed))
    soft = marks or replace(MARKERS, soft=Closing.parse(split_variant(strategy)[1]).soft)
    return asyncio.run(drive(STRATEGIES[strategy].decode(PROMPT, budget, soft, Sampling()), {"policy": engine}, seed))


def test_a_name_says_strategy_closing_and_effort() -> None:
    for parts in (
        ("separate", "soft-16-top2", None),
        ("separate", "Time is up: now.", "low"),
        ("vanilla", "bare", "max"),
    ):
        assert split_variant(variant_name(*parts)) == parts
    assert split_variant("effort_low") == ("effort_low", "bare", None)
    assert expanded(["separate", "vanilla"], ["bare", "soft"], ["low"], "separate") == [
        "separate", "vanilla", "separate_closing-soft",
        "separate_effort-low", "vanilla_effort-low", "separate_closing-soft_effort-low",
    ]  # fmt: skip
    assert STRATEGIES["unconstrained_effort-low"].effort == "low"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("separate_closing-sof", 'no closing "sof", did you mean "soft"?'),
        ("separate_closing-soft-0", "has no window"),
        ("vanilla_closing-soft", "closings are of the strategy separate alone"),
    ],
)
def test_a_closing_that_is_none_is_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        STRATEGIES[name]


def test_a_window_larger_than_t_and_a_sentence_of_other_tokens_are_refused() -> None:
    soft = Closing.parse("soft-32")
    assert soft.expected_budget(Budget(16, 8)) == "a thinking budget of its window, 32 tokens, or more"
    assert soft.expected_budget(Budget(32, 8)) is soft.expected_budget(Budget(0, 8)) is None
    with pytest.raises(ValueError, match=r"becomes .* in the model's tokens; expected the same"):
        Closing.parse("Zeit für Antworten").of(TOKENIZER, MINIATURE)


@given(st.integers(0, 500), st.integers(1, 40), st.integers(1, 12), SOFT)
def test_a_soft_closing_is_at_the_first_place_of_its_window_and_never_after_t(
    seed: int, think: int, solution: int, closing: str
) -> None:
    """The thought is that of `separate`, as far as it goes."""
    engine = Ranked(lambda prefix, number: hashed(prefix, seed))
    budget, name = Budget(think, solution), f"separate_closing-{closing}"
    soft = Closing.parse(closing).soft
    assert soft is not None
    memo = ContinuationMemo(engine)
    plain, cut = respond("separate", budget, seed, memo, MARKERS), respond(name, budget, seed, memo)
    begin, length = soft.begin(think), cut.think_tokens
    assert length <= think and cut.solution_tokens <= solution
    own = plain.response_ids[: plain.think_tokens]
    assert cut.response_ids[:length] == own[:length]
    places = range(begin, min(think, plain.think_tokens + (plain.think_finish is ThinkFinish.END_OF_TEXT)))
    rank = engine.rank(END)
    at = next((at for at in places if rank(PROMPT + own[:at]) <= soft.most), None)
    assert (cut.think_finish is ThinkFinish.FORCED and length == at) if at is not None else cut == plain


@given(st.integers(0, 500), st.integers(1, 30), st.integers(1, 8), SOFT)
def test_one_pass_draws_what_two_requests_draw(seed: int, think: int, solution: int, closing: str) -> None:
    """The processor writes think-end where two requests find its place; one pass counts it as written by us even where
    the model, seldom, drew it at a lower rank."""
    budget, name = Budget(think, solution), f"separate_closing-{closing}"
    marks = replace(MARKERS, soft=Closing.parse(closing).soft)
    rank = Ranked.rank(END)

    class Keeping:
        async def generate(self, request: Generate, seed: int) -> Completion:
            progress, output = Progress(budget, marks), list[int]()
            while len(output) < (request.max_tokens or 99):
                token, _, near = progress.update(output)
                here = request.prefix + tuple(output)
                if token is None or (near and rank(here) > near):
                    token = hashed(here, seed)
                output.append(token)
                if token in request.stop:
                    break
            stopped = output[-1] in request.stop
            return Completion(tuple(output), "stop" if stopped else "length")  # type: ignore[arg-type]

    drawn = hashed
    two = respond(name, budget, seed, Ranked(lambda prefix, _: drawn(prefix, seed)))
    rollout = separate_native(PROMPT, budget, marks, Sampling())
    one = asyncio.run(drive(rollout, {"policy": Keeping()}, seed))
    if two.think_finish is ThinkFinish.END_OF_TEXT:
        return  # One pass ends there; a second request solves, as without a closing.
    assert one.response_ids == two.response_ids
    if two.think_finish is ThinkFinish.FORCED:
        assert one.forced == two.forced


def test_a_sentence_is_written_before_think_end_and_masked() -> None:
    marks = Closing.parse("answer-now").of(TOKENIZER, MINIATURE)
    start, end = MINIATURE.think_start[0], MINIATURE.close[0]
    engine = ScriptedEngine(lambda prefix, seed: 20 if end not in prefix else MINIATURE.end_of_text[0])
    rollout = STRATEGIES["separate_closing-answer-now"].decode((start,), Budget(4, 8), marks, Sampling())
    found = asyncio.run(drive(rollout, {"policy": engine}, 0))
    written = found.response_ids[4 : found.solution_start]
    assert TOKENIZER.decode(list(written)) == "\n\nTime is up. I answer now.\n</think>"
    assert found.forced_tokens == len(written) == marks.max_forced and found.think_tokens == 4
    assert found.loss_mask() == [1] * 4 + [0] * len(written) + [1]


def test_an_effort_that_the_template_does_not_read_is_refused() -> None:
    efforts = {"low": {"reasoning_effort": "low"}, "high": {"reasoning_effort": "high"}}
    thought = Thought(open="<think>", ends=("</think>",), efforts=efforts)
    reads = build_tokenizer()
    reads.chat_template = EFFORT_TEMPLATE
    found = resolve_markers(reads, own=("mine", thought))
    assert found.template_settings("low") == {"reasoning_effort": "low"} and found.template_settings(None) == {}
    with pytest.raises(ValueError, match='marks of mine: no effort "lo"; expected one of low, high'):
        found.template_settings("lo")
    with pytest.raises(ValueError, match='no effort "low"; its chat template reads none'):
        resolve_markers(build_tokenizer(), own=("mine", thought)).template_settings("low")


def test_rows_of_a_soft_closing_keep_their_window() -> None:
    from tests.tables import frame

    row = {
        "strategy": "separate_closing-soft-4-top2", "think_budget": 16, "solution_budget": 8, "think_tokens": 12,
        "solution_tokens": 8, "forced_tokens": 1, "think_finish": "forced", "model": "m", "benchmark": "b",
        "problem": "1", "sample": 0,
    }  # fmt: skip
    assert not broken_rules(frame([row]), rules={})
    assert broken_rules(frame([row | {"think_tokens": 11}]), rules={}).keys() == {
        "a thought is forced within the window"
    }
    assert Soft(4, 2).begin(16) == 12


def test_a_token_is_forced_where_it_is_among_the_most_probable_and_only_there() -> None:
    torch = pytest.importorskip("torch")
    logits = torch.tensor([[3.0, 2.0, 1.0]] * 4)
    force(logits, [(0, 1, 0), (1, 1, 2), (2, 1, 1)])
    assert logits.argmax(1).tolist() == [1, 1, 0, 0]
    assert logits[2].tolist() == logits[3].tolist() == [3.0, 2.0, 1.0]


def test_a_request_carries_its_closing_to_the_engine() -> None:
    for closing in ("bare", "answer-now", "soft", "soft-16-top2"):
        marks = Marks.of(Closing.parse(closing).of(TOKENIZER, MINIATURE))
        assert worded(Marks.of(MINIATURE), closing_arguments(marks)) == marks
    with pytest.raises(ValueError, match=r"elastic_soft is \[-1, 2\]; expected whole numbers"):
        worded(Marks.of(MINIATURE), {"elastic_soft": [-1, 2]})
    with pytest.raises(ValueError, match=r"elastic_soft is \[1\]; expected two whole numbers, window and rank"):
        worded(Marks.of(MINIATURE), {"elastic_soft": [1]})


def test_a_level_carries_closing_and_effort_to_its_requests() -> None:
    config = ServeConfiguration(None, {"low": Budget(16, 8)}, closings={"low": "soft"}, efforts={"low": "low"})
    assert ServeConfiguration.load(config.dump()) == config
    soft = Closing.parse("soft").of(TOKENIZER, MINIATURE)
    found = plan("chat", {"reasoning_effort": "low"}, config, MINIATURE, worded={"low": soft})
    assert (found.budget, found.level, found.marks) == (Budget(16, 8), "low", soft)
    assert plan("chat", {}, config, MINIATURE, worded={"low": soft}).marks is None


def test_a_level_tells_the_template_what_it_was_measured_with_though_its_budget_is_another() -> None:
    """Seed-OSS' effort is a number of tokens, which the level's t cuts."""
    told = {"thinking_budget": 1024}
    config = ServeConfiguration(None, {"low": Budget(16, 8)}, template={"low": told})
    found = plan("chat", {"reasoning_effort": "low"}, config, MINIATURE)
    assert (found.budget, found.body["chat_template_kwargs"]) == (Budget(16, 8), told)
    assert found.with_thought(4, MINIATURE).body["chat_template_kwargs"] == told


@given(st.integers(0, 300), st.integers(1, 24), st.integers(1, 8), st.integers(1, 5))
def test_tokens_of_a_soft_closing_are_counted_as_the_strategy_counts_them(
    seed: int, think: int, solution: int, step: int
) -> None:
    two = respond("separate_closing-soft", Budget(think, solution), seed)
    if two.think_finish is not ThinkFinish.FORCED:
        return
    tally = Tally(Budget(think, solution), Marks.of(replace(MARKERS, soft=Closing.parse("soft").soft)), None)
    for at in range(0, len(two.response_ids), step):
        tally.add(two.response_ids[at : at + step])
    assert (tally.thinking, tally.forced, tally.solution) == (two.think_tokens, two.forced_tokens, two.solution_tokens)
    assert tally.thought == "forced" and not tally.excess
