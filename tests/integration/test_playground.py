"""The playground's session on a real engine, started once: what streams is what comes, budgets hold to the token, and
strategies side by side draw what they draw alone."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from unittest.mock import patch

import pytest

from elastic_core.budget import Budget
from elastic_core.engines.base import drive
from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.models.special_tokens import chat_prompt
from elastic_core.rewards import GradeStatus
from elastic_core.seeds import sample_seed
from elastic_core.strategies import STRATEGIES, Generate, Sampling
from elastic_core.strategies.reasonflux_zero import Templates
from elastic_core.trajectory import Trajectory
from flows.commands.playground import PlaygroundParameters
from flows.commands.playground.choices import benchmarks
from flows.commands.playground.session import Run, Session
from flows.commands.playground.view import render
from flows.runtime.models import Models, find_models

# An engine of its own; of what a reader sees, tests/e2e/test_playground_page.py asks every day.
pytestmark = pytest.mark.slow

LOOP = asyncio.Runner()
"""The event loop of the page, in which its engines stay."""
STRATEGY_NAMES = ("vanilla", "separate", "budget_forcing", "budget_forcing_wait1", "l1_exact")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    runs = tmp_path_factory.mktemp("runs")
    (runs / "broken").mkdir()
    (runs / "broken" / "model.safetensors").touch()
    # What a command sets for its process, Ray's token among it, must not outlive this module.
    with patch.dict(os.environ, ELASTIC_RUNS=str(runs), PREFECT_HOME=str(runs / "prefect")):
        found = find_models(
            "embedded", {}, [f"broken={runs / 'broken'}", f"copy={shutil.copytree(BASE, runs / 'copy')}"]
        )
        yield replace(found, directories=dict(sorted(found.directories.items())))


@pytest.fixture(scope="module")
def session(models: Models) -> Iterator[Session]:
    session = Session(models, PlaygroundParameters(run_seconds=1800))
    with LOOP:
        yield session
        for loaded in list(session.engines._loaded.values()):
            LOOP.run(session.engines.drop(loaded))


def asked(models: Models, budget: Budget, strategies: tuple[str, ...] = STRATEGY_NAMES, sample: int = 0) -> Run:
    return Run(("base",), benchmarks(models.inputs)["miniature-hard, generated"][6], strategies, budget, sample)


def performed(session: Session, run: Run) -> Run:
    LOOP.run(session.perform(run))
    return run


def trajectories(run: Run) -> dict[str, Trajectory]:
    found = {attempt.strategy: attempt.trajectory for attempt in run.attempts if attempt.trajectory is not None}
    assert len(found) == len(run.attempts), [attempt.sentence for attempt in run.attempts]
    return found


def test_streamed_tokens_are_the_completion_s(session: Session, models: Models) -> None:
    """Also beside others, and with log-probabilities: streaming changes nothing of what is drawn."""
    loaded = performed(session, asked(models, Budget(8, 8))).loaded["base"]
    prompt = chat_prompt(loaded.tokenizer, "36+6-4+8=?")
    requests = [
        Generate(prompt, 60, (loaded.markers.close[0],), Sampling(0.8, 1.0, logprobs=logprobs))
        for logprobs in (False, True)
    ]

    async def both_ways() -> None:
        for request in requests:
            streamed: list[list[int]] = []
            whole, watched = await asyncio.gather(
                loaded.engine.generate(request, 3), loaded.engine.generate(request, 3, streamed.append)
            )
            assert whole.tokens == watched.tokens and whole.finish == watched.finish
            assert (
                whole.logprobs == pytest.approx(watched.logprobs) if request.sampling.logprobs else not whole.logprobs
            )
            assert tuple(token for part in streamed for token in part) == watched.tokens
            assert len(streamed) > len(watched.tokens) / 4, "they come as they are drawn"

    LOOP.run(both_ways())


def test_what_is_seen_on_the_way_is_what_comes(session: Session, models: Models) -> None:
    """As the page looks at it, at every turn."""

    async def watch() -> tuple[Run, list[list[tuple[int, ...]]]]:
        run = asked(models, Budget(96, 32), ("separate", "budget_forcing", "vanilla"), sample=1)
        work = asyncio.ensure_future(session.perform(run))
        seen: list[list[tuple[int, ...]]] = [[] for _ in run.attempts]
        while not work.done():
            for attempt, views in zip(run.attempts, seen, strict=True):
                attempt.update()
                if attempt.state == "running" and attempt.trajectory is not None:
                    views.append(attempt.trajectory.response_ids)
            await asyncio.sleep(0.002)
        work.result()
        return run, seen

    run, seen = LOOP.run(watch())
    for attempt, views in zip(run.attempts, seen, strict=True):
        assert attempt.trajectory is not None
        response = attempt.trajectory.response_ids
        assert len({len(view) for view in views}) > 10, f"{attempt.strategy} was not seen growing"
        assert all(view == response[: len(view)] for view in views)


@pytest.mark.parametrize(
    "budget",
    [
        Budget(0, 32),
        Budget(1, 1),
        Budget(48, 32),
        pytest.param(Budget(130, 5), marks=pytest.mark.slow),
        pytest.param(Budget(256, 32), marks=pytest.mark.slow),
    ],
)
def test_budgets_hold_to_the_token_and_a_thought_is_what_it_is_alone(
    session: Session, models: Models, budget: Budget
) -> None:
    """Alone, on the bare engine and with a sweep's seed, a strategy draws the thought that it drew side by side."""
    what = asked(models, budget, sample=10 + (budget.think or 0))  # A sample of its own: nothing is known of it.
    run = performed(session, what)
    loaded, settings = run.loaded["base"], models.settings.sweep
    seed = sample_seed(settings.seed, what.problem.benchmark, what.problem.id, what.sample)

    async def alone(name: str) -> Trajectory:
        strategy = STRATEGIES[name]
        prompt = chat_prompt(loaded.tokenizer, strategy.prompt(what.problem.question, budget))
        sampling = Sampling(settings.temperature, settings.top_p)
        return await drive(strategy.decode(prompt, budget, loaded.markers, sampling), {"policy": loaded.engine}, seed)

    first = trajectories(run)
    for name in ("separate", "budget_forcing", "budget_forcing_wait1"):
        first[name].check(budget)
    first["vanilla"].check_total(budget.total)
    for name in ("separate", "budget_forcing"):
        thought = LOOP.run(alone(name)).response_ids[: budget.think]
        assert first[name].response_ids[: len(thought)] == thought
    assert first["vanilla"].response_ids[: budget.think] == first["separate"].response_ids[: budget.think]


