"""Further tables whose truth is known, for `coverage_settings`: tokens whose lengths are skewed, what k samples are
worth, curves, ratings, and problems that come in groups. Half widths of tokens are in percent of the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product

import numpy as np
import polars as pl

from elastic_core.rewards.codeforces import Standings, contest_rating, rank, rating, score
from elastic_core.statistics.accuracy import mean_score, score_difference
from elastic_core.statistics.at_k import maj_at_k_values, pass_at_k_values
from elastic_core.statistics.budgets import anytime_accuracy, anytime_differences, marginal_accuracy
from elastic_core.statistics.cost import p95
from elastic_core.statistics.curves import area_difference, log_law, overlap, read_curve
from elastic_core.statistics.estimates import CLUSTER, length_error, mean_tokens, paired_ratio, problem_table
from elastic_core.statistics.intervals import Estimate, mean_share
from elastic_core.statistics.responses import thinking_spent
from elastic_core.strategies import FREE
from elastic_core.trajectory import CELL, SolutionFinish, ThinkFinish
from tests.bench.coverage_settings import SOLUTION, Draw, Drawn, Kind, Setting, frame, judged, skills

_MANY = 60_000
"""Problems of the table that a truth without a closed form is read off."""
_MEDIAN = 100.0  # Tokens of the median response.


def token_kinds() -> list[Kind]:
    lengths = "log lengths of problems that spread by 0.5 to 1.5, or Pareto's 1.5 and 1.1, limits at 8 to 30 medians"
    few, many = "5 to 500 problems", "30 to 500 problems"
    return [
        Kind("mean tokens", f"{many}, 1 and 16 samples, {lengths}; 1 in 5 forced", list(mean_lengths())),
        Kind("95th percentile", f"{few}, 1 to 16 samples, {lengths}", list(percentiles())),
        Kind("saved, ratio of lengths", f"{many}, {lengths}; cut at the median, trained, longer", list(ratios())),
        Kind("length error", f"{many}, {lengths}, 3 medians requested", list(errors()), 0.5),
        Kind("pass@k", f"{few}, k of 2 to 16 of 16 samples, pass@1 2 to 90 %", list(passes()), 0.5),
        Kind("maj@k, majority_n", f"{few}, k of 4 and 16 of 16 samples, 3 wrong answers", list(votes()), 0.2),
        Kind("gain per 100 tokens", f"10 to 500 problems, {lengths}", list(gains()), 0.5),
        Kind("difference at equal tokens", "10 to 100 problems, 5 budgets, skewed lengths", list(areas()), 0.3),
        Kind("slope over budgets", "10 to 500 problems, 5 budgets, 1 and 16 samples", list(slopes()), 0.3),
        Kind("anytime accuracy", "10 to 500 problems, 5 budgets, 1 and 16 samples", list(anytimes()), 0.3),
        Kind("where thinking goes", "10 to 100 problems, 4 samples, skewed lengths", list(spent()), 0.2),
        Kind("Codeforces rating", "5 to 30 contests of 3 to 8 problems, 1 and 8 attempts", list(contests()), 0.5),
        Kind("groups of problems", "8 to 100 groups, alike to unequal, within them alike", list(groups()), 0.5),
    ]  # fmt: skip


LAWS = {
    "log-sd 0.5, limit 8": (0.5, 8.0),
    "log-sd 1, limit 8": (1.0, 8.0),
    "log-sd 1.5, limit 8": (1.5, 8.0),
    "log-sd 1.5, limit 30": (1.5, 30.0),
    "Pareto 1.5, limit 10": (-1.5, 10.0),
    "Pareto 1.1, limit 16": (-1.1, 16.0),
}
"""Of a problem's median length in medians: the spread of a log-normal, or minus the index of a Pareto tail; and the
limit that ends every response."""


def hardness(random: np.random.Generator, law: str, count: int) -> np.ndarray:
    """The length of each problem's median response in medians, shape (problems, 1)."""
    shape, _ = LAWS[law]
    if shape > 0:
        return np.exp(random.normal(0, shape, (count, 1)))
    return (random.pareto(-shape, (count, 1)) + 1) / 2 ** (-1 / shape)


