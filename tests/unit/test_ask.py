"""`elastic ask` without an engine: what stands in the terminal, and what is refused before anything starts."""

import asyncio
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click.testing
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from elastic_core.budget import Budget
from elastic_core.errors import UserError
from elastic_core.strategies import Completion, Finish, Generate, Sampling
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory
from flows.commands.answer import Attempt, Loaded, Pair, load
from flows.commands.ask import (
    CUT_STYLE,
    FORCED,
    SOLUTION,
    THOUGHT,
    Segment,
    _print,
    further,
    segments,
    settled,
    summary,
)
from flows.commands.cli import cli
from flows.runtime.models import choose_model
from tests.guided import plain_tokenizer, tokenizer
from tests.unit.test_playground import Letters, trajectory
from tests.unit.test_playground_live import END, EOS, MARKERS, SIDE_BY_SIDE, Streaming, side_by_side

LOADED = Loaded("base", None, Letters(), MARKERS)  # type: ignore[arg-type]
CUT = Segment(" ✂ cut here ", CUT_STYLE)


def test_the_thought_is_dim_the_cut_is_marked_and_what_we_wrote_is_in_brackets() -> None:
    done = Attempt("base", "separate", Budget(2, 8), "done", trajectory(9, 9, END, 9, EOS, forced=(2,), start=3))
    assert segments(done, LOADED) == [
        Segment("9 9", THOUGHT),
        CUT,
        Segment("\n\n", SOLUTION),
        Segment(" 9", SOLUTION),
    ]
    told = summary(done, 1.25)
    assert told.startswith("tokens: thinking 2 of 2, solution 2 of 8, forced 1; 1.2 s; ")
    assert "cut after 2 tokens, closed by us" in told and "solution ended by the model" in told


def test_a_cut_solution_is_marked_and_vanilla_is_counted_together() -> None:
    cut = Trajectory((7,), (9, END, 9, 9), (False,) * 4, 2, ThinkFinish.CLOSED, SolutionFinish.LENGTH)
    assert segments(Attempt("base", "separate", Budget(8, 2), "done", cut), LOADED)[-1] == CUT
    cut = Trajectory((7,), (9, 9, 9), (False,) * 3, None, ThinkFinish.LENGTH, SolutionFinish.NOT_APPLICABLE)
    vanilla = Attempt("base", "vanilla", Budget(2, 1), "done", cut)
    assert segments(vanilla, LOADED) == [Segment("9 9 9", THOUGHT), CUT]
    assert summary(vanilla, 0.0).startswith("tokens: thinking 3, solution 0, forced 0, together 3 of 3; 0.0 s; ")


def test_a_models_text_cannot_move_the_cursor() -> None:
    class Hostile:
        def decode(self, ids: tuple[int, ...], **_: Any) -> str:
            return "\x1b[2J\x07\ra\tb\nc[bold]" if ids else ""

    loaded = Loaded("base", None, Hostile(), MARKERS)  # type: ignore[arg-type]
    (segment,) = segments(Attempt("base", "separate", Budget(8, 8), "done", trajectory(9)), loaded)
    assert segment.text == "\N{REPLACEMENT CHARACTER}[2J" + 2 * "\N{REPLACEMENT CHARACTER}" + "a\tb\nc[bold]"
    printed = StringIO()
    _print(Console(file=printed, width=3), [segment, Segment("⟦x⟧", FORCED)])
    assert printed.getvalue().expandtabs() == segment.text.expandtabs() + "⟦x⟧"


@given(
    st.integers(0, 5_000),
    st.sampled_from(SIDE_BY_SIDE),
    st.builds(Budget, st.integers(0, 15), st.integers(1, 8)),
)
@example(3368, "budget_forcing_wait1", Budget(3, 1))
def test_what_was_printed_is_never_taken_back(seed: int, name: str, budget: Budget) -> None:
    """A thought that is prolonged and stops altogether may be printed twice from the place on where it was cut."""
    ((whole, views, _),) = asyncio.run(side_by_side(Streaming(seed), [name], budget))
    attempt = Attempt("base", name, budget, "running")
    shown: list[Segment] = []
    printed = ""
    for state, view in [*(("running", view) for view in views), ("done", whole)]:
        attempt.state, attempt.trajectory = state, view
        response = segments(attempt, LOADED)
        printed += "".join(added.text for added in further(shown, response))
        shown = response
    response = "".join(segment.text for segment in segments(attempt, LOADED))
    again = printed.rpartition("\n")[2]  # What is printed again begins a line.
    assert printed == response or ("wait" in name and (printed.endswith(response[-20:]) or response.endswith(again)))


def test_the_end_may_still_change_and_is_held_back() -> None:
    running = trajectory(9, 9, END, forced=(2,), start=3)
    assert settled(running).response_ids == (9, 9) and settled(running).solution_start is None
    assert settled(trajectory(9, 9, END, 9, 9, forced=(2,), start=3)).response_ids == (9, 9, END, 9)
    assert settled(trajectory()).response_ids == ()


