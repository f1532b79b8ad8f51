"""The Codeforces rating of a model, by CodeElo (Quan et al. 2025, arXiv 2501.01257), and its percentile among users.

The standings of each contest say which rank the model's result would have had; the contest's rating is the one at which
that rank is to be expected among the rated participants, and the model's the mean over contests. Scores, ranks and
bounds follow CodeElo's program (QwenLM/CodeElo, calc_rating.py; rllm's cf_elo_calc.py for Elastic Reasoning). By it

- time is not counted: a solved problem is worth more to a model than to any human;
- a rejected attempt costs 50 points down to 0, not to 30 % of the problem's points;
- problems of a contest without results count as unsolved, and contests of all divisions alike;
- a participant's first contest has the rating 0 in the API, and counts with it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MAX_ATTEMPTS = 8  # Attempts per problem in CodeElo. rllm's program counts the first alone by default.
POINTS_PER_FAILURE = 50
PENALTY_PER_FAILURE = 10  # minutes, in ICPC contests
MIN_PARTICIPANTS = 201  # rated participants; CodeElo does not use contests with fewer
LOWEST_RATING = 0.0
HEADROOM = 100.0  # rating points above the best participant, which is where a contest's rating ends
MIN_CONTESTS = 5  # contests from which on a rating has an interval; of 3 alike ones it holds too seldom
TOLERANCE = 0.01  # rating points within which a contest's rating is found

SAMPLE_TESTS_NOTE = (
    "378 of the 408 problems come with a single sample test, so that solved mostly means that the samples pass; "
    "Codeforces judges by hidden tests, which fewer programs pass, and the rating would be lower by them."
)

_ID = re.compile(r"([1-9][0-9]*)([A-Z]+[0-9]*)")


@dataclass(frozen=True, eq=False)
class Standings:
    """The rated participants of a contest. ValueError when the columns differ in number, or hold a NaN or infinity."""

    contest: int
    problems: Mapping[str, float | None]  # points by index; None where solving it counts 1, as in ICPC contests
    ratings: np.ndarray  # before the contest, shape (participants,)
    points: np.ndarray  # shape (participants,); problems solved in ICPC contests
    penalties: np.ndarray  # minutes, shape (participants,); 0 where problems have points

    def __post_init__(self) -> None:
        columns = (self.ratings, self.points, self.penalties)
        if len({len(column) for column in columns}) > 1:
            raise ValueError("ratings, points and penalties differ in number")
        if not all(np.isfinite(column).all() for column in columns):
            raise ValueError("a rating, points or a penalty is missing")


class Score(NamedTuple):
    """A result in a contest: more points are better, then less penalty (minutes)."""

    points: float
    penalty: float


@dataclass(frozen=True)
class CodeforcesRating:
    """A model's rating, with its 95 % interval, and the contests that it was measured on."""

    rating: float
    low: float
    high: float
    percentile: float  # share of users with a lower rating, 0 to 100; likewise of the interval's ends
    percentile_low: float
    percentile_high: float
    contests: Mapping[int, float]  # rating in each contest used
    unknown_problems: tuple[str, ...]  # ids that the standings of their contest do not list; they are not scored


def split_id(id: str) -> tuple[int, str]:
    """Contest and index of a problem: "1970E3" is (1970, "E3"). ValueError when it is not one."""
    match = _ID.fullmatch(id)
    if not match:
        raise ValueError(f'"{id}" is not a Codeforces problem; expected a contest and an index, as in "1970E3"')
    return int(match[1]), match[2]


