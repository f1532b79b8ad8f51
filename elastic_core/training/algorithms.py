"""Algorithms of training: how rollouts of a problem are made, and each token's advantage.

- GRPO: one thought and one solution a rollout, under one budget; rewards are compared within a problem's rollouts.
- AnytimeReasoner (Qi et al. 2025, "Optimizing anytime reasoning via budget relative policy optimization", 2505.13438):
  a thought is cut at budgets t_1 < ... < t_S, and answered several times from every cut. Each segment is rewarded for
  the cuts after it, J = sum_j p_j score_j, compared with the thought's earlier cuts and the problem's other thoughts
  (`verl/trainer/ppo/brpo.py` of sail-sg/AnytimeReasoner). Differences: a cut writes think-end and nothing else; and a
  thought that ended early is answered as often as a cut is, theirs once more for every later cut.
- REO-RL in small (Gao et al. 2025, "How far are we from optimal reasoning efficiency?", arXiv 2506.07104): the same
  cuts, at budgets that grow exponentially, with one reward for all of the thought. Our choices, which its abstract
  leaves open: the weights (`shares`, "width"), GRPO's advantage for the thought, and anytime training's for answers.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from elastic_core.budget import Budget
from elastic_core.engines.base import Engine, drive
from elastic_core.engines.memo import ContinuationMemo
from elastic_core.models.special_tokens import Markers
from elastic_core.strategies.base import Completion, Generate, Sampling
from elastic_core.strategies.separate import separate
from elastic_core.trajectory import Trajectory

if TYPE_CHECKING:
    import torch

_EPSILON = 1e-6
Weighting = Literal["uniform", "linear", "log-uniform", "width"]
Divisor = Literal["group", "batch", "none"]
"""What an advantage is divided by: the deviation within its problem, in the whole batch, or nothing."""


@dataclass(frozen=True)
class Credit:
    """Reward and baseline of a segment of a thought that is cut; see `cut_advantages`."""

    of: Literal["segment", "whole"]
    own_baseline: bool
    divisor: Divisor


CREDITS = {"anytime": Credit("segment", True, "none"), "reo": Credit("whole", False, "group")}
"""The published ones, by `train.algorithm`."""


@dataclass(frozen=True)
class Cuts:
    """Budgets that a thought is cut at, ascending, with the weight p_j of each; answers per cut, and their tokens."""

    at: tuple[int, ...]
    weights: tuple[float, ...]
    answers: int
    solution: int


Answered = Sequence[Sequence[Trajectory]]
"""A thought's trajectories by cut and answer. From the thought's own end on all cuts have the same ones."""


def even_cuts(think: int) -> tuple[int, ...]:
    """At each quarter of `think` tokens, as AnytimeReasoner cuts 8000."""
    return tuple(sorted({max(1, think * quarter // 4) for quarter in (1, 2, 3, 4)}))


def halved_cuts(think: int) -> tuple[int, ...]:
    """At an eighth, a quarter, half and all of `think` tokens: budgets that grow exponentially."""
    return tuple(sorted({max(1, think // 2**halvings) for halvings in range(4)}))


def check_cuts(cuts: Sequence[int], think: int) -> None:
    """Raises ValueError unless the cuts ascend from 1 or more to `think`, the longest thought."""
    if not cuts or cuts[0] < 1 or any(b <= a for a, b in pairwise(cuts)):
        raise ValueError(f"cuts = {list(cuts)}; expected ascending numbers of tokens, 1 or more each")
    if cuts[-1] != think:
        raise ValueError(f"cuts end at {cuts[-1]} and the budget thinks for {think} tokens; expected the same")


def shares(weighting: Weighting | Sequence[float], cuts: Sequence[int]) -> tuple[float, ...]:
    """The weight p_j of each cut; their sum is 1.

    "uniform" and "linear" (p_j proportional to t_j) are AnytimeReasoner's. "log-uniform" makes the sum of p_j score_j
    the mean of accuracy over log t between the first cut and the last. "width" makes it the mean over t from 0 to the
    last, where each cut stands for the budgets up to it. ValueError for a list without a weight for each cut.
    """
    if not isinstance(weighting, str):
        given = [float(weight) for weight in weighting]
        if len(given) != len(cuts) or min(given) < 0 or not 0 < sum(given) < math.inf:
            raise ValueError(f"cut_weights = {given} for {len(cuts)} cuts; expected a weight of 0 or more for each")
    elif weighting == "uniform" or len(cuts) == 1:
        given = [1.0] * len(cuts)
    elif weighting == "linear":
        given = [float(cut) for cut in cuts]
    elif weighting == "width":
        given = [float(b - a) for a, b in pairwise([0, *cuts])]
    else:
        logs = [math.log(cut) for cut in cuts]
        given = [b - a for a, b in zip([logs[0], *logs[:-1]], [*logs[1:], logs[-1]], strict=True)]
    total = sum(given)
    return tuple(weight / total for weight in given)


@dataclass(frozen=True)
class Row:
    """A sequence that is trained on: a thought after its problem, or an answer after problem and thought."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    mask: list[int]  # 1 for each response token that enters the loss
    logprobs: tuple[float, ...] | None
    advantages: list[float]  # of each response token
    score: float | None  # of an answer


