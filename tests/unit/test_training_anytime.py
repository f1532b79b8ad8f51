"""Anytime training: what a thought's cuts are worth to its segments, and that following it leads uphill."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from elastic_core.strategies import Sampling
from elastic_core.training.algorithms import (
    CREDITS,
    Answered,
    Credit,
    Cuts,
    answer_advantages,
    cut_advantages,
    even_cuts,
    halved_cuts,
    num_distinct,
    rows,
    shares,
    think_and_answer,
)
from elastic_core.training.grpo.parameters import GrpoParameters
from tests.scripted import ScriptedEngine
from tests.unit.test_memo import END, EOS, MARKERS, WORD

ANYTIME = CREDITS["anytime"]
DIVISORS: list[Any] = ["group", "none"]
OF: list[Any] = ["segment", "whole"]
EVERY_CREDIT = [Credit(*chosen) for chosen in itertools.product(OF, (True, False), DIVISORS)]
PROMPT = (7, 8)
CUTS = Cuts(at=(2, 4, 6), weights=(0.5, 0.3, 0.2), answers=2, solution=3)
SAMPLING = Sampling(logprobs=True)


# The advantages.


def transcribed(scores: list[list[float]], p: list[float]) -> list[list[float]]:
    """The paper's repository, token budget by token budget: `compute_cot_advantage` of brpo.py, in plain loops."""
    thoughts, cuts = len(scores), len(p)
    found = [[0.0] * cuts for _ in range(thoughts)]
    for g in range(thoughts):
        for s in range(cuts):
            own_return = sum(scores[g][j] * p[j] for j in range(s, cuts))
            average_return = sum(sum(scores[i][j] * p[j] for j in range(s, cuts)) for i in range(thoughts)) / thoughts
            last_return = 0.0
            if s > 0:
                discounts = [2.0**i for i in range(s)]
                before = sum(scores[g][i] * discounts[i] for i in range(s)) / sum(discounts)
                last_return = before * sum(p[s:])
            baseline = (s * last_return + (cuts - s) * average_return) / cuts
            found[g][s] = own_return - baseline
    return found


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[float]], list[float]]:
    cuts = draw(st.integers(1, 6))
    of_thought = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=cuts, max_size=cuts)
    weights = draw(st.lists(st.floats(0.01, 1), min_size=cuts, max_size=cuts))
    return draw(st.lists(of_thought, min_size=2, max_size=8)), [weight / sum(weights) for weight in weights]


@given(tables())
def test_thinking_advantages_are_the_authors(table: tuple[list[list[float]], list[float]]) -> None:
    scores, p = table
    assert cut_advantages(np.array(scores), p, ANYTIME) == pytest.approx(np.array(transcribed(scores, p)))


@given(st.integers(2, 8), st.integers(1, 5), st.floats(0, 1))
def test_a_problem_whose_answers_are_all_worth_the_same_teaches_nothing(thoughts: int, cuts: int, score: float) -> None:
    scores, p = np.full((thoughts, cuts), score), shares("linear", range(1, cuts + 1))
    for credit in EVERY_CREDIT:
        assert cut_advantages(scores, p, credit) == pytest.approx(0, abs=1e-6)
    assert not answer_advantages(np.full((thoughts, cuts, 4), 0.5)).any()


def test_by_hand() -> None:
    scores = np.array([[0.0, 1.0], [0.0, 0.0]])
    # Segment 0: R = 1/2 and 0, mean 1/4. Segment 1: R = 1/2 and 0, V1 = 0 for both, V2 = 1/4; half of each.
    assert cut_advantages(scores, [0.5, 0.5], ANYTIME).tolist() == [[0.25, 0.375], [-0.25, -0.125]]
    # REO gives a whole thought one advantage, over its deviation.
    reo = cut_advantages(scores, [0.5, 0.5], CREDITS["reo"])
    assert reo == pytest.approx(np.array([[1, 1], [-1, -1]]) / np.sqrt(2), abs=1e-4)


@pytest.mark.parametrize(
    ("credit", "expected"),
    [
        # R = 3/4 and 1/4 of the whole, mean 1/2; the first thought's own past is 1/2, the second's 0.
        (Credit("whole", True, "none"), [[0.25, 0.25], [-0.25, 0.0]]),
        (Credit("whole", False, "none"), [[0.25, 0.25], [-0.25, -0.25]]),
        (Credit("segment", False, "none"), [[0.25, 0.125], [-0.25, -0.125]]),
        (Credit("segment", False, "group"), [[np.sqrt(0.5), np.sqrt(0.5)], [-np.sqrt(0.5), -np.sqrt(0.5)]]),
    ],
)
def test_credit_baseline_and_divisor_are_chosen_one_by_one(credit: Credit, expected: list[list[float]]) -> None:
    scores = np.array([[0.5, 1.0], [0.0, 0.5]])
    assert cut_advantages(scores, [0.5, 0.5], credit) == pytest.approx(np.array(expected), abs=1e-4)