def test_a_smaller_budget_cuts_the_same_thought(session: Session, models: Models) -> None:
    large = performed(session, asked(models, Budget(100, 32), ("separate",), sample=2))
    small = performed(session, asked(models, Budget(40, 32), ("separate",), sample=2))
    assert small.generated <= 32 and small.reused == 40, "only the solution is drawn"
    (long, short) = (trajectories(run)["separate"].response_ids for run in (large, small))
    assert short[:40] == long[:40]
    again = performed(session, asked(models, Budget(40, 32), ("separate",), sample=2))
    assert again.generated == 0 and trajectories(again) == trajectories(small)


def test_solutions_are_graded_where_there_is_a_reference(session: Session, models: Models) -> None:
    runs = [performed(session, asked(models, Budget(None, 32), ("separate",), sample)) for sample in range(4)]
    grades = [run.attempts[0].grade for run in runs]
    assert any(grade is not None and grade.status is GradeStatus.CORRECT for grade in grades)
    what = asked(models, Budget(48, 32), ("separate",))
    typed = replace(what, problem=replace(what.problem, truth=""))
    assert performed(session, typed).attempts[0].grade is None


def test_what_cannot_run_is_said_beside_what_can(session: Session, models: Models) -> None:
    run = performed(session, asked(models, Budget(None, 32), ("separate", "l1_exact")))
    refused = run.attempts[1]
    assert refused.state == "failed" and refused.sentence.startswith("l1_exact cannot run under unlimited+32; expected")
    run = performed(session, asked(models, Budget(2000, 32), ("separate", "unconstrained")))
    assert "do not fit the model's context of 1,024 tokens" in run.attempts[0].sentence
    assert run.attempts[1].state == "done"
    assert "do not fit" in render(run)


