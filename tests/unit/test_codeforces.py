"""Codeforces ratings: CodeElo's rules by example, the maths by property, and a plain rendering of its program."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from elastic_core.rewards.codeforces import (
    HEADROOM,
    MIN_PARTICIPANTS,
    SAMPLE_TESTS_NOTE,
    Score,
    Standings,
    contest_rating,
    expected_rank,
    percentile,
    rank,
    rating,
    score,
    split_id,
)
from elastic_core.statistics.intervals import mean_share
from tests.upstream import UPSTREAM, needs_upstream

SCORED: dict[str, float | None] = {"A": 500.0, "B": 1000.0, "C1": 1500.0, "C2": 250.0}
ICPC: dict[str, float | None] = dict.fromkeys(SCORED)
USERS = {800: 50, 1200: 30, 1600: 15, 2400: 5}
CODEFORCES = UPSTREAM / "SalesforceAIResearch/Elastic-Reasoning/scripts/deepcoder/benchmark/codeforces"

opponents = st.lists(st.integers(-100, 3800), min_size=1, max_size=60).map(lambda values: np.array(values, float))
attempts = st.lists(st.booleans(), min_size=1, max_size=12)
results = st.dictionaries(st.sampled_from(list(SCORED)), attempts)
problems = st.sampled_from([SCORED, ICPC])


def standings(
    rows: Sequence[tuple[float, float, float]], problems: Mapping[str, float | None] = SCORED, contest: int = 1
) -> Standings:
    """Standings of (rating, points, penalty)."""
    return Standings(contest, problems, *np.array(rows, float).reshape(-1, 3).T)


def field(seed: int, problems: Mapping[str, float | None] = SCORED, contest: int = 1, num: int = 300) -> Standings:
    """A contest of `num` whose points follow their ratings, roughly; many solve nothing."""
    rng = np.random.default_rng(seed)
    ratings = rng.normal(1500, 400, num).round()
    most = sum(worth or 1 for worth in problems.values())
    points = np.clip(((ratings - 1300) / 1500 + rng.normal(0, 0.2, num)) * most, 0, most - 1).round()
    penalties = rng.integers(1, 300, num) * (points > 0) * (None in problems.values())
    order = np.lexsort((penalties, -points))
    return Standings(contest, problems, ratings[order], points[order], penalties[order].astype(float))


fields = st.builds(field, st.integers(0, 50), problems, num=st.integers(1, 40))


# Ids


def test_an_id_is_a_contest_and_an_index_and_what_is_none_is_refused() -> None:
    for id, expected in (("1971A", (1971, "A")), ("1970E3", (1970, "E3")), ("1AB", (1, "AB"))):
        assert split_id(id) == expected
    for id in ("", "1971", "A", "1971a", "1971 A", "01971A", "1971A\n", "1971-A", "1971A1B", "¹971A"):
        with pytest.raises(ValueError, match="not a Codeforces problem"):
            split_id(id)


@needs_upstream
def test_real_ids_are_all_understood() -> None:
    ids = json.loads((CODEFORCES / "metadata_cf.json").read_text())
    split = [split_id(id) for id in ids]
    assert len(set(split)) == 408
    assert [f"{contest}{index}" for contest, index in split] == ids
    assert min(split)[0] == 1971


# Scores


@pytest.mark.parametrize(
    ("tried", "in_points", "in_icpc"),
    [
        ([True], Score(500, 0), Score(1, 0)),
        ([False, True], Score(450, 0), Score(1, 10)),
        ([False, False, True, False, True], Score(400, 0), Score(1, 20)),
        ([False] * 7 + [True], Score(150, 0), Score(1, 70)),
        ([False] * 8 + [True], Score(0, 0), Score(0, 0)),
        ([False], Score(0, 0), Score(0, 0)),
    ],
)
def test_the_first_success_of_eight_counts_and_failures_before_it_cost(
    tried: list[bool], in_points: Score, in_icpc: Score
) -> None:
    assert score(SCORED, {"A": tried}) == in_points
    assert score(ICPC, {"A": tried}) == in_icpc


# Ranks


@given(table=fields)
def test_who_solves_nothing_is_last_and_who_solves_all_at_once_is_first(table: Standings) -> None:
    assert rank(score(table.problems, {}), table) == len(table.ratings)
    assert rank(score(table.problems, {index: [True] for index in table.problems}), table) == 1


@given(table=fields, tried=results, index=st.sampled_from(list(SCORED)), failures=st.integers(0, 9))
def test_solving_one_more_problem_never_lowers_the_rating(
    table: Standings, tried: dict[str, list[bool]], index: str, failures: int
) -> None:
    fewer = {other: values for other, values in tried.items() if other != index}
    more = fewer | {index: [False] * failures + [True]}

    def reached(results: dict[str, list[bool]]) -> float:
        return contest_rating(rank(score(table.problems, results), table), table.ratings)

    assert reached(fewer) <= reached(more) <= reached(fewer | {index: [True]})


# Ratings


@given(opponents, st.floats(0, 1))
def test_the_expected_rank_of_a_rating_gives_that_rating(opponents: np.ndarray, share: float) -> None:
    highest = opponents.max() + HEADROOM
    own = share * highest
    assume(expected_rank(own + 0.2, opponents) < expected_rank(own, opponents) < expected_rank(own - 0.2, opponents))
    assert contest_rating(expected_rank(own, opponents), opponents) == pytest.approx(own, abs=0.5)


@given(opponents, st.integers(1, 60))
def test_ratings_fall_with_the_rank_and_stay_within_their_bounds(opponents: np.ndarray, rank: int) -> None:
    better, worse = contest_rating(rank, opponents), contest_rating(rank + 1, opponents)
    assert 0 <= worse <= better <= max(0, opponents.max() + HEADROOM)


def codeelo(table: Standings, tried: Mapping[str, Sequence[bool]]) -> int:
    """What CodeElo's calc_rating.py computes: ranks counted from 0 down sorted rows, whole rating points."""
    points, penalty = 0.0, 0
    for index, worth in table.problems.items():
        for failures, right in enumerate(tried.get(index, [])):
            if right:
                points += 1 if worth is None else max(0, worth - 50 * failures)
                penalty += 10 * failures if worth is None else 0
                break
    place = len(table.ratings)
    for row, (theirs, their_penalty) in enumerate(zip(table.points, table.penalties, strict=True)):
        if theirs < points or (theirs == points and their_penalty > penalty):
            place = row
            break
    low, high = 0, int(table.ratings.max()) + 100
    while high - low > 1:
        middle = (low + high) // 2
        if 1 + sum(1 / (1 + 10 ** ((middle - other) / 400)) for other in table.ratings) < place:
            high = middle
        else:
            low = middle
    return low


