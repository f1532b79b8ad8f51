"""AnytimeReasoner (Qi et al. 2025, "Optimizing anytime reasoning via budget relative policy optimization", BRPO, arXiv
2505.13438).

A thought of at most t_S tokens is cut at budgets t_1 < ... < t_S, and answered several times from every cut. It is
worth what all its cuts are worth,

    J = sum_j p_j score_j,                                                                      (1)

so that each of its segments is rewarded for the cuts that come after it, compared with what the thought's earlier cuts
and the problem's other thoughts promised.

The advantages are those of the authors' code (`verl/trainer/ppo/brpo.py` of sail-sg/AnytimeReasoner), the numbers of
equations our own: no deviation divides them. Two things differ: a cut writes think-end and nothing else, as `separate`
does wherever the model is used; and a thought that ended early is answered as often as a cut is, where theirs is
answered once more for every later cut.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from elastic_core.budget import Budget
from elastic_core.engines.base import Engine, drive
from elastic_core.engines.memo import ContinuationMemo
from elastic_core.models.special_tokens import Markers
from elastic_core.strategies.base import Completion, Generate, Sampling
from elastic_core.strategies.separate import separate
from elastic_core.training.grpo.masks import loss_mask
from elastic_core.trajectory import Trajectory


@dataclass(frozen=True)
class Cuts:
    """Budgets that a thought is cut at, ascending, with the weight p_j of each; answers per cut, and their tokens."""

    at: tuple[int, ...]
    weights: tuple[float, ...]
    answers: int
    solution: int


Answered = Sequence[Sequence[Trajectory]]
"""A thought's trajectories by cut and number of the answer. From the thought's own end on all cuts have the same ones.
"""


@dataclass(frozen=True)
class Row:
    """A sequence that is trained on: a thought after its problem, or an answer after problem and thought.

    Attributes:
        mask: 1 for each response token that enters the loss.
        advantages: of each response token.
        score: of an answer, None of a thought.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    mask: list[int]
    logprobs: tuple[float, ...] | None
    advantages: list[float]
    score: float | None


@dataclass(frozen=True)
class _Once:
    """An engine that answers every question once; the same question again gets the same answer."""

    engine: Engine
    asked: dict[Generate, "asyncio.Future[Completion]"] = field(default_factory=dict)

    async def generate(self, request: Generate, seed: int) -> Completion:
        if request not in self.asked:
            self.asked[request] = asyncio.ensure_future(self.engine.generate(request, seed))
        return await self.asked[request]


@dataclass(frozen=True)
class _Draw:
    """An engine's draw of this number."""

    engine: Engine
    number: int

    async def generate(self, request: Generate, seed: int) -> Completion:
        return await self.engine.generate(replace(request, draw=self.number), seed)


async def think_and_answer(
    prompt: tuple[int, ...], cuts: Cuts, markers: Markers, sampling: Sampling, engine: Engine, seed: int
) -> Answered:
    """One thought and its answers: `separate` at every cut, where the memo has the thought drawn once."""
    memo, solver = ContinuationMemo(engine), _Once(engine)

    async def answer(think: int, number: int) -> Trajectory:
        run = separate(prompt, Budget(think, cuts.solution), markers, sampling)
        return await drive(run, {"thinker": memo, "solver": _Draw(solver, number)}, seed)

    async def answers(think: int) -> Sequence[Trajectory]:
        return await asyncio.gather(*(answer(think, number) for number in range(cuts.answers)))

    # The memo answers in the order of requests: the whole thought is drawn first.
    return (await asyncio.gather(*map(answers, reversed(cuts.at))))[::-1]