@pytest.mark.parametrize("at_once", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_two_models_side_by_side_answer_as_each_does_alone(
    session: Session, models: Models, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """The second one has the same weights: under the same budget, problem and seed its answers are the same. Where one
    engine fits at a time they come one after the other."""
    monkeypatch.setattr(session.engines, "at_once", at_once)
    names = ("separate", "budget_forcing", "vanilla")
    what = replace(asked(models, Budget(48, 32), names, sample=20 + at_once), models=("base", "copy"))
    run = performed(session, what)
    assert [(each.strategy, each.model) for each in run.attempts] == list(product(names, what.models))
    assert len(session.engines._loaded) == at_once
    for base, copy in zip(run.attempts[::2], run.attempts[1::2], strict=True):
        assert base.trajectory is not None and base.trajectory == copy.trajectory and base.grade == copy.grade
    alone = performed(session, replace(what, models=("base",)))
    assert alone.generated == 0, "nothing is drawn anew"
    assert trajectories(alone) == {each.strategy: each.trajectory for each in run.attempts if each.model == "base"}


def test_a_model_that_cannot_be_loaded_leaves_the_other_its_answer(session: Session, models: Models) -> None:
    run = performed(session, replace(asked(models, Budget(4, 4), ("separate",)), models=("base", "broken")))
    assert [attempt.state for attempt in run.attempts] == ["done", "failed"]
    assert run.attempts[1].sentence.startswith("broken cannot be loaded: ")


def test_thought_templates_guide_a_conversation_beside_the_others(session: Session, models: Models) -> None:
    budget = Budget(160, 32)
    run = performed(session, asked(models, budget, ("separate", "reasonflux_zero"), sample=4))
    guided = trajectories(run)["reasonflux_zero"].check(budget)
    assert {role for _, role in guided.turns} == {"navigator", "solver"}
    assert run.attempts[1].grade is not None
    assert 'data-strategy="reasonflux_zero"' in render(run)


def test_templates_that_cannot_be_had_fail_their_strategy_alone(
    session: Session, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(_: Models) -> Templates:
        raise UserError("the library cannot be fetched")

    monkeypatch.setattr(Models, "templates", nowhere)
    monkeypatch.setattr(session.engines._loaded["base"], "guided", None)
    run = performed(session, asked(models, Budget(48, 32), ("separate", "reasonflux_zero"), sample=4))
    assert [attempt.state for attempt in run.attempts] == ["done", "failed"]
    assert run.attempts[1].sentence == "the library cannot be fetched"


def test_a_run_that_is_given_up_leaves_the_engine_free(session: Session, models: Models) -> None:
    async def give_up() -> None:
        run = asked(models, Budget(900, 32), ("unconstrained",), sample=3)
        work = asyncio.ensure_future(session.perform(run))
        await asyncio.sleep(0.3)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    LOOP.run(give_up())
    assert performed(session, asked(models, Budget(4, 4), ("separate",))).attempts[0].state == "done"


def test_a_model_that_cannot_be_loaded_is_one_sentence(session: Session, models: Models) -> None:
    what = replace(asked(models, Budget(4, 4)), models=("broken",))
    with pytest.raises(UserError, match=r"^broken cannot be loaded: .+") as error:
        performed(session, what)
    assert "\n" not in str(error.value)