@pytest.mark.parametrize("problems", [SCORED, ICPC])
@pytest.mark.parametrize("seed", range(6))
def test_ratings_are_those_of_codeelo(seed: int, problems: Mapping[str, float | None]) -> None:
    rng = np.random.default_rng(seed)
    table = field(seed, problems)
    tried = {index: (rng.random(8) < rng.choice([0, 0.3])).tolist() for index in problems} if seed else {}
    results = {f"1{index}": values for index, values in tried.items()} or {"1A": [False]}
    reached = rating(results, {1: table}, USERS, mean_share)
    assert reached.rating == pytest.approx(codeelo(table, tried), abs=1.1)


# The rating over contests


@given(st.integers(-100, 4000), st.dictionaries(st.integers(-60, 3700), st.integers(1, 1000), min_size=1))
def test_the_percentile_is_the_share_of_users_below(value: int, users: dict[int, int]) -> None:
    everyone = np.repeat(list(users), list(users.values()))
    assert percentile(value, users) == pytest.approx(100 * (everyone < value).mean())


@needs_upstream
def test_percentiles_among_real_users() -> None:
    table = {int(value): num for value, num in json.loads((CODEFORCES / "ratings_2024.json").read_text()).items()}
    assert len(table) == 2502
    assert percentile(-np.inf, table) == percentile(-53, table) == 0
    assert 0 < percentile(-52, table) < 0.01
    assert percentile(3602, table) == 100
    assert percentile(3601, table) == pytest.approx(100 * (1 - 1 / 89352))
    # The rating and percentile that DeepCoder-14B-Preview was published with, from this table.
    assert percentile(1936, table) == pytest.approx(95.3, abs=0.1)


def contests(num: int) -> dict[int, Standings]:
    return {contest: field(contest, contest=contest) for contest in range(1, num + 1)}


def mixed(num: int) -> dict[str, list[bool]]:
    """More and more is solved from contest to contest."""
    return {f"{c}{index}": [i < c % 5] for c in range(1, num + 1) for i, index in enumerate(SCORED)}


def test_the_rating_is_the_mean_over_contests_within_its_interval_which_four_contests_do_not_bound() -> None:
    found = rating(mixed(10), contests(10), USERS, mean_share)
    assert list(found.contests) == list(range(1, 11))
    assert found.rating == pytest.approx(np.mean(list(found.contests.values())))
    assert found.low < found.rating < found.high
    ends = (found.rating, found.low, found.high)
    assert (found.percentile, found.percentile_low, found.percentile_high) == tuple(percentile(e, USERS) for e in ends)
    assert found.unknown_problems == ()
    most = max(one.ratings.max() for one in contests(10).values()) + HEADROOM
    low, high = mean_share(np.array(list(found.contests.values())) / most)
    assert (found.low, found.high) == pytest.approx((most * low, most * high)), "of shares of the highest rating"
    few = rating(mixed(4), contests(4), USERS, mean_share)
    assert (few.low, few.high, few.percentile_low, few.percentile_high) == (-np.inf, np.inf, 0, 100)


def test_a_model_that_solved_nothing_may_solve_something_elsewhere() -> None:
    found = rating({f"{contest}A": [False] for contest in contests(10)}, contests(10), USERS, mean_share)
    assert found.low < found.rating < 100 < 200 < found.high


def test_contests_that_cannot_be_used_are_left_out() -> None:
    small = field(3, contest=3, num=MIN_PARTICIPANTS - 1)
    large = field(4, contest=4, num=MIN_PARTICIPANTS)
    results = {"10A": [True], "3A": [True], "4A": [True], "4Q": [True], "2B": [True]}
    found = rating(results, {3: small, 4: large}, USERS, mean_share)
    assert list(found.contests) == [4]
    assert found.unknown_problems == ("4Q",)


def test_what_cannot_be_rated_is_refused() -> None:
    assert rating({"9A": [True]}, contests(1), USERS, mean_share) is None
    with pytest.raises(ValueError, match='"A1" is not a Codeforces problem'):
        rating({"A1": [True]}, contests(1), USERS, mean_share)


def test_standings_hold_numbers_for_everybody() -> None:
    with pytest.raises(ValueError, match="differ in number"):
        Standings(1, SCORED, np.ones(3), np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match="missing"):
        standings([(1500, np.nan, 0)])


@needs_upstream
def test_the_note_on_sample_tests_states_what_the_problem_file_holds() -> None:
    path = UPSTREAM / "agentica-project/rllm/rllm/data/test/code/codeforces.json"
    tests = [problem["tests"] for problem in json.loads(path.read_text())]
    single = sum(len(json.loads(each) if isinstance(each, str) else each) == 1 for each in tests)
    assert SAMPLE_TESTS_NOTE.startswith(f"{single} of the {len(tests)} problems")
