"""Tables whose truth is known, drawn again and again, and what the statistics of a report say of each.

A draw gives whether the interval holds the truth, or whether nothing false is said; and half the interval's width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import expit, roots_hermitenorm

from elastic_core.budget import Budget
from elastic_core.serving.choice import choose_levels
from elastic_core.statistics.accuracy import mean_score, score_difference
from elastic_core.statistics.budgets import differences_together, falls
from elastic_core.statistics.estimates import by_seed
from elastic_core.statistics.intervals import Estimate
from elastic_core.strategies import FREE
from elastic_core.sweep.grid import Cell
from elastic_core.sweep.stopping import next_samples, widest
from reports.verdict import pairs_of

PROBLEMS = (5, 10, 30, 100, 500)
SAMPLES = (1, 4, 16)
SOLUTION = 32


class Drawn(NamedTuple):
    """Attributes:
    holds: whether what was said is true.
    half_width: in points; nan where what was said has none.
    """

    holds: bool
    half_width: float = np.nan


Draw = Callable[[np.random.Generator], Drawn]


class Setting(NamedTuple):
    name: str
    draw: Draw


class Kind(NamedTuple):
    """Attributes:
    over: what its settings range over.
    share: of the draws of most kinds; one that takes long has fewer.
    """

    what: str
    over: str
    settings: list[Setting]
    share: float = 1.0


def kinds() -> list[Kind]:
    from tests.bench.coverage_tokens import token_kinds  # It is built from what is here.

    sizes = "5 to 500 problems, 1 to 16 samples"
    seeded = "30 and 100 problems, 2, 3 and 5 seeds"
    spread = "seeds that differ by 0, 1, 3 and 10 points"
    return [
        Kind("accuracy of a cell", f"{sizes}, accuracy 2 to 90 %, problems alike to all or nothing", list(cells())),
        Kind("pair, shared draws", f"{sizes}, 0 to 90 % shared, loss 0 to 10 points", list(shared_pairs())),
        Kind("pair, sparse losses", f"{sizes}, 0.5 to 20 % of problems broken, others equal", list(sparse_pairs(0.0))),
        Kind("pair, sparse losses and noise", "the same, with 2 % of other samples redrawn", list(sparse_pairs(0.02))),
        Kind("seeds against base", f"{seeded}, 1 and 16 samples, {spread}", list(seeds(False)), 0.5),
        Kind("seeds against seeds", f"{seeded}, 1 and 16 samples, {spread}", list(seeds(True)), 0.5),
        Kind(
            "seeds against one training: about that training",
            f"{seeded}, 16 samples, {spread}",
            list(one_training()),
            0.5,
        ),
        Kind(
            "8 budgets together, with seeds",
            f"{seeded}, 8 samples; a seed moves each budget by 0, 2 or 4 points",
            list(seeded_budgets()),
            0.3,
        ),
        Kind("all pairs of a ladder", "8 rungs of 10 to 500 problems, sparse losses", list(all_pairs()), 0.3),
        Kind("falls", "1 to 16 lines of 8 equal rungs, 10 to 100 problems", list(all_falls()), 0.2),
        Kind("first sentence", "1 to 10 equal models, 1 to 9 benchmarks of 10 to 100 problems", list(sentences()), 0.4),
        Kind("accuracy of level high", "8 equal budgets, 30 and 100 problems, 1 to 16 samples", list(levels()), 0.2),
        Kind("`--until`", "30 and 100 problems, from 2 samples up to 64", list(until()), 0.3),
        *token_kinds(),
    ]  # fmt: skip


def frame(scores: np.ndarray, num_samples: int, **columns: object) -> pl.DataFrame:
    """The problem table of one cell, of scores of shape (problems,) or (seeds, problems)."""
    by = scores if scores.ndim == 2 else scores[None]
    table = pl.DataFrame(
        {
            "problem": np.arange(by.shape[1]),
            "num_samples": np.full(by.shape[1], len(by) * num_samples),
            "score": by.mean(axis=0),
        }
    )
    lists = [pl.Series(by_seed("score"), np.ascontiguousarray(by.T)).arr.to_list()] if scores.ndim == 2 else []
    return table.with_columns(*lists, **{name: pl.lit(value) for name, value in columns.items()})


def judged(found: Estimate, truth: float) -> Drawn:
    return Drawn(found.low - 1e-9 <= truth <= found.high + 1e-9, 50 * (found.high - found.low))


def skills(random: np.random.Generator, mean: float, alike: float, count: int) -> np.ndarray:
    """Chances of a right answer, beta distributed; at correlation 1 a problem is always or never right."""
    if alike == 1:
        return (random.random(count) < mean).astype(float)
    size = 1 / alike - 1
    return random.beta(mean * size, (1 - mean) * size, count)


def cells() -> Iterator[Setting]:
    for n, k, mean, alike in product(PROBLEMS, SAMPLES, (0.02, 0.1, 0.3, 0.5, 0.9), (0.1, 0.5, 1.0)):

        def draw(
            random: np.random.Generator, n: int = n, k: int = k, mean: float = mean, alike: float = alike
        ) -> Drawn:
            return judged(mean_score(frame(random.binomial(k, skills(random, mean, alike, n)) / k, k)), mean)

        yield Setting(f"{n} problems × {k}, accuracy {mean:.0%}, correlation {alike:g}", draw)


def shared_pairs() -> Iterator[Setting]:
    """As a sweep with the memo draws: a share of the samples is the reference's but for those that are lost."""
    for n, k, shared, loss in product(PROBLEMS, SAMPLES, (0.0, 0.5, 0.9), (0.0, 0.02, 0.1)):

        def draw(
            random: np.random.Generator, n: int = n, k: int = k, shared: float = shared, loss: float = loss
        ) -> Drawn:
            skill = random.beta(2, 1, n)[:, None]
            free, fresh = (random.random((n, k)) < skill for _ in range(2))
            kept = random.random((n, k)) >= loss / (2 / 3)
            cell = np.where(random.random((n, k)) < shared, free, fresh) & kept
            return judged(score_difference(*(frame(each.mean(axis=1), k) for each in (cell, free))), -loss)

        yield Setting(f"{n} problems × {k}, {shared:.0%} shared, {100 * loss:g} points lost", draw)


