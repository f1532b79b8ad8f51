"""A budget that the engine keeps beside our two requests, on a real engine: the same thoughts, and no token over
either phase."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from scipy.stats import chi2_contingency

import elastic_core.miniature
from elastic_core.budget import Budget
from elastic_core.engines.base import RequestFailed, drive
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.vllm import VllmEngine
from elastic_core.miniature.problems import generate
from elastic_core.models.special_tokens import Markers, chat_prompt, load_markers
from elastic_core.strategies import STRATEGIES, Generate, Sampling
from elastic_core.strategies.variants import Closing
from elastic_core.trajectory import ThinkFinish, Trajectory

MODEL = Path(elastic_core.miniature.__file__).parent / "base"
TOKENIZER, MARKERS = load_markers(MODEL)
PROMPTS = [chat_prompt(TOKENIZER, problem.question) for problem in generate("hard", 192, seed=5, split="tune")]
SOLUTION_BUDGET = 24
SAMPLING = Sampling(temperature=0.8, top_p=0.95, logprobs=True)
# At twice the temperature the miniature also opens thoughts of its own.
WILD = Sampling(temperature=2.0)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def engine(runner: asyncio.Runner) -> Iterator[VllmEngine]:
    async def start() -> VllmEngine:
        engine = VllmEngine(str(MODEL), EngineParameters(max_model_len=512), keeps_budgets=True)
        await engine.warm_up()
        return engine

    engine = runner.run(start())
    yield engine
    engine.shutdown()


def decode(
    runner: asyncio.Runner,
    engine: VllmEngine,
    name: str,
    think_budget: int,
    sampling: Sampling = SAMPLING,
    after: tuple[int, ...] = (),
    markers: Markers = MARKERS,
) -> list[Trajectory]:
    """One trajectory per prompt, the prompt's number its seed. Every one has passed `Trajectory.check`."""
    budget = Budget(think_budget, SOLUTION_BUDGET)

    async def all_prompts() -> list[Trajectory]:
        rollouts = (STRATEGIES[name].decode((*prompt, *after), budget, markers, sampling) for prompt in PROMPTS)
        return await asyncio.gather(*(drive(r, {"policy": engine}, seed) for seed, r in enumerate(rollouts)))

    return [trajectory.check(budget) for trajectory in runner.run(all_prompts())]


def thought(trajectory: Trajectory) -> tuple[tuple[int, ...], tuple[bool, ...], ThinkFinish]:
    """Everything up to the solution, with who wrote it."""
    end = trajectory.solution_start
    return trajectory.response_ids[:end], trajectory.forced[:end], trajectory.think_finish


@pytest.mark.parametrize("think_budget", [0, 1, 2, 16, 48, 128])
def test_thoughts_are_those_of_two_requests(runner: asyncio.Runner, engine: VllmEngine, think_budget: int) -> None:
    native = decode(runner, engine, "separate_native", think_budget)
    reference = decode(runner, engine, "separate", think_budget)
    assert [thought(trajectory) for trajectory in native] == [thought(trajectory) for trajectory in reference]
    for trajectory in native:
        if trajectory.think_finish is ThinkFinish.FORCED:
            assert trajectory.think_tokens == think_budget
            assert trajectory.forced.index(True) == think_budget


def test_the_model_closes_some_thoughts_itself_and_the_engine_the_others(
    runner: asyncio.Runner, engine: VllmEngine
) -> None:
    """Otherwise the comparison above would have seen one of the two cases only."""
    finishes = {trajectory.think_finish for trajectory in decode(runner, engine, "separate_native", 128)}
    assert {ThinkFinish.CLOSED, ThinkFinish.FORCED} <= finishes