@dataclass(frozen=True)
class _Solver:
    """An engine that samples answer `number` to every question once: after the thought's end all cuts share one
    answer."""

    engine: Engine
    number: int
    drawn: dict[Generate, "asyncio.Future[Completion]"]

    async def generate(self, request: Generate, seed: int) -> Completion:
        request = replace(request, draw=self.number)
        if request not in self.drawn:
            self.drawn[request] = asyncio.ensure_future(self.engine.generate(request, seed))
        return await self.drawn[request]


async def think_and_answer(
    prompt: tuple[int, ...], cuts: Cuts, markers: Markers, sampling: Sampling, engine: Engine, seed: int
) -> Answered:
    """One thought and its answers: `separate` at every cut, where the memo has the thought drawn once."""
    memo = ContinuationMemo(engine)
    drawn: dict[Generate, asyncio.Future[Completion]] = {}

    async def answer(think: int, number: int) -> Trajectory:
        run = separate(prompt, Budget(think, cuts.solution), markers, sampling)
        return await drive(run, {"thinker": memo, "solver": _Solver(engine, number, drawn)}, seed)

    async def answers(think: int) -> Sequence[Trajectory]:
        return await asyncio.gather(*(answer(think, number) for number in range(cuts.answers)))

    # The memo answers in the order of requests: the longest thought is sampled first.
    return (await asyncio.gather(*map(answers, reversed(cuts.at))))[::-1]