def sparse(
    random: np.random.Generator, shape: tuple[int, int], broken: float, noise: float, alike: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Scores with a budget and without: it breaks a share of problems outright, and redraws a share of the other
    samples. Alike, all problems are right without it; else their chances are beta(2, 1)."""
    skill = (np.ones(shape[0]) if alike else random.beta(2, 1, shape[0]))[:, None]
    free, again = (random.random(shape) < skill for _ in range(2))
    cell = np.where(random.random(shape) < noise, again, free) & (random.random((shape[0], 1)) >= broken)
    return cell.mean(axis=1), free.mean(axis=1)


def sparse_pairs(noise: float) -> Iterator[Setting]:
    for n, k, broken, alike in product(PROBLEMS, SAMPLES, (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2), (True, False)):
        if noise and alike:
            continue

        def draw(
            random: np.random.Generator, n: int = n, k: int = k, broken: float = broken, alike: bool = alike
        ) -> Drawn:
            sides = sparse(random, (n, k), broken, noise, alike)
            truth = -broken * (1 if alike else 2 / 3)
            return judged(score_difference(*(frame(side, k) for side in sides)), truth)

        yield Setting(f"{n} problems × {k}, {broken:.1%} broken{', all else right' if alike else ''}", draw)


_NODES, _WEIGHTS = roots_hermitenorm(80)
_PROBLEM, _PAIR = 2.0, 0.5
"""Deviations of log-odds: of problems, and of seed with problem."""


def expected(middle: float, deviation: float) -> float:
    """Accuracy where log-odds are normal."""
    return float(expit(middle + deviation * _NODES) @ _WEIGHTS / _WEIGHTS.sum())


def seed_scale(middle: float) -> float:
    """By how much log-odds move where accuracy moves by one."""
    chances = expit(middle + np.hypot(_PROBLEM, _PAIR) * _NODES)
    return 1 / float((chances * (1 - chances)) @ _WEIGHTS / _WEIGHTS.sum())


def seeds(both: bool) -> Iterator[Setting]:
    """A model of several trainings less its base, or less another recipe that is as good."""
    for n, k, count, spread, middle in product((30, 100), (1, 16), (2, 3, 5), (0.0, 0.01, 0.03, 0.1), (-2.0, 0.5)):
        scale = spread * seed_scale(middle)
        ours = expected(middle, float(np.sqrt(_PROBLEM**2 + _PAIR**2 + scale**2)))
        truth = 0.0 if both else ours - expected(middle - 1, _PROBLEM)

        def draw(
            random: np.random.Generator,
            n: int = n, k: int = k, count: int = count, middle: float = middle, scale: float = scale,
            truth: float = truth,
        ) -> Drawn:  # fmt: skip
            problem = middle + random.normal(0, _PROBLEM, n)

            def model() -> pl.DataFrame:
                logits = problem + random.normal(0, scale, (count, 1)) + random.normal(0, _PAIR, (count, n))
                return frame(random.binomial(k, expit(logits)) / k, k)

            base = model() if both else frame(random.binomial(k, expit(problem - 1)) / k, k)
            return judged(score_difference(model(), base), truth)

        accuracy = f"accuracy {ours:.0%}"
        yield Setting(f"{n} problems × {k}, {count} seeds, {100 * spread:g} points apart, {accuracy}", draw)


def one_training() -> Iterator[Setting]:
    """A recipe of several trainings less one training of another, whose own seed is taken as it fell: what it would be
    with another seed no interval can tell from one."""
    middle = 0.5
    for n, count, spread in product((30, 100), (2, 3, 5), (0.0, 0.01, 0.03, 0.1)):
        scale = spread * seed_scale(middle)
        ours = expected(middle, float(np.sqrt(_PROBLEM**2 + _PAIR**2 + scale**2)))

        def draw(
            random: np.random.Generator, n: int = n, count: int = count, scale: float = scale, ours: float = ours
        ) -> Drawn:
            problem = middle + random.normal(0, _PROBLEM, n)
            luck = random.normal(0, scale, (count + 1, 1))
            scores = random.binomial(16, expit(problem + luck + random.normal(0, _PAIR, (count + 1, n)))) / 16
            that = expected(middle + float(luck[count, 0]), float(np.hypot(_PROBLEM, _PAIR)))
            return judged(score_difference(frame(scores[:count], 16), frame(scores[count], 16)), ours - that)

        yield Setting(f"{n} problems × 16, {count} seeds, {100 * spread:g} points apart", draw)


def seeded_budgets() -> Iterator[Setting]:
    """Eight budgets of a model of several trainings, each less base: all intervals hold the truth."""
    middles = np.linspace(-2, 2, 8)
    for n, count, seed, cell in product((30, 100), (2, 3, 5), (0.0, 0.03), (0.0, 0.02, 0.04)):
        scales = np.array([seed_scale(middle) for middle in middles])
        total = np.sqrt(_PROBLEM**2 + _PAIR**2 + (seed * scales) ** 2 + (cell * scales) ** 2)
        truth = np.array([expected(*each) for each in zip(middles, total, strict=True)])
        truth -= [expected(middle - 0.5, _PROBLEM) for middle in middles]

        def draw(
            random: np.random.Generator,
            n: int = n, count: int = count, seed: float = seed, cell: float = cell, scales: np.ndarray = scales,
            truth: np.ndarray = truth,
        ) -> Drawn:  # fmt: skip
            problem = random.normal(0, _PROBLEM, n)
            common = random.normal(0, _PAIR, (count, n))
            luck = seed * random.normal(size=(count, 1))
            pairs = []
            for middle, scale in zip(middles, scales, strict=True):
                moved = scale * (luck + cell * random.normal(size=(count, 1)))
                ours = random.binomial(8, expit(middle + problem + common + moved)) / 8
                base = random.binomial(8, expit(middle + problem - 0.5)) / 8
                pairs.append((frame(ours, 8), frame(base, 8)))
            return together(pairs, truth)

        name = f"{n} problems, {count} seeds, {100 * seed:g} points apart, by {100 * cell:g} more at each budget"
        yield Setting(name, draw)


def together(pairs: list[tuple[pl.DataFrame, pl.DataFrame]], truth: np.ndarray) -> Drawn:
    found = differences_together(pairs)
    low, high = (np.array([each[side] for each in found]) for side in (1, 2))
    return Drawn(bool(((low - 1e-9 <= truth) & (truth <= high + 1e-9)).all()), 50 * float((high - low).mean()))


def rung(random: np.random.Generator, free: np.ndarray, broken: float, noise: float) -> np.ndarray:
    """Scores of a budget that breaks a share of problems and redraws a share of the other samples."""
    n, k = free.shape
    flipped = free ^ (random.random((n, k)) < noise)
    return (flipped & (random.random((n, 1)) >= broken)).mean(axis=1)


def all_pairs() -> Iterator[Setting]:
    """Of eight rungs that break ever fewer problems, all pairs."""
    for n, k, most in product((10, 30, 100, 500), SAMPLES, (0.02, 0.05, 0.2)):
        broken = np.linspace(most, 0, 8)
        ends = [(i, j) for i in range(8) for j in range(i)]
        truth = np.array([broken[j] - broken[i] for i, j in ends])

        def draw(
            random: np.random.Generator,
            n: int = n, k: int = k, broken: np.ndarray = broken, ends: list[tuple[int, int]] = ends,
            truth: np.ndarray = truth,
        ) -> Drawn:  # fmt: skip
            right = np.ones((n, k), bool)
            rungs = [frame(rung(random, right, share, 0), k) for share in broken]
            return together([(rungs[i], rungs[j]) for i, j in ends], truth)

        yield Setting(f"{n} problems × {k}, up to {most:.0%} broken", draw)


def ladder(scores: list[np.ndarray], k: int, **columns: object) -> pl.DataFrame:
    """A problem table of one strategy, of a cell for each budget of 8, 16, 24 tokens and so on."""
    rungs = [
        frame(each, k, think_budget=8 * number, solution_budget=SOLUTION, **columns)
        for number, each in enumerate(scores, 1)
    ]
    return pl.concat(rungs)


def all_falls() -> Iterator[Setting]:
    """Lines on which every budget breaks as many problems, but not the same ones: no line falls."""
    for (lines, n), broken in product(((1, 10), (1, 100), (4, 10), (4, 100), (16, 30)), (0.1,)):

        def draw(random: np.random.Generator, lines: int = lines, n: int = n, broken: float = broken) -> Drawn:
            free = random.random((n, 4)) < random.beta(2, 1, (n, 1))
            tables = [
                ladder(
                    [rung(random, free, broken, 0) for _ in range(8)],
                    4, model=f"m{number}", benchmark="b", strategy="separate",
                )
                for number in range(lines)
            ]  # fmt: skip
            return Drawn(falls(pl.concat(tables)).is_empty())

        yield Setting(f"{lines} lines, {n} problems × 4, {broken:.0%} broken", draw)


def sentences() -> Iterator[Setting]:
    """Models that are as good as base on every benchmark: nothing is said to differ."""
    of = ((1, 1), (1, 5), (1, 9), (9, 1), (10, 1))
    for (models, benchmarks), n, k, broken in product(of, (10, 100), (1, 8), (0.0, 0.05)):

        def draw(
            random: np.random.Generator,
            models: int = models, benchmarks: int = benchmarks, n: int = n, k: int = k, broken: float = broken,
        ) -> Drawn:  # fmt: skip
            tables = []
            for benchmark in range(benchmarks):
                skill = random.beta(2, 1, (n, 1))
                free = random.random((n, k)) < skill
                for model in ("base", *(f"m{number}" for number in range(models))):
                    if broken:
                        scores = [rung(random, free, broken, 0)] * 2
                    else:
                        scores = [random.binomial(k, skill[:, 0]) / k for _ in range(2)]
                    tables.append(ladder(scores, k, model=model, benchmark=f"b{benchmark}", strategy="separate"))
            found = [one for pair in pairs_of(pl.concat(tables)) for one, _ in pair.found.values()]
            return Drawn(
                all(one.low <= 1e-9 and one.high >= -1e-9 for one in found),
                50 * float(np.mean([one.high - one.low for one in found])),
            )

        how = f"{broken:.0%} broken" if broken else "own draws"
        many = f"{models} model{'s' * (models > 1)}, {benchmarks} benchmark{'s' * (benchmarks > 1)}"
        yield Setting(f"{many}, {n} problems × {k}, {how}", draw)


def levels() -> Iterator[Setting]:
    """Eight budgets that are equally good, and dearer one by one, without and with responses without a limit: the
    accuracy that `high` is published with."""
    for n, k, mean, free in product((30, 100), (1, 4, 16), (0.3, 0.7), (False, True)):

        def draw(random: np.random.Generator, n: int = n, k: int = k, mean: float = mean, free: bool = free) -> Drawn:
            skill = skills(random, mean, 0.5, n)
            scores = random.random((8, n, k)) < skill[:, None]
            if free:  # Most draws are shared, so that a budget can be shown to lose nothing.
                unlimited = random.random((n, k)) < skill[:, None]
                shared = random.random(scores.shape) < 0.98
                scores = np.concatenate([np.where(shared, unlimited, scores), unlimited[None]])
            budget, problem, sample = np.indices(scores.shape).reshape(3, -1)
            limit = np.where(budget < 8, 1.0, np.nan)
            rows = pl.DataFrame(
                {
                    "benchmark": "b", "problem": problem.astype(str), "sample": sample,
                    "think_budget": 8 * (budget + 1) * limit, "solution_budget": SOLUTION * limit,
                    "prompt_tokens": 10, "think_tokens": 8 * (budget + 1), "solution_tokens": 4, "forced_tokens": 1,
                    "score": scores.ravel().astype(float), "strategy": np.where(budget < 8, "separate", FREE),
                    "think_finish": "closed", "solution_finish": "stop",
                }
            )  # fmt: skip
            rows = rows.with_columns(pl.col("think_budget", "solution_budget").fill_nan(None).cast(pl.Int32))
            high = choose_levels(rows, with_rules=False).levels["high"]
            off = high.accuracy_high - high.accuracy_low
            return Drawn(high.accuracy_low - 1e-9 <= mean <= high.accuracy_high + 1e-9, 50 * off)

        yield Setting(f"{n} problems × {k}, accuracy {mean:.0%}{', no limit too' if free else ''}", draw)


def until() -> Iterator[Setting]:
    """The accuracy of a cell that was sampled until its interval was as narrow as was asked for, or to the cap."""
    cell = Cell("base", "b", "separate", Budget(8, SOLUTION))
    for n, mean, alike, width in product((30, 100), (0.1, 0.5), (0.1, 0.5), (9.0, 14.0)):

        def draw(
            random: np.random.Generator, n: int = n, mean: float = mean, alike: float = alike, width: float = width
        ) -> Drawn:
            scores = (random.random((64, n)) < skills(random, mean, alike, n)).astype(float)
            sample, problem = np.indices(scores.shape).reshape(2, -1)
            rows = pl.DataFrame(
                {
                    "model": "base", "benchmark": "b", "strategy": "separate", "think_budget": 8,
                    "solution_budget": SOLUTION, "problem": problem, "sample": sample, "score": scores.ravel(),
                }
            )  # fmt: skip
            k = 2
            while k < 64 and widest(rows.head(k * n).lazy(), [cell]).half_width > width:
                k = next_samples(k, 64)  # type: ignore[assignment]
            return judged(mean_score(frame(scores[:k].mean(axis=0), k)), mean)

        yield Setting(f"{n} problems, accuracy {mean:.0%}, correlation {alike:g}, until ±{width:g}", draw)
