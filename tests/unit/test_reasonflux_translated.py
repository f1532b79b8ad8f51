"""ReasonFlux-Zero with a navigator whose tokenizer is not the solver's: text between them, one row in the solver's
tokens."""

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_core.budget import Budget, parse_grid
from elastic_core.data.problems import Problem
from elastic_core.engines.base import Engine, drive
from elastic_core.engines.memo import ContinuationMemo
from elastic_core.engines.parameters import EngineParameters
from elastic_core.miniature.warm_start import BASE
from elastic_core.models.special_tokens import Markers, chat_prompt, resolve_markers
from elastic_core.reasonflux.guide import FIELDS, load_script
from elastic_core.reasonflux.library import MINIATURE_FILE, read_library
from elastic_core.strategies import STRATEGIES, Completion, Finish, Generate, Sampling, Strategy
from elastic_core.strategies.chat import EFFORTS
from elastic_core.strategies.reasonflux_zero import REPLY_TOKENS, TemplateParameters, Templates
from elastic_core.sweep.cost import bound
from elastic_core.sweep.executor import SweepResult, run_sweep
from elastic_core.sweep.grid import Cell, build_cells
from elastic_core.sweep.models import Prompts, SweepModel, sweep_models
from elastic_core.sweep.plan import draws, learn, plan_sweep
from elastic_core.sweep.rows import RowBuilder, Sample
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.trajectory import KEY, NAVIGATOR, SCHEMA, TRANSLATED, ThinkFinish, Trajectory
from tests import guided
from tests.exactness import broken_rules
from tests.guided import CONVERSATION, PLAN, QUESTION, plain_tokenizer
from tests.scripted import ScriptedEngine

UNLIMITED = Budget(None, None)
BUDGETS = st.builds(Budget, st.integers(0, 160), st.integers(1, 40))
PROBLEM = Problem("easy", "0", QUESTION, "41", "math")
TEMPLATES = Templates(
    read_library(MINIATURE_FILE),
    TemplateParameters(library="miniature", query="joined", wording="miniature"),
    Path("unused"),
)


@dataclass(frozen=True)
class Side:
    """A tokenizer with what there is to say in it."""

    tokenizer: Any
    markers: Markers

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    @cached_property
    def vocabulary(self) -> int:
        """Tokens, which take 40 ms to count."""
        return len(self.tokenizer)

    def said(self, reply: str) -> tuple[int, ...]:
        return (*self.encode(reply), self.tokenizer.eos_token_id)

    def text(self, ids: tuple[int, ...]) -> str:
        return str(self.tokenizer.decode(ids, clean_up_tokenization_spaces=False))


@cache
def thinking() -> Side:
    """The miniature's: a token for most words, think markers, no letter beyond ASCII."""
    return Side(guided.tokenizer(), guided.markers())


@cache
def plain() -> Side:
    """Bytes joined by a byte-pair encoding, without think markers."""
    return Side(plain_tokenizer(), resolve_markers(plain_tokenizer(), thinks=False))


@cache
def strategy(navigator: Callable[[], Side], solver: Callable[[], Side]) -> Strategy:
    own = navigator()
    return TEMPLATES.strategy(solver().tokenizer, solver().markers, (own.tokenizer, own.markers))


SIDES = {"plain": plain, "thinking": thinking}
PAIRS = pytest.mark.parametrize(("navigator", "solver"), [(plain, thinking), (thinking, plain)])


@dataclass
class Speaker:
    """Says its replies one after the other, in its own tokens; after the last one it has nothing to say."""

    side: Side
    replies: list[str]
    requests: list[Generate] = field(default_factory=list)

    async def generate(self, request: Generate, seed: int) -> Completion:
        said = self.side.said(self.replies[len(self.requests)] if len(self.requests) < len(self.replies) else "")
        self.requests.append(request)
        tokens = said[: request.max_tokens]
        return Completion(tokens, Finish.STOP if tokens == said else Finish.LENGTH)


def talk(
    navigator: Callable[[], Side], solver: Callable[[], Side], budget: Budget, engines: dict[str, Engine]
) -> Trajectory:
    guided, side = strategy(navigator, solver), solver()
    prompt = chat_prompt(side.tokenizer, guided.prompt(QUESTION, budget))
    return asyncio.run(drive(guided.decode(prompt, budget, side.markers, Sampling()), engines, seed=0))