def test_a_thought_that_a_strategy_ends_before_t_is_marked_from_the_first_token_on() -> None:
    attempt = Attempt("base", "separate", Budget(8, 8), "running", trajectory(END, 9, 9, forced=(0,), start=1))
    first, *_ = segments(attempt, LOADED)
    assert first == CUT


def test_a_turn_that_was_the_solution_is_printed_again_as_one() -> None:
    before = [Segment("plan", THOUGHT), Segment("⟦go⟧", FORCED), Segment("4", THOUGHT)]
    now = [*before[:2], Segment("42", SOLUTION)]
    assert further(before, now) == [Segment("\n", SOLUTION), Segment("42", SOLUTION)]
    assert further(before, before) == [] and further([], now) == now
    assert further([Segment("pl", THOUGHT)], before) == [Segment("an", THOUGHT), *before[1:]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["1+1?", "--model", "nowhere/at/all"], "nowhere/at/all"),
        (["1+1?", "--model", "trained"], "--model trained: "),
        (["1+1?", "--preset", "embeded"], '"embedded"'),
        (["1+1?", "--budget", "many"], '"many"'),
        (["1+1?", "--budget", "100000+32"], "or a larger engine.max_model_len"),
        (["1+1?", "--strategy", "none"], '"none"'),
        (["1+1?", "--sample", "-1"], "-1"),
        (["1+1?", "--model", "base>base", "--strategy", "vanilla"], "vanilla asks one model"),
        (["1+1?", "--model", "base>trained", "--strategy", "reasonflux_zero"], "--model trained: "),
        ([" "], "question"),
    ],
)
def test_bad_input_is_refused_before_an_engine_starts(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path))
    monkeypatch.setattr("flows.commands.ask.load", None)
    result = click.testing.CliRunner().invoke(cli, ["ask", *arguments])
    assert sentence in (str(result.exception) if isinstance(result.exception, UserError) else result.output)


@pytest.mark.parametrize(("strategy", "budget"), [("separate", Budget(48, 32)), ("unconstrained", Budget(None, None))])
def test_without_a_budget_a_strategy_has_the_trained_one_or_none_where_it_takes_none(
    strategy: str, budget: Budget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path))
    monkeypatch.setattr("flows.commands.ask.signal.signal", lambda *_: None)
    started: list[Attempt] = []

    async def stream(attempt: Attempt, *_: object) -> None:
        started.append(attempt)

    monkeypatch.setattr("flows.commands.ask._stream", stream)
    click.testing.CliRunner().invoke(cli, ["ask", "1+1?", "--strategy", strategy], catch_exceptions=False)
    assert [attempt.budget for attempt in started] == [budget]


def test_a_model_of_the_preset_is_asked_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path))
    assert choose_model("embedded", {}, None)[1] == "base" == choose_model("embedded", {}, "base")[1]
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").touch()
    models, name = choose_model("embedded", {}, f"mine={tmp_path / 'model'}")
    assert name == "mine" and list(models.directories) == ["mine", "base"]


def test_a_navigator_and_a_solver_are_each_of_the_preset_or_of_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path))
    (tmp_path / "model.safetensors").touch()
    models, name = choose_model("embedded", {}, f"base>mine={tmp_path}", pairs=True)
    assert name == "base>mine" and models.directories["mine"] == tmp_path
    with pytest.raises(UserError, match="--model base>base: "):  # Such as a server, which serves one.
        choose_model("embedded", {}, "base>base")


def test_of_a_pair_each_request_goes_to_the_engine_of_its_role() -> None:
    class One:
        def __init__(self, max_model_len: int) -> None:
            self.max_model_len, self.roles = max_model_len, []

        async def generate(self, request: Generate, seed: int, on_tokens: object = None) -> Completion:
            self.roles.append(request.role)
            return Completion((), Finish.STOP)

    first, second = One(100), One(50)
    pair = Pair({"navigator": first, "solver": second})
    for role in ("navigator", "solver", "solver"):
        asyncio.run(pair.generate(Generate((1,), 1, (), Sampling(), role), 0))
    assert (first.roles, second.roles) == (["navigator"], ["solver"] * 2)
    assert pair.max_model_len == 50


def test_models_without_think_markers_are_loaded_for_templates_and_a_pair_needs_one_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))
    for name, saved in (("plain", plain_tokenizer()), ("alike", plain_tokenizer()), ("thinking", tokenizer())):
        saved.save_pretrained(tmp_path / name)
        (tmp_path / name / "model.safetensors").touch()

    async def engine(*_: object) -> SimpleNamespace:
        return SimpleNamespace(max_model_len=100)

    monkeypatch.setattr("flows.commands.answer._engine", engine)

    def loaded(*names: str, thinks: bool) -> Loaded:
        models, name = choose_model("embedded", {}, ">".join(f"{each}={tmp_path / each}" for each in names), pairs=True)
        return asyncio.run(load(models, name, thinks=thinks))

    assert loaded("plain", "alike", thinks=False).name == "plain>alike"
    with pytest.raises(UserError, match="plain cannot be loaded: "):
        loaded("plain", thinks=True)
    with pytest.raises(UserError, match="plain>thinking: their tokenizers differ"):
        loaded("plain", "thinking", thinks=False)