def thinking_advantages(scores: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    """Of segment s = 0..S-1, what was thought between cut s-1 and cut s; brpo.py's `compute_cot_advantage`.

    What the segment can still change, less what was to be expected, where the thought's own past V1 tells the more the
    further the thought is, and V2 is the mean over the problem's thoughts:

        A(s) = R(s) - V(s)                                                                      (2)
        R(s) = sum_{j >= s} p_j score_j                                                         (3)
        V(s) = (s V1(s) + (S - s) V2(s)) / S                                                    (4)
        V1(s) = (sum_{i < s} 2^i score_i / sum_{i < s} 2^i) sum_{j >= s} p_j                    (5)
        V2(s) = mean of R(s)                                                                    (6)

    Args:
        scores: (thoughts, cuts), the mean score of each cut's answers.
        weights: p, (cuts,).

    Returns:
        (thoughts, cuts).
    """
    number = scores.shape[1]
    p = np.asarray(weights)
    to_come = np.cumsum((p * scores)[:, ::-1], axis=1)[:, ::-1]
    advantages = np.empty_like(to_come)
    for s in range(number):
        past = scores[:, :s] @ (2.0 ** np.arange(s)) / max(1.0, 2.0**s - 1) * p[s:].sum()
        expected = (s * past + (number - s) * to_come[:, s].mean()) / number
        advantages[:, s] = to_come[:, s] - expected
    return advantages


def answer_advantages(scores: np.ndarray) -> np.ndarray:
    """Score minus the mean at the same cut of the same thought, not weighted by p; brpo.py's
    `compute_summary_advantage`:

        A(s, a) = score(s, a) - mean over a of score(s, a)                                      (7)

    Args:
        scores: (thoughts, cuts, answers).
    """
    return scores - scores.mean(axis=2, keepdims=True)


def rows(
    thoughts: Sequence[Answered],
    scores: np.ndarray,
    cuts: Cuts,
    *,
    thinking: Callable[[np.ndarray, Sequence[float]], np.ndarray] = thinking_advantages,
    truncated: bool = True,
) -> list[list[Row]]:
    """Rows of one problem, thought by thought: the thought, unless it is empty, and every answer once.

    Args:
        scores: of all answers, (thoughts, cuts, answers).
        thinking: the advantage of a thought's segments, from scores by cut and weights.
        truncated: train on answers that a limit ended too.
    """
    of_thoughts, of_answers = thinking(scores.mean(axis=2), cuts.weights), answer_advantages(scores)
    found: list[list[Row]] = []
    for number, answered in enumerate(thoughts):
        thought = _thought_row(answered[-1][0], of_thoughts[number], cuts)
        of_thought = [thought] if thought.response_ids else []
        for cut in range(num_distinct(answered)):
            for answer, trajectory in enumerate(answered[cut]):
                score, advantage = scores[number, cut, answer], of_answers[number, cut, answer]
                of_thought.append(_answer_row(trajectory, float(score), float(advantage), truncated))
        found.append(of_thought)
    return found


def num_distinct(answered: Answered) -> int:
    """How many cuts have answers of their own: up to the one that the thought's own end comes before."""
    starts = [trajectories[0].response_ids[: trajectories[0].solution_start] for trajectories in answered]
    return 1 + sum(a != b for a, b in pairwise(starts))


def _thought_row(whole: Trajectory, advantages: np.ndarray, cuts: Cuts) -> Row:
    """What the model sampled of a thought; token i is of the first segment whose cut is behind it."""
    end = whole.think_tokens  # Forced think-ends come after it, and are no choice of the policy's.
    segments = np.searchsorted(cuts.at, np.arange(end), side="right")
    logprobs = None if whole.logprobs is None else whole.logprobs[:end]
    return Row(whole.prompt_ids, whole.response_ids[:end], [1] * end, logprobs, advantages[segments].tolist(), None)


def _answer_row(trajectory: Trajectory, score: float, advantage: float, truncated: bool) -> Row:
    start = trajectory.solution_start
    assert start is not None, "separate always answers"
    response, mask = trajectory.response_ids[start:], loss_mask(trajectory, truncated=truncated)[start:]
    logprobs = None if trajectory.logprobs is None else trajectory.logprobs[start:]
    prompt = trajectory.prompt_ids + trajectory.response_ids[:start]
    return Row(prompt, response, mask, logprobs, [advantage] * len(response), score)