def lengths(random: np.random.Generator, law: str, hard: np.ndarray, k: int, spread: float = 0.4) -> np.ndarray:
    """Tokens of each sample, shape (problems, samples)."""
    drawn = hard * np.exp(random.normal(0, spread, (len(hard), k)))
    return np.ceil(_MEDIAN * np.minimum(drawn, LAWS[law][1]))


_KNOWN: dict[tuple[object, ...], float] = {}


def known(*key: object, by: Callable[[np.random.Generator], float]) -> float:
    """A truth that is read off one large table, once for all settings that share it."""
    if key not in _KNOWN:
        _KNOWN[key] = float(by(np.random.default_rng(0)))
    return _KNOWN[key]


def drawn_lengths(random: np.random.Generator, law: str) -> np.ndarray:
    return lengths(random, law, hardness(random, law, _MANY), 4)


def long(values: np.ndarray, **columns: object) -> pl.DataFrame:
    """Rows of values by problem and sample."""
    problem, sample = np.indices(values.shape).reshape(2, -1)
    table = pl.DataFrame({"problem": problem, "sample": sample, "value": values.ravel()})
    return table.with_columns(**{name: pl.lit(value) for name, value in columns.items()})


def relative(found: Estimate, truth: float, scale: float | None = None) -> Drawn:
    """In percent of the truth; an unbounded interval has no width."""
    width = 50 * (found.high - found.low) / (scale or truth)
    return Drawn(found.low - 1e-9 <= truth <= found.high + 1e-9, width if np.isfinite(width) else np.nan)


def _mean(values: np.ndarray) -> Estimate:
    return mean_tokens(frame(values.mean(axis=1), values.shape[1]), "score")


def mean_lengths() -> Iterator[Setting]:
    for n, k, law in product((30, 100, 500), (1, 16), LAWS):
        truth = known("mean", law, by=lambda random, law=law: drawn_lengths(random, law).mean())

        def draw(random: np.random.Generator, n: int = n, k: int = k, law: str = law, truth: float = truth) -> Drawn:
            return relative(_mean(lengths(random, law, hardness(random, law, n), k)), truth)

        yield Setting(f"{n} problems × {k}, {law}", draw)
    for n, share in product((30, 100, 500), (0.2, 0.5)):

        def forced(random: np.random.Generator, n: int = n, share: float = share) -> Drawn:
            return relative(_mean(3.0 * (random.random((n, 4)) < random.beta(share, 1 - share, (n, 1)))), 3 * share)

        yield Setting(f"{n} problems × 4, {share:.0%} have 3 forced tokens", forced)


def percentiles() -> Iterator[Setting]:
    for n, k, law in product((5, 30, 100, 500), (1, 4, 16), LAWS):
        truth = known("p95", law, by=lambda random, law=law: np.quantile(drawn_lengths(random, law), 0.95))

        def draw(random: np.random.Generator, n: int = n, k: int = k, law: str = law, truth: float = truth) -> Drawn:
            return relative(p95(long(lengths(random, law, hardness(random, law, n), k)), "value"), truth)

        yield Setting(f"{n} problems × {k}, {law}", draw)