def group_advantages(
    token_level_rewards: "torch.Tensor",
    response_mask: "torch.Tensor",
    index: np.ndarray,
    *,
    divisor: Divisor = "group",
    **_: Any,
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """GRPO's group advantage (Elastic Reasoning, section 3.2.2): rewards less their group's mean, over its deviation.

        A_i = (r_i - mean(r)) / (std(r) + 1e-6)

    on every token of rollout i that is trained on, 0 on others.

    verl's "grpo" takes mean and deviation in single precision. There the mean of equal fractional rewards, like
    those of L1's responses that are all cut, is off by 1e-7, and divided by 1e-6. In double precision it is exact, so a
    group without variance has advantage 0.

    Args:
        token_level_rewards: (rollouts, tokens), the reward on the last token.
        response_mask: (rollouts, tokens), 0 where not trained on or padding.
        index: (rollouts,) which group each is of.
        divisor: "none" divides by nothing (Dr. GRPO, 2503.20783); "batch" as `whitened` (REINFORCE++-baseline,
            2501.03262; DLER, 2510.15110).

    Returns:
        Advantages and returns, (rollouts, tokens), the same, without a critic.
    """
    import torch

    rewards = token_level_rewards.sum(dim=-1).double()
    advantages = torch.empty_like(rewards)
    for group in set(index):
        rows = torch.from_numpy(index == group)
        advantages[rows] = rewards[rows] - rewards[rows].mean()
        if divisor == "group":
            advantages[rows] /= rewards[rows].std() + _EPSILON
    of_tokens = advantages.unsqueeze(-1) * response_mask
    of_tokens = (whitened(of_tokens, response_mask) if divisor == "batch" else of_tokens).float()
    return of_tokens, of_tokens


def whitened(advantages: "torch.Tensor", mask: "torch.Tensor") -> "torch.Tensor":
    """Advantages less their mean over all tokens of the batch that are trained on, over the deviation there; 0 on
    other tokens, and everywhere without variance. Both are (rows, tokens); verl's `masked_whiten`."""
    trained = advantages[mask.bool()].double()
    if trained.numel() < 2:
        return advantages * 0
    return (advantages - trained.mean()) / (trained.std() + _EPSILON) * mask


def cut_advantages(scores: np.ndarray, weights: Sequence[float], credit: Credit) -> np.ndarray:
    """Advantages of segments s = 0..S-1, the tokens between cut s-1 and cut s: a return R less its expectation V.

        A(s) = (R(s) - V(s)) / D(s)                                                             (1)
        R(s) = sum_{j >= from(s)} p_j score_j                                                   (2)
        V(s) = (s V1(s) + (S - s) V2(s)) / S with the own baseline, else V2(s)                  (3)
        V1(s) = (sum_{i < s} 2^i score_i / sum_{i < s} 2^i) sum_{j >= from(s)} p_j              (4)
        V2(s) = mean of R(s)                                                                    (5)

    where from(s) is s if a segment is rewarded for what it can still change, and 0 if for the whole thought. V1 is the
    thought's own past, which weighs the more, the further the thought is; means are over the problem's thoughts.
    D(s) is 1, or std(R(s)) + 1e-6 of the problem's thoughts.

    AnytimeReasoner's (brpo.py's `compute_cot_advantage`) is by segment, with the own baseline and without D; REO's in
    small is for whole thoughts, without the own baseline and with D, so alike in all segments.

    `scores` are (thoughts, cuts), the mean score of each cut's answers, and `weights` p; returns (thoughts, cuts).
    """
    number = scores.shape[1]
    p = np.asarray(weights)
    advantages = np.empty_like(scores, dtype=float)
    for s in range(number):
        first = s if credit.of == "segment" else 0
        reward = scores[:, first:] @ p[first:]
        expected = reward.mean()
        if credit.own_baseline:
            past = scores[:, :s] @ (2.0 ** np.arange(s)) / max(1.0, 2.0**s - 1) * p[first:].sum()
            expected = (s * past + (number - s) * expected) / number
        advantages[:, s] = reward - expected
        if credit.divisor == "group":
            advantages[:, s] /= reward.std(ddof=1) + _EPSILON
    return advantages


def answer_advantages(scores: np.ndarray) -> np.ndarray:
    """Score minus the mean at the same cut of the same thought, not weighted by p; brpo.py's
    `compute_summary_advantage`. `scores` are (thoughts, cuts, answers)."""
    return scores - scores.mean(axis=2, keepdims=True)


def rows(
    thoughts: Sequence[Answered],
    scores: np.ndarray,
    cuts: Cuts,
    *,
    credit: Credit = CREDITS["anytime"],
    truncated: bool = True,
) -> list[list[Row]]:
    """Rows of one problem, thought by thought: the thought, unless it is empty, and every answer once.

    Args:
        scores: of all answers, (thoughts, cuts, answers).
        truncated: train on answers that a limit ended too.
    """
    of_thoughts, of_answers = cut_advantages(scores.mean(axis=2), cuts.weights, credit), answer_advantages(scores)
    found: list[list[Row]] = []
    for number, answered in enumerate(thoughts):
        # Sampled tokens of the thought; token i is of the segment before the next cut.
        whole = answered[-1][0]
        end = whole.think_tokens  # The policy does not choose the forced think-ends that come after it.
        segments = np.searchsorted(cuts.at, np.arange(end), side="right")
        logprobs = None if whole.logprobs is None else whole.logprobs[:end]
        advantages = of_thoughts[number][segments].tolist()
        thought = Row(whole.prompt_ids, whole.response_ids[:end], [1] * end, logprobs, advantages, None)
        of_thought = [thought] if thought.response_ids else []
        for cut in range(num_distinct(answered)):
            for answer, trajectory in enumerate(answered[cut]):
                score, advantage = scores[number, cut, answer], of_answers[number, cut, answer]
                of_thought.append(_answer_row(trajectory, float(score), float(advantage), truncated))
        found.append(of_thought)
    return found


def num_distinct(answered: Answered) -> int:
    """Number of cuts with separate answers: up to the first one at or after the thought's end."""
    starts = [trajectories[0].response_ids[: trajectories[0].solution_start] for trajectories in answered]
    return 1 + sum(a != b for a, b in pairwise(starts))


def _answer_row(trajectory: Trajectory, score: float, advantage: float, truncated: bool) -> Row:
    start = trajectory.solution_start
    assert start is not None, "separate always answers"
    response, mask = trajectory.response_ids[start:], trajectory.loss_mask(truncated=truncated)[start:]
    logprobs = None if trajectory.logprobs is None else trajectory.logprobs[start:]
    prompt = trajectory.prompt_ids + trajectory.response_ids[:start]
    return Row(prompt, response, mask, logprobs, [advantage] * len(response), score)