def say(
    navigator: Callable[[], Side], solver: Callable[[], Side], budget: Budget = UNLIMITED
) -> tuple[Trajectory, Speaker, Speaker]:
    """The run of the conversation, and who was asked what in it."""
    by_navigator = {0, 1, 2, 3, 5}
    speakers = [
        Speaker(side, [reply for i, reply in enumerate(CONVERSATION) if (i in by_navigator) is mine])
        for side, mine in ((navigator(), True), (solver(), False))
    ]
    trajectory = talk(navigator, solver, budget, dict(zip(("navigator", "solver"), speakers, strict=True)))
    return trajectory, *speakers


def row_of(trajectory: Trajectory, budget: Budget, solver: Side) -> pl.DataFrame:
    cell = Cell("big>small", "easy", "reasonflux_zero", budget)
    return RowBuilder(solver.tokenizer, solver.markers, "m", "e").frame([(Sample(cell, PROBLEM, 0, 0), trajectory)])


# The conversation.


@pytest.mark.parametrize("budget", [UNLIMITED, *(Budget(think, 9) for think in range(0, 80, 3))], ids=str)
def test_the_row_is_as_if_the_navigator_had_the_solvers_tokenizer(budget: Budget) -> None:
    trajectory, *_ = say(plain, thinking, budget)
    alike, _ = guided.say(budget, *CONVERSATION)
    assert trajectory.solution_start == alike.solution_start
    thought = slice(trajectory.solution_start)
    assert (trajectory.response_ids[thought], trajectory.forced[thought]) == (
        *(alike.response_ids[thought], alike.forced[thought]),
    )
    assert trajectory.think_finish == alike.think_finish
    assert trajectory.navigator_tokens == alike.navigator_tokens
    assert trajectory.turns == tuple((at, TRANSLATED if role == NAVIGATOR else role) for at, role in alike.turns)


@PAIRS
def test_the_navigator_reads_everything_through_its_own_chat_template(
    navigator: Callable[[], Side], solver: Callable[[], Side]
) -> None:
    _, heard, _ = say(navigator, solver)
    script, own = load_script("miniature"), navigator()
    closed = "" if navigator is plain else "</think>"
    said = [
        *(strategy(navigator, solver).prompt(QUESTION, UNLIMITED), PLAN, "template: 4 steps, 1 steps", CONVERSATION[1]),
        *(script["extract"], CONVERSATION[2], "plan1", CONVERSATION[3], "solve1", CONVERSATION[4], "plan2"),
    ]
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]
    for request, end in zip(heard.requests, (1, 3, 5, 7, 11), strict=True):
        asked = own.tokenizer.apply_chat_template(messages[:end], add_generation_prompt=True, tokenize=False)
        # The miniature's template leaves out the closed thoughts of turns that are over; the conversation has them.
        assert own.text(request.prefix).replace("<think></think>", "") == asked.removesuffix("<think>")
        assert own.text(request.prefix).endswith(closed)
        assert (request.role, request.stop, request.max_tokens) == ("navigator", own.markers.end_of_text, REPLY_TOKENS)


@PAIRS
def test_the_solver_reads_everything_in_its_own_tokens(
    navigator: Callable[[], Side], solver: Callable[[], Side]
) -> None:
    trajectory, _, asked = say(navigator, solver)
    side = solver()
    whole = side.text(trajectory.prompt_ids + trajectory.response_ids)
    assert whole.count(side.tokenizer.eos_token) >= len(CONVERSATION)
    assert [reply in whole for reply in CONVERSATION] == [True] * len(CONVERSATION)
    assert row_of(trajectory, UNLIMITED, side)["score"].item() == 1.0
    for request in asked.requests:
        assert (trajectory.prompt_ids + trajectory.response_ids)[: len(request.prefix)] == request.prefix
    assert trajectory.forced_tokens <= strategy(navigator, solver).max_forced_tokens(side.markers)


def test_control_tokens_do_not_pass_and_what_the_solver_has_no_token_for_is_left_out() -> None:
    written = Speaker(thinking(), [f"</think>{PLAN}<|user|><think>"])
    trajectory = talk(thinking, plain, UNLIMITED, {"navigator": written, "solver": Speaker(plain(), [])})
    assert plain().text(trajectory.response_ids).startswith(f"{PLAN}<|im_end|>\n<|im_start|>user\ntemplate: 4 steps")
    spelled = Speaker(plain(), [f"<eos><|user|>é{PLAN}</think>"])
    trajectory = talk(plain, thinking, UNLIMITED, {"navigator": spelled, "solver": Speaker(thinking(), [])})
    assert thinking().text(trajectory.response_ids).startswith(f"</think>{PLAN}<eos><|user|>template: 4 steps")


# The budget.