def ratios() -> Iterator[Setting]:
    def pair(random: np.random.Generator, how: str, law: str, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        hard = hardness(random, law, n)
        free = lengths(random, law, hard, k)
        if how == "cut":
            return np.minimum(free, _MEDIAN) + 20, free + 20
        if how == "longer":
            return free, np.minimum(lengths(random, law, hard, k), _MEDIAN) + 20
        return lengths(random, law, 0.6 * hard * np.exp(random.normal(0, 0.3, hard.shape)), k), free

    for n, k, law, how in product((30, 100, 500), (1, 16), LAWS, ("cut", "trained", "longer")):

        def ratio(random: np.random.Generator, law: str = law, how: str = how) -> float:
            top, bottom = pair(random, how, law, _MANY, 4)
            return float(top.mean() / bottom.mean())

        truth = known("ratio", how, law, by=ratio)

        def draw(
            random: np.random.Generator, n: int = n, k: int = k, law: str = law, how: str = how, truth: float = truth
        ) -> Drawn:
            sides = pair(random, how, law, n, k)
            return relative(paired_ratio(*(long(each) for each in sides), "value"), truth)

        yield Setting(f"{n} problems × {k}, {law}, {how}", draw)


def errors() -> Iterator[Setting]:
    for n, law in product((30, 100, 500), LAWS):
        truth = known("mean", law, by=lambda random, law=law: drawn_lengths(random, law).mean()) - 3 * _MEDIAN

        def draw(random: np.random.Generator, n: int = n, law: str = law, truth: float = truth) -> Drawn:
            table = long(lengths(random, law, hardness(random, law, n), 4)).rename({"value": "think_tokens"})
            rows = table.with_columns(solution_tokens=0, think_budget=int(2 * _MEDIAN), solution_budget=int(_MEDIAN))
            return relative(length_error(rows), truth, 3 * _MEDIAN)

        yield Setting(f"{n} problems × 4, {law}", draw)


def passes() -> Iterator[Setting]:
    for n, k, mean, alike in product((5, 10, 30, 100, 500), (2, 8, 16), (0.02, 0.1, 0.5, 0.9), (0.1, 0.5)):
        many = skills(np.random.default_rng(0), mean, alike, _MANY)
        truth = float((1 - (1 - many) ** k).mean())

        def draw(
            random: np.random.Generator, n: int = n, k: int = k, mean: float = mean, alike: float = alike,
            truth: float = truth,
        ) -> Drawn:  # fmt: skip
            right = random.random((n, 16)) < skills(random, mean, alike, n)[:, None]
            rows = long(right.astype(float)).rename({"value": "score"})
            values = pass_at_k_values(rows, k, ["problem"]).with_columns(num_samples=16)
            return judged(mean_score(values, "pass_at_k"), truth)

        yield Setting(f"{n} problems, k = {k}, pass@1 {mean:.0%}, correlation {alike:g}", draw)


def votes() -> Iterator[Setting]:
    def drawn(random: np.random.Generator, n: int, k: int, mean: float, alike: float) -> Estimate:
        right = random.random((n, 16)) < skills(random, mean, alike, n)[:, None]
        wrong = (random.random((n, 16, 1)) > np.cumsum(random.dirichlet([0.5] * 3, n), axis=1)[:, None, :2]).sum(axis=2)
        rows = long(np.where(right, 0, 1 + wrong)).with_columns(
            answer=pl.col("value").cast(pl.String), score=(pl.col("value") == 0).cast(pl.Float64)
        )
        values = maj_at_k_values(rows, k, ["problem"]).with_columns(num_samples=16)
        return mean_score(values, "maj_at_k")

    for n, k, mean, alike in product((5, 30, 100, 500), (4, 16), (0.1, 0.5, 0.9), (0.1, 0.5)):

        def many(random: np.random.Generator, k: int = k, mean: float = mean, alike: float = alike) -> float:
            return drawn(random, _MANY // 2, k, mean, alike).mean

        truth = known("vote", k, mean, alike, by=many)

        def draw(
            random: np.random.Generator, n: int = n, k: int = k, mean: float = mean, alike: float = alike,
            truth: float = truth,
        ) -> Drawn:  # fmt: skip
            return judged(drawn(random, n, k, mean, alike), truth)

        yield Setting(f"{n} problems, k = {k}, pass@1 {mean:.0%}, correlation {alike:g}", draw)


def cells(random: np.random.Generator, law: str, n: int, k: int, budgets: tuple[int, ...], worth: float) -> np.ndarray:
    """Scores and tokens of a ladder that shares its draws, shape (2, budgets, problems, samples): a thought that the
    budget cuts is right as often as `worth` says of one that ends."""
    hard = hardness(random, law, n)
    thought = lengths(random, law, hard, k)
    luck = random.random((n, k)) / np.clip(0.9 * random.beta(2, 1, (n, 1)), 1e-9, None)
    limit = np.array(budgets)[:, None, None]
    cut = thought > limit
    return np.stack([(luck < np.where(cut, worth, 1.0)).astype(float), np.minimum(thought, limit) + 20.0])


def rows_of(values: np.ndarray, budgets: tuple[int, ...], **columns: object) -> pl.DataFrame:
    """Rows of a trajectory table, of `cells`."""
    place, problem, sample = np.indices(values.shape[1:]).reshape(3, -1)
    table = pl.DataFrame(
        {
            "think_budget": np.array(budgets)[place], "problem": problem, "sample": sample,
            "score": values[0].ravel(), "tokens": values[1].ravel(),
        }
    )  # fmt: skip
    return table.with_columns(
        think_tokens=pl.col("tokens"), solution_tokens=0, solution_budget=SOLUTION,
        **{name: pl.lit(value) for name, value in columns.items()},
    )  # fmt: skip


_PLACE = {"model": "m", "benchmark": "b", "strategy": "separate"}
_BUDGETS = (50, 100, 200, 400, 800)


def gains() -> Iterator[Setting]:
    budgets = (100, 200)
    for n, k, law, worth in product((10, 30, 100, 500), (1, 8), LAWS, (0.0, 0.9)):

        def gain(random: np.random.Generator, law: str = law, worth: float = worth) -> float:
            means = [cells(random, law, _MANY, 4, budgets, worth).mean(axis=(2, 3)) for _ in range(10)]
            scores, tokens = np.mean(means, axis=0)
            return float(100 * np.diff(scores)[0] / np.diff(tokens)[0])

        truth = known("gain", law, worth, by=gain)

        def draw(
            random: np.random.Generator, n: int = n, k: int = k, law: str = law, worth: float = worth,
            truth: float = truth,
        ) -> Drawn:  # fmt: skip
            rows = rows_of(cells(random, law, n, k, budgets, worth), budgets, **_PLACE)
            found = marginal_accuracy(problem_table(rows, ["score", "tokens"], CELL))
            if found.is_empty() or found["low"][0] is None:
                return Drawn(True)
            low, high = found.select("low", "high").row(0)
            return Drawn(low <= truth + 1e-12 and truth - 1e-12 <= high, 50 * (high - low))

        yield Setting(f"{n} problems × {k}, {law}, a cut thought is worth {worth:.0%}", draw)


def areas() -> Iterator[Setting]:
    for n, k, law, worths in product((10, 30, 100), (1, 8), list(LAWS)[1::2], ((0.0, 0.0), (0.0, 0.6), (0.9, 0.9))):

        def curve(random: np.random.Generator, n: int, k: int, law: str, worth: float) -> pl.DataFrame:
            return rows_of(cells(random, law, n, k, _BUDGETS, worth), _BUDGETS, **_PLACE)

        def area(random: np.random.Generator, law: str = law, worths: tuple[float, float] = worths) -> float:
            means = (cells(random, law, _MANY, 1, _BUDGETS, worth).mean(axis=2)[..., None] for worth in worths)
            return area_difference(*(read_curve(rows_of(each, _BUDGETS, **_PLACE)) for each in means)).mean

        truth = known("area", law, worths, by=area)

        def draw(
            random: np.random.Generator, n: int = n, k: int = k, law: str = law,
            worths: tuple[float, float] = worths, truth: float = truth,
        ) -> Drawn:  # fmt: skip
            first, second = (read_curve(curve(random, n, k, law, worth)) for worth in worths)
            return judged(area_difference(first, second), truth) if overlap(first, second) else Drawn(True)

        yield Setting(f"{n} problems × {k}, {law}, cut thoughts worth {worths[0]:.0%} and {worths[1]:.0%}", draw)


def slopes() -> Iterator[Setting]:
    for n, k, law, worth in product((10, 30, 100, 500), (1, 16), list(LAWS)[::3], (0.0, 0.95)):

        def slope(random: np.random.Generator, law: str = law, worth: float = worth) -> float:
            scores = cells(random, law, _MANY, 1, _BUDGETS, worth)[0].mean(axis=(1, 2))
            return float(np.polyfit(np.log2(_BUDGETS), scores, 1)[0])

        truth = known("slope", law, worth, by=slope)

        def draw(
            random: np.random.Generator, n: int = n, k: int = k, law: str = law, worth: float = worth,
            truth: float = truth,
        ) -> Drawn:  # fmt: skip
            found = log_law(rows_of(cells(random, law, n, k, _BUDGETS, worth), _BUDGETS))
            assert found is not None
            return judged(found.slope, truth)

        yield Setting(f"{n} problems × {k}, {law}, a cut thought is worth {worth:.0%}", draw)


def anytimes() -> Iterator[Setting]:
    """The area of a model, and its difference from that of another."""
    law = "log-sd 1, limit 8"
    for n, k, worth in product((10, 30, 100, 500), (1, 16), (0.0, 0.95)):

        def area(random: np.random.Generator, worth: float) -> float:
            scores = cells(random, law, _MANY, 1, _BUDGETS, worth)[0].mean(axis=(1, 2))
            return float(np.trapezoid(scores, np.log(_BUDGETS)) / np.log(16))

        truths = [known("anytime", w, by=lambda random, w=w: area(random, w)) for w in (worth, 1.0)]

        def draw(
            random: np.random.Generator, n: int = n, k: int = k, worth: float = worth, truths: list[float] = truths
        ) -> Drawn:
            rows = [
                rows_of(cells(random, law, n, k, _BUDGETS, w), _BUDGETS, **_PLACE | {"model": name})
                for name, w in (("a", worth), ("b", 1.0))
            ]
            problems = problem_table(pl.concat(rows), ["score"], CELL)
            low, high = anytime_accuracy(problems).select("anytime_low", "anytime_high").row(0)
            apart = anytime_differences(problems, [("a", "b")]).select("low", "high").row(0)
            holds = low <= truths[0] <= high, apart[0] <= truths[1] - truths[0] <= apart[1]
            return Drawn(holds[random.integers(2)], 50 * (high - low))

        yield Setting(f"{n} problems × {k}, a cut thought is worth {worth:.0%}", draw)


def spent() -> Iterator[Setting]:
    """Each number of each rung in turn."""
    budgets = (100, 400)
    names = ("needed", "overthinking", "futile", "starved", "solved_within")

    def table(random: np.random.Generator, law: str, n: int, right: float) -> pl.DataFrame:
        hard = hardness(random, law, n)
        thought = lengths(random, law, hard, 4)
        able = (random.random((n, 4)) < 0.95) & (random.random((n, 1)) < right)
        parts = []
        for budget in (*budgets, None):
            limit = np.inf if budget is None else budget
            cut = thought > limit
            part = long(np.minimum(thought, limit)).rename({"value": "think_tokens"})
            parts.append(
                part.with_columns(
                    score=pl.Series((able & ~cut).ravel().astype(float)),
                    think_budget=pl.lit(budget, pl.Int64),
                    solution_budget=pl.lit(None if budget is None else SOLUTION, pl.Int64),
                    strategy=pl.lit(FREE if budget is None else "separate"),
                    think_finish=pl.Series(np.where(cut, ThinkFinish.FORCED, ThinkFinish.CLOSED).ravel()),
                    solution_finish=pl.lit(SolutionFinish.STOP),
                    forced_tokens=pl.Series(cut.ravel().astype(int)),
                    model=pl.lit("m"),
                    benchmark=pl.lit("b"),
                )
            )
        return thinking_spent(pl.concat(parts))

    for n, law, right in product((10, 30, 100), list(LAWS)[1:4:2], (0.7, 0.97)):
        truth = table(np.random.default_rng(0), law, 10_000, right)

        def draw(
            random: np.random.Generator, n: int = n, law: str = law, right: float = right, truth: pl.DataFrame = truth
        ) -> Drawn:
            found, name = table(random, law, n, right), names[random.integers(len(names))]
            place = int(random.integers(found.height))
            low, high = found.row(place, named=True)[f"{name}_low"], found.row(place, named=True)[f"{name}_high"]
            return Drawn(low - 1e-9 <= truth[name][place] <= high + 1e-9)

        yield Setting(f"{n} problems × 4, {law}, {right:.0%} can be solved", draw)


_WORTH = {"A": 500.0, "B": 1000.0, "C": 1500.0, "D": 2000.0, "E": 2500.0, "F": 3000.0, "G": 3250.0, "H": 3500.0}


@cache
def standing(number: int) -> tuple[Standings, np.ndarray]:
    """A contest of 3 to 8 problems and their difficulties, in rating points, with 300 participants who solve them by
    Elo's law."""
    random = np.random.default_rng([7, number])
    count = 3 + number % 6
    hard = np.sort(random.normal(1500, 600, count))
    people = np.clip(random.normal(1500, 350, 300), 0, None)
    solved = random.random((300, count)) < 1 / (1 + 10 ** ((hard - people[:, None]) / 400))
    worth = np.array(list(_WORTH.values())[:count])
    points = (solved * worth * random.uniform(0.5, 1, solved.shape)).sum(axis=1)
    problems = dict(zip(list(_WORTH)[:count], worth, strict=True))
    return Standings(number, problems, people, points, np.zeros(300)), hard


def contests() -> Iterator[Setting]:
    """The rating over 200 contests of a model that solves problems by Elo's law, and differs by contest."""
    pool = range(1, 201)

    def results(random: np.random.Generator, number: int, skill: float, k: int) -> dict[str, list[bool]]:
        found, hard = standing(number)
        chance = 1 / (1 + 10 ** ((hard - skill - random.normal(0, 200)) / 400))
        tried = random.random((k, len(hard))) < chance
        return {name: list(tried[:, place]) for place, name in enumerate(found.problems)}

    for count, k, skill in product((5, 10, 30), (1, 8), (300.0, 1000.0, 1600.0, 2200.0)):

        def mean(random: np.random.Generator, k: int = k, skill: float = skill) -> float:
            rated = []
            for number in [*pool] * 5:
                of, _ = standing(number)
                own = score(of.problems, results(random, number, skill, k))
                rated.append(contest_rating(rank(own, of), of.ratings))
            return float(np.mean(rated))

        truth = known("rating", k, skill, by=mean)

        def draw(
            random: np.random.Generator, count: int = count, k: int = k, skill: float = skill, truth: float = truth
        ) -> Drawn:
            chosen = [int(number) for number in random.choice(pool, count)]
            solved, known = {}, {}
            for place, number in enumerate(chosen, 1):
                of, _ = standing(number)
                known[place] = Standings(place, of.problems, of.ratings, of.points, of.penalties)
                solved |= {f"{place}{name}": tried for name, tried in results(random, number, skill, k).items()}
            found = rating(solved, known, {1500: 1}, mean_share)
            assert found is not None
            return Drawn(found.low - 1e-9 <= truth <= found.high + 1e-9, (found.high - found.low) / 2)

        yield Setting(f"{count} contests × {k} attempts, skill {skill:.0f}", draw)


def groups() -> Iterator[Setting]:
    """Problems of one template are alike: an accuracy, a difference and mean tokens over them."""
    sizes: dict[str, Draw | Callable[[np.random.Generator, int], np.ndarray]] = {
        "of 5": lambda random, count: np.full(count, 5),
        "of 1 to 20": lambda random, count: random.integers(1, 21, count),
        "of 2, one of a tenth": lambda random, count: np.append(np.full(count - 1, 2), max(2, count // 4)),
    }

    for count, of, alike, what in product((8, 30, 100), sizes, (0.3, 0.9), ("accuracy", "difference", "tokens")):
        if what == "tokens" and count < 30:
            continue

        def draw(
            random: np.random.Generator, count: int = count, of: str = of, alike: float = alike, what: str = what
        ) -> Drawn:
            size = sizes[of](random, count)  # type: ignore[arg-type, call-arg]
            group = np.repeat(np.arange(count), size)  # type: ignore[arg-type]
            named = pl.Series(CLUSTER, group.astype(str))
            shared = random.random(len(group)) < np.sqrt(alike)
            skill = np.where(shared, random.beta(2, 1, count)[group], random.beta(2, 1, len(group)))
            if what == "tokens":
                logs = np.where(shared, random.normal(0, 0.8, count)[group], random.normal(0, 0.8, len(group)))
                values = np.exp(logs)[:, None] * np.exp(random.normal(0, 0.4, (len(group), 4)))
                table = frame(values.mean(axis=1), 4).with_columns(named)
                return relative(mean_tokens(table, "score"), float(np.exp((0.8**2 + 0.4**2) / 2)))
            free = random.binomial(4, skill) / 4
            if what == "accuracy":
                return judged(mean_score(frame(free, 4).with_columns(named)), 2 / 3)
            luck = np.where(shared, random.random(count)[group], random.random(len(group)))
            sides = (frame(each, 4).with_columns(named) for each in (free * (luck >= 0.1), free))
            return judged(score_difference(*sides), -0.1 * 2 / 3)

        yield Setting(f"{what}, {count} groups {of}, alike {alike:g}", draw)