@pytest.mark.parametrize("closing", ["answer-now", "soft", "soft-32-top2"])
def test_a_cut_is_worded_as_by_two_requests(runner: asyncio.Runner, engine: VllmEngine, closing: str) -> None:
    marks = Closing.parse(closing).of(TOKENIZER, MARKERS)
    native = decode(runner, engine, "separate_native", 96, markers=marks)
    reference = decode(runner, engine, f"separate_closing-{closing}", 96, markers=marks)
    pairs = list(zip(native, reference, strict=True))
    # Where a step of decoding and a prefill rank two tokens otherwise, a soft closing has another place.
    same = [a.response_ids[: a.solution_start] == b.response_ids[: b.solution_start] for a, b in pairs]
    assert sum(same) >= 0.97 * len(pairs)
    cuts = [each for each in native if each.think_finish is ThinkFinish.FORCED]
    assert cuts and all(each.think_tokens <= 96 for each in native)
    if marks.soft:
        assert any(each.think_tokens < 96 for each in cuts) and all(each.think_tokens >= 64 for each in cuts)
    else:
        assert all(each.forced_tokens == len(marks.words) + len(marks.close) for each in cuts)


@pytest.mark.parametrize("think_budget", [0, 16, 128])
def test_greedy_responses_are_those_of_two_requests(
    runner: asyncio.Runner, engine: VllmEngine, think_budget: int
) -> None:
    greedy = Sampling(temperature=0.0)
    native = decode(runner, engine, "separate_native", think_budget, greedy)
    reference = decode(runner, engine, "separate", think_budget, greedy)
    # A solution's first token comes from a prefill there and from a decoding step here, so near ties may differ.
    assert sum(a == b for a, b in zip(native, reference, strict=True)) >= 0.95 * len(PROMPTS)


def test_logprobs_of_sampled_thinking_are_those_of_two_requests(runner: asyncio.Runner, engine: VllmEngine) -> None:
    native = decode(runner, engine, "separate_native", 16)
    reference = decode(runner, engine, "separate", 16)
    for a, b in zip(native, reference, strict=True):
        assert a.logprobs is not None and b.logprobs is not None
        assert a.logprobs[:17] == pytest.approx(b.logprobs[:17], abs=1e-4)


@pytest.mark.parametrize("think_budget", [1, 4, 16])
def test_the_budget_holds_when_the_model_opens_further_thoughts(
    runner: asyncio.Runner, engine: VllmEngine, think_budget: int
) -> None:
    native = decode(runner, engine, "separate_native", think_budget, WILD)
    assert any(MARKERS.think_start[0] in trajectory.response_ids for trajectory in native)
    reference = decode(runner, engine, "separate", think_budget, WILD)
    for a, b in zip(native, reference, strict=True):
        assert thought(a) == thought(b)


def test_what_the_template_writes_after_think_start_is_not_counted(runner: asyncio.Runner, engine: VllmEngine) -> None:
    newline = MARKERS.final_answer_before
    native = decode(runner, engine, "separate_native", 5, after=newline)
    assert {trajectory.think_tokens for trajectory in native if trajectory.think_finish is ThinkFinish.FORCED} == {5}
    reference = decode(runner, engine, "separate", 5, after=newline)
    assert [thought(trajectory) for trajectory in native] == [thought(trajectory) for trajectory in reference]


def test_a_prompt_that_has_closed_its_thought_is_refused(runner: asyncio.Runner, engine: VllmEngine) -> None:
    prefix = (*PROMPTS[0], MARKERS.close[0])
    with pytest.raises(RequestFailed, match="has closed its thought"):
        runner.run(engine.generate(Generate(prefix, 8, MARKERS.end_of_text, SAMPLING, budget=Budget(4, 4)), 0))


def test_solutions_are_as_long_as_those_of_two_requests(runner: asyncio.Runner, engine: VllmEngine) -> None:
    native, reference = (decode(runner, engine, name, 16, WILD) for name in ("separate_native", "separate"))
    lengths = [Counter(trajectory.solution_tokens // 4 for trajectory in way) for way in (native, reference)]
    common = [length for length in lengths[0] | lengths[1] if sum(count[length] for count in lengths) >= 10]
    counts = [[count[length] for length in common] for count in lengths]
    assert len(common) > 2
    assert chi2_contingency(counts).pvalue > 1e-3