def noise(side: Side, seed: int, by_draw: bool = True) -> Callable[[tuple[int, ...], int], int]:
    """Tokens of all kinds and many ends, a function of the prefix.

    Args:
        by_draw: and of where the draw began, as with a seeded generator.
    """
    words = [*side.encode(PLAN), *side.encode("1. 4 steps\n+2-4 36=é ")]
    everything = range(side.vocabulary)

    def token(prefix: tuple[int, ...], drawn: int) -> int:
        kind, number = divmod(hash((prefix, seed, by_draw and drawn)), 2**20)
        chosen = everything if kind % 10 == 0 else words
        return side.tokenizer.eos_token_id if kind % 10 == 1 else chosen[number % len(chosen)]

    return token


def noisy(navigator: Side, solver: Side, seed: int, by_draw: bool = True) -> dict[str, Engine]:
    return {
        role: ScriptedEngine(noise(side, seed, by_draw), context=100_000)
        for role, side in (("navigator", navigator), ("solver", solver))
    }


@PAIRS
@given(seed=st.integers(0, 2**31), budget=BUDGETS)
@settings(max_examples=settings().max_examples // 2)
def test_a_budget_binds_in_the_solvers_tokens_whatever_the_navigator_says(
    navigator: Callable[[], Side], solver: Callable[[], Side], seed: int, budget: Budget
) -> None:
    trajectory = talk(navigator, solver, budget, noisy(navigator(), solver(), seed))
    assert budget.think is not None and budget.solution is not None
    assert trajectory.think_tokens <= budget.think
    assert trajectory.solution_tokens <= budget.solution
    assert broken_rules(row_of(trajectory, budget, solver())) == {}
    if trajectory.think_finish is ThinkFinish.FORCED:
        assert trajectory.think_tokens == budget.think


@PAIRS
@given(seed=st.integers(0, 2**31), less=st.integers(0, 100), more=st.integers(0, 100))
@settings(max_examples=settings().max_examples // 2)
def test_what_a_smaller_budget_holds_is_how_a_larger_one_begins(
    navigator: Callable[[], Side], solver: Callable[[], Side], seed: int, less: int, more: int
) -> None:
    """Also inside a reply, where the text that is left could be cut into tokens otherwise."""
    engines = noisy(navigator(), solver(), seed)
    small, large = (talk(navigator, solver, Budget(think, 8), engines) for think in (less, less + more))
    thought = small.response_ids[: small.solution_start]
    begun = 1 + max((i for i, forced in enumerate(small.forced[: len(thought)]) if not forced), default=-1)
    assert large.response_ids[:begun] == thought[:begun]


# The memo and the table.


@PAIRS
def test_a_reply_is_drawn_once_for_all_budgets(navigator: Callable[[], Side], solver: Callable[[], Side]) -> None:
    # The memo goes on where a smaller budget had cut the solver, which is where another draw begins.
    engines = noisy(navigator(), solver(), seed=11, by_draw=False)
    memos = {role: ContinuationMemo(engine) for role, engine in engines.items()}
    for think in (40, 160, 80):  # Larger after smaller, too.
        shared = talk(navigator, solver, Budget(think, 8), {**memos})
        assert shared == talk(navigator, solver, Budget(think, 8), engines)
        if think == 160:
            drawn = memos["navigator"].counts.generated
    assert 0 < drawn == memos["navigator"].counts.generated
    assert memos["navigator"].counts.reused > 0


CELLS = {
    model: build_cells([model], ["easy"], ["reasonflux_zero"], parse_grid(["120+8", "90+8", "30+8"]))
    for model in ("plain>thinking", *SIDES)
}


def sweep(directory: Path, model: str, num_budgets: int = 3, by_draw: bool = True) -> SweepResult:
    """The largest budgets of a model, with two samples of a problem."""
    side = SIDES[model.rpartition(">")[2]]()
    guided = strategy(plain, thinking) if ">" in model else TEMPLATES.strategy(side.tokenizer, side.markers)

    async def run() -> SweepResult:
        store = TrajectoryStore(directory)
        with store.writing(Manifest({"base": "f"}, {"base": "e"}, {"easy": "h"}, {"seed": 7})):
            cells = CELLS[model][:num_budgets]
            plan = plan_sweep(cells, {"easy": [PROBLEM]}, num_samples=2, seed=7, finished=store.finished())
            return await run_sweep(
                plan,
                sampling=Sampling(),
                prompts=Prompts(side.tokenizer, STRATEGIES | {"reasonflux_zero": guided}),
                replicas=[{name: ScriptedEngine(noise(SIDES[name](), 3, by_draw), context=100_000) for name in SIDES}],
                rows=RowBuilder(side.tokenizer, side.markers, "f", "e"),
                store=store,
            )

    return asyncio.run(run())


def table(directory: Path) -> pl.DataFrame:
    return TrajectoryStore(directory).read().sort(KEY)


def test_a_resumed_sweep_goes_on_as_one_that_was_not_interrupted(tmp_path: Path) -> None:
    whole = sweep(tmp_path / "whole", "plain>thinking")
    sweep(tmp_path / "parts", "plain>thinking", num_budgets=1)
    sweep(tmp_path / "parts", "plain>thinking")
    assert table(tmp_path / "parts").equals(table(tmp_path / "whole"))
    assert broken_rules(table(tmp_path / "whole")) == {}
    assert whole.tokens_reused > 0


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """Rows of each model in a table of its own."""
    directory = tmp_path_factory.mktemp("alone")
    for model in CELLS:
        sweep(directory / model, model, by_draw=False)
    return pl.concat([table(directory / model) for model in CELLS]).sort(KEY)


@pytest.mark.parametrize("first", ["plain>thinking", "plain", "thinking"])
def test_each_model_alone_and_both_together_share_a_table(tmp_path: Path, alone: pl.DataFrame, first: str) -> None:
    """Nobody is told another's tokens as draws of his own. What is known ends a draw where another begins, so they do
    not begin at the same places."""
    for model in (first, *(model for model in CELLS if model != first)):
        sweep(tmp_path / "together", model, by_draw=False)
    assert table(tmp_path / "together").equals(alone)


def test_a_row_tells_a_navigator_nothing_that_it_did_not_draw() -> None:
    trajectory, *_ = say(plain, thinking)
    row = row_of(trajectory, UNLIMITED, thinking())
    assert {role for role, *_ in draws(row.row(0, named=True))} == {TRANSLATED, "solver"}
    memos = {name: ContinuationMemo(ScriptedEngine(noise(plain(), 0))) for name in ("big", "small")}
    learn(
        memos, row, Prompts(thinking().tokenizer, {"reasonflux_zero": strategy(plain, thinking)}), PROBLEM, Sampling()
    )
    (at, _), *_ = trajectory.turns
    first = Generate(trajectory.prompt_ids + trajectory.response_ids[:at], 64, (), Sampling())
    last = Generate(trajectory.prompt_ids + trajectory.response_ids[: trajectory.turns[-1][0]], 64, (), Sampling())
    assert memos["big"].known(first).ids == memos["small"].known(first).ids == ()
    assert memos["small"].known(last).ids == trajectory.response_ids[trajectory.turns[-1][0] :]


@pytest.mark.parametrize("brief", [True, False])
def test_no_pair_draws_more_than_the_bound(brief: bool) -> None:
    """The most is drawn by a navigator of whose words nothing passes, before a solver that ends at once."""
    side, guided, cells = thinking(), strategy(plain, thinking), CELLS["plain>thinking"]
    nothing = pl.DataFrame(schema={name: SCHEMA[name] for name in KEY})
    plan = plan_sweep(cells, {"easy": [PROBLEM]}, num_samples=1, seed=1, finished=nothing)
    prompts = Prompts(side.tokenizer, STRATEGIES | {"reasonflux_zero": guided})
    most = bound(plan, prompts.ids, side.markers, 100_000, prompts.strategies)
    start, word, end = plain_tokenizer().encode("<|im_start|>")[0], side.encode("Okay")[0], side.tokenizer.eos_token_id
    engines = {
        "navigator": ScriptedEngine(lambda *_: start, context=100_000),
        "solver": ScriptedEngine(lambda *_: end if brief else word, context=100_000),
    }
    memos = {role: ContinuationMemo(engine) for role, engine in engines.items()}
    for cell in cells:
        talk(plain, thinking, cell.budget, {**memos})
    assert REPLY_TOKENS < sum(memo.counts.generated for memo in memos.values()) <= most.shared < most.independent


# Which pairs can be measured.


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is read of a checkpoint before its engine starts."""
    directory = tmp_path_factory.mktemp("other")
    plain_tokenizer().save_pretrained(directory)
    return directory


def prepare(pair: str, other: Path, *strategies: str, context: int = 4096) -> SweepModel:
    request = {"models": [pair], "strategies": strategies, "budgets": ["48+32"]}
    paths, engine = {"base": BASE, "other": other}, EngineParameters(max_model_len=context)
    (model,) = sweep_models(request, dict.fromkeys(paths, "f"), paths, {"easy": [PROBLEM]}, engine, TEMPLATES)
    return model


def test_a_pair_of_different_tokenizers_has_rows_in_the_solvers(other: Path) -> None:
    model = prepare("base>other", other, "reasonflux_zero")
    assert model.rows.tokenizer.get_vocab() == plain_tokenizer().get_vocab()
    assert model.rows.markers == plain().markers
    assert model.prompts.strategies["reasonflux_zero"].translates
    assert not prepare("base>other", BASE, "reasonflux_zero").prompts.strategies["reasonflux_zero"].translates


def test_the_conversation_must_fit_the_navigators_context_too(other: Path) -> None:
    """Bytes joined by pairs are more tokens than the miniature's words."""
    guided, side = TEMPLATES.strategy(plain().tokenizer, plain().markers), plain()
    prompt = chat_prompt(side.tokenizer, guided.prompt(QUESTION, UNLIMITED))
    needed = len(prompt) + guided.max_forced_tokens(side.markers) + 48 + 32
    prepare("other>base", other, "reasonflux_zero", context=needed)
    with pytest.raises(ValueError, match="the navigator's context"):
        prepare("other>base", other, "reasonflux_zero", context=needed - 1)
    with pytest.raises(ValueError, match="the model's context"):
        prepare("base>other", other, "reasonflux_zero", context=needed - 1)


def test_a_solver_whose_tokenizer_does_not_give_back_its_prompt_is_refused() -> None:
    lossy = copy.deepcopy(thinking().tokenizer)
    lossy.backend_tokenizer.decoder = None
    with pytest.raises(ValueError, match="another tokenizer"):
        TEMPLATES.strategy(lossy, thinking().markers, (plain().tokenizer, plain().markers))


# A model that has no think markers, such as the Qwen2.5-32B-Instruct that ReasonFlux-Zero was made from.


FIVE_STEPS = """{'General Knowledge Category': 'Easy chain', 'Specific Direction': 'more plus', 'Applied Method':
'five steps', 'Examined Knowledge': ['+'], 'reason_flow': ['add', 'check']}"""
SAID = ["add, then check", "['add', 'check']", "Add them.", "1+1=2.", "Check it.", "It is 2.", "\\boxed{2}"]


def test_only_where_it_is_allowed_has_a_tokenizer_no_think_markers() -> None:
    with pytest.raises(ValueError, match=r"<think> "):
        resolve_markers(plain_tokenizer())
    assert not plain().markers.thinks and not plain().markers.template_opens_thinking
    in_text = set(EFFORTS)
    assert {name for name, strategy in STRATEGIES.items() if not strategy.thinks} == {"reasonflux_zero"} | in_text


@pytest.mark.parametrize("wording", ["reasonflux", "published"])
def test_navigator_and_solver_talk_without_a_thought_and_are_graded(wording: Any) -> None:
    parameters = TemplateParameters(library="miniature", query="joined", wording=wording)
    templates, said = Templates(read_library(MINIATURE_FILE), parameters, Path("unused")), [FIVE_STEPS, *SAID]
    guided, side = templates.strategy(plain().tokenizer, plain().markers), plain()
    prompt = chat_prompt(side.tokenizer, guided.prompt("1+1=?", UNLIMITED))
    engines: dict[str, Engine] = {"policy": Speaker(side, said)}
    trajectory = asyncio.run(drive(guided.decode(prompt, UNLIMITED, side.markers, Sampling()), engines, seed=0))
    whole = side.tokenizer.decode([*trajectory.prompt_ids, *trajectory.response_ids])
    assert "<think>" not in whole and "</think>" not in whole
    assert whole.count("<|im_start|>user") == whole.count("<|im_start|>assistant\n") == len(said)
    assert whole.count("<|im_end|>") == 1 + 2 * len(said), "of the system's turn, of questions and of replies"
    sample = Sample(Cell("base", "amc", "reasonflux_zero", UNLIMITED), Problem("amc", "0", "1+1=?", "2", "math"), 0, 0)
    row = RowBuilder(side.tokenizer, side.markers, "m", "e").frame([(sample, trajectory)])
    assert row["solution"].item() == said[-1] and row["score"].item() == 1.0
    assert row["think_finish"].item() == ThinkFinish.CLOSED
    assert sum(trajectory.forced) <= guided.max_forced_tokens(side.markers)


def test_the_published_words_are_asked_and_a_plan_has_the_fields_that_are_read() -> None:
    published = load_script("published")
    assert "You are a math tutor guiding a student to solve a math problem" in published["instruct"]
    assert "extract the reasoning flows from the following text and output in python list" in published["extract"]
    ours = load_script("reasonflux")
    assert all(field in ours["plan"] for field in FIELDS) and "\\boxed{}" in ours["final"]