@given(tables(), st.sampled_from(["segment", "whole"]))
def test_divided_advantages_do_not_depend_on_the_unit_of_rewards(
    table: tuple[list[list[float]], list[float]], of: Any
) -> None:
    scores, p = np.array(table[0]), table[1]
    one, ten = (cut_advantages(scores * unit, p, Credit(of, False, "group")) for unit in (1, 10))
    assert one == pytest.approx(ten, abs=1e-3)


def test_an_answer_is_compared_with_those_of_the_same_cut_of_the_same_thought() -> None:
    scores = np.array([[[1.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 1.0]]])
    assert answer_advantages(scores).tolist() == [[[0.5, -0.5], [0.0, 0.0]], [[0.0, 0.0], [-0.5, 0.5]]]


def bandit_step(logits: np.ndarray, rng: np.random.Generator, p: Sequence[float]) -> np.ndarray:
    """The policy gradient of one group. Each of two segments chooses one of two tokens, 1 is right; the cut after a
    segment is answered right with the share of right tokens so far, by two answers."""
    probabilities = 1 / (1 + np.exp(-logits))
    tokens = rng.random((8, 2)) < probabilities
    chance = np.cumsum(tokens, axis=1) / [1, 2]
    scores = (rng.random((8, 2, 2)) < chance[..., None]).astype(float)
    return np.asarray((cut_advantages(scores.mean(axis=2), p, ANYTIME) * (tokens - probabilities)).mean(axis=0))


def worth(logits: np.ndarray, p: Sequence[float]) -> float:
    first, second = 1 / (1 + np.exp(-logits))
    return float(p[0] * first + p[1] * (first + second) / 2)


@pytest.mark.parametrize("p", [(0.5, 0.5), (0.9, 0.1), (0.0, 1.0)])
def test_the_gradient_points_uphill(p: tuple[float, float]) -> None:
    rng, logits = np.random.default_rng(1), np.array([-0.5, 0.3])
    found = np.mean([bandit_step(logits, rng, p) for _ in range(8000)], axis=0)
    step = 1e-4
    slope = np.array([(worth(logits + d, p) - worth(logits - d, p)) / (2 * step) for d in np.eye(2) * step])
    # Within its own noise; the group's mean holds the thought itself, which takes an eighth of the second baseline.
    shrunk = slope * [1 - 1 / 8, 1 - 1 / 16]
    assert found == pytest.approx(shrunk, abs=0.006)


def test_following_it_learns_both_segments() -> None:
    rng, logits = np.random.default_rng(2), np.zeros(2)
    for _ in range(400):
        logits = logits + 0.5 * bandit_step(logits, rng, (0.5, 0.5))
    assert worth(logits, (0.5, 0.5)) > 0.9


# The rollouts.


def thought_of(*tokens: int) -> tuple[ScriptedEngine, Answered]:
    """A model that thinks these tokens, then words, and answers with one that tells which draw it is."""

    def next_token(prefix: tuple[int, ...], seed: int) -> int:
        if END in prefix:
            return 100 + seed % 50 if prefix[-1] == END else EOS
        at = len(prefix) - len(PROMPT)
        return tokens[at] if at < len(tokens) else WORD

    engine = ScriptedEngine(next_token)
    return engine, asyncio.run(think_and_answer(PROMPT, CUTS, MARKERS, SAMPLING, engine, seed=3))


def test_a_thought_is_drawn_once_and_answered_from_every_cut() -> None:
    engine, answered = thought_of()
    thinking = [request for request in engine.requests if request.prefix == PROMPT]
    assert [request.max_tokens for request in thinking] == [6]
    assert [len(request.prefix) - len(PROMPT) - 1 for request in engine.requests[1:]] == [6, 6, 4, 4, 2, 2]
    for cut, trajectories in zip(CUTS.at, answered, strict=True):
        assert [t.response_ids[: cut + 1] for t in trajectories] == [(*[WORD] * cut, END)] * 2
        assert trajectories[0].response_ids != trajectories[1].response_ids, "each answer is a draw of its own"


@pytest.mark.parametrize("last", [END, EOS])
def test_a_thought_that_ended_early_is_answered_once_for_every_later_cut(last: int) -> None:
    engine, answered = thought_of(WORD, WORD, WORD, last)
    assert num_distinct(answered) == 2
    assert answered[2] == answered[1] != answered[0]
    assert len(engine.requests) == 1 + 2 * CUTS.answers


def test_where_think_end_is_forced_just_before_the_model_s_own_the_two_cuts_are_one() -> None:
    engine, answered = thought_of(WORD, WORD, END)
    assert [trajectories[0].forced_tokens for trajectories in answered] == [1, 0, 0]
    assert num_distinct(answered) == 1 and len(engine.requests) == 1 + CUTS.answers