def score(problems: Mapping[str, float | None], results: Mapping[str, Sequence[bool]]) -> Score:
    """Score of the model after its first `MAX_ATTEMPTS` attempts at each problem; `results` by index, in order.

    The first success counts and ends the attempts; each failure before it costs POINTS_PER_FAILURE of the problem's
    points, down to 0, or PENALTY_PER_FAILURE. An unsolved problem costs nothing. Others than `problems` do not count.
    """
    points, penalty = 0.0, 0.0
    for index in problems.keys() & results.keys():
        tried = list(results[index][:MAX_ATTEMPTS])
        if True not in tried:
            continue
        failures, worth = tried.index(True), problems[index]
        if worth is None:
            points += 1
            penalty += PENALTY_PER_FAILURE * failures
        else:
            points += max(0.0, worth - POINTS_PER_FAILURE * failures)
    return Score(points, penalty)


def rank(own: Score, standings: Standings) -> int:
    """The rank that the score would have had: as many as are not worse, at least 1. Solving nothing is always last."""
    ahead = standings.points > own.points
    level = standings.points == own.points
    return max(1, int(np.sum(ahead | (level & (standings.penalties <= own.penalty)))))


def expected_rank(rating: float, opponents: np.ndarray) -> float:
    """1 + the sum of each opponent's probability to be better, by Elo (CodeElo's equation of the expected rank)."""
    return 1 + float(np.sum(1 / (1 + 10 ** ((rating - opponents) / 400))))


def contest_rating(rank: float, opponents: np.ndarray) -> float:
    """The rating at which `rank` is expected among opponents of these ratings, by bisection to TOLERANCE. Ranks that no
    rating explains are at the bounds: LOWEST_RATING, and the best opponent's rating and HEADROOM."""
    low, high = LOWEST_RATING, _highest(opponents)
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        if expected_rank(middle, opponents) < rank:
            high = middle
        else:
            low = middle
    return low


def _highest(opponents: np.ndarray) -> float:
    return max(LOWEST_RATING, float(opponents.max()) + HEADROOM)


def percentile(rating: float, users: Mapping[int, int]) -> float:
    """Share of users with a lower rating, 0 to 100; `users` is their number by rating, of one user at least."""
    return 100 * sum(number for value, number in users.items() if value < rating) / sum(users.values())


def rating(
    results: Mapping[str, Sequence[bool]],
    standings: Mapping[int, Standings],
    users: Mapping[int, int],
    interval: Callable[[np.ndarray], tuple[float, float]],
) -> CodeforcesRating | None:
    """The model's rating over all contests that its problems belong to; None without a rated one of known standings.

    The k samples of a problem are attempts in their order, so this is pass@k with a price: one success among the first
    min(k, `MAX_ATTEMPTS`) is enough, failures before it cost points. Different k are not comparable.

    Contests are independent where their problems are not, so the interval counts contests, with their ratings as shares
    of the highest that any of them can give. Fewer than `MIN_CONTESTS` bound nothing.

    Args:
        results: success of each attempt, at least one, by problem id. Another id is a ValueError.
        users: number of users by rating.
        interval: that of the mean of shares in [0, 1], one per contest.
    """
    attempted: defaultdict[int, dict[str, Sequence[bool]]] = defaultdict(dict)
    for (contest, index), id in sorted((split_id(id), id) for id in results):
        attempted[contest][index] = results[id]
    usable = [c for c in attempted if c in standings and len(standings[c].ratings) >= MIN_PARTICIPANTS]
    if not usable:
        return None
    rated = {}
    for contest in usable:
        reached = rank(score(standings[contest].problems, attempted[contest]), standings[contest])
        rated[contest] = contest_rating(reached, standings[contest].ratings)
    values = np.array(list(rated.values()))
    mean, low, high = float(values.mean()), -np.inf, np.inf
    if len(usable) >= MIN_CONTESTS:
        most = max(_highest(standings[contest].ratings) for contest in usable)
        low, high = (most * bound for bound in interval(values / most))
    middle, lowest, highest = (percentile(value, users) for value in (mean, low, high))
    unknown = (f"{c}{index}" for c in usable for index in attempted[c] if index not in standings[c].problems)
    return CodeforcesRating(mean, low, high, middle, lowest, highest, rated, tuple(unknown))