def scored(answered: Answered, *scores: float) -> np.ndarray:
    """(1, cuts, answers): the score of each cut, the first answer's 1 more than the second's if it is a half."""
    return np.array([[[float(score > 0), float(score > 0.5)] for score in scores]])


def test_rows_are_the_thought_and_each_answer_once_and_forced_tokens_are_in_none() -> None:
    _, answered = thought_of()
    (found,) = rows([answered], scored(answered, 0.5, 1, 0), CUTS)
    thought, *answers = found
    assert thought.prompt_ids == PROMPT and thought.response_ids == (WORD,) * 6 and thought.mask == [1] * 6
    assert [row.prompt_ids for row in answers[::2]] == [(*PROMPT, *[WORD] * cut, END) for cut in CUTS.at]
    assert all(row.mask == [1, 1] and row.response_ids[-1] == EOS for row in answers)
    assert [row.advantages[0] for row in answers] == [0.5, -0.5, 0, 0, 0, 0]
    assert [row.score for row in found] == [None, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    assert all(row.logprobs == (-1.0,) * len(row.response_ids) for row in found)


def test_each_token_of_a_thought_has_the_advantage_of_its_segment() -> None:
    answers = [thought_of()[1], thought_of(WORD, WORD, END)[1]]
    scores = np.concatenate([scored(answers[0], 0, 1, 1), scored(answers[1], 1, 1, 1)])
    by_segment = cut_advantages(scores.mean(axis=2), CUTS.weights, ANYTIME)
    long, short = (of_thought[0] for of_thought in rows(answers, scores, CUTS))
    assert long.advantages == [value for value in by_segment[0] for _ in range(2)]
    assert short.advantages == [by_segment[1, 0], by_segment[1, 0], by_segment[1, 1]]


def test_a_thought_of_no_tokens_leaves_its_answers_only() -> None:
    _, answered = thought_of(EOS)
    (found,) = rows([answered], scored(answered, 1, 1, 1), CUTS)
    assert [row.prompt_ids for row in found] == [(*PROMPT, END)] * 2


def test_answers_that_a_limit_ended_can_be_left_out() -> None:
    engine = ScriptedEngine(lambda prefix, seed: WORD)
    answered = asyncio.run(think_and_answer(PROMPT, CUTS, MARKERS, SAMPLING, engine, seed=3))
    (found,) = rows([answered], scored(answered, 0, 0, 0), CUTS, truncated=False)
    assert found[0].mask == [1] * 6 and not any(any(row.mask) for row in found[1:])


# The settings.


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("uniform", [1 / 3] * 3), ("linear", [1 / 7, 2 / 7, 4 / 7]), ("log-uniform", [0.25, 0.5, 0.25]),
        ("width", [0.25, 0.25, 0.5]), ((2, 1, 1), [0.5, 0.25, 0.25]),
    ],
)  # fmt: skip
def test_weights_of_cuts(weighting: Any, expected: list[float]) -> None:
    assert shares(weighting, [256, 512, 1024]) == pytest.approx(expected)
    assert shares("log-uniform", [8]) == (1.0,)


def test_cuts_follow_the_budget_unless_given() -> None:
    assert even_cuts(48) == (12, 24, 36, 48) and halved_cuts(48) == (6, 12, 24, 48)
    assert even_cuts(2) == (1, 2) and halved_cuts(1) == (1,)
    assert GrpoParameters(budget="1k+1k", algorithm="anytime").cuts_at == (256, 512, 768, 1024)
    assert GrpoParameters(budget="1k+1k", algorithm="reo").cuts_at == (128, 256, 512, 1024)
    assert GrpoParameters(budget="48+32", algorithm="anytime", cuts=[6, 48]).cuts_at == (6, 48)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cuts": [512, 1024]}, "cuts .*grpo"),
        ({"answers": 2}, "answers"),
        ({"algorithm": "anytime", "cuts": [512, 512, 1024]}, "ascending"),
        ({"algorithm": "anytime", "cuts": [512]}, " 512 .* 1024 "),
        ({"algorithm": "anytime", "cut_weights": [1, 2]}, " 4 cuts"),
        ({"algorithm": "anytime", "budget": "512..1k+1k"}, "budget"),
        ({"algorithm": "anytime", "budget": "0+32"}, " 0 tokens"),
        ({"algorithm": "reo", "strategy": "vanilla"}, "strategy = vanilla"),
        ({"algorithm": "anytime", "train_on_forced_end": True}, "train_on_forced_end"),
        ({"algorithm": "anytime", "answers": 1}, "answers"),
    ],
)
def test_what_cannot_be_cut_is_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GrpoParameters(**settings)


def test_without_them_a_training_keeps_its_key() -> None:
    names = {"algorithm", "cuts", "cut_weights", "answers", "max_generated_tokens"}
    assert not names & GrpoParameters().model_dump(mode="json").keys()
    assert GrpoParameters(algorithm="anytime").fixed_budget is None
