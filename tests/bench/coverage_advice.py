"""Tables of known truth whose budgets lose more than the margin: how seldom any of them is advised.

Every candidate that is bad loses 1.01 margins, where a promise is broken most often. A draw gives whether nothing false
is promised, of any model and benchmark, at any look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import polars as pl

from elastic_core.seeds import problem_digest
from elastic_core.statistics.certificates import certificates
from elastic_core.statistics.estimates import by_seed
from elastic_core.strategies import FREE
from tests.bench.coverage_settings import PROBLEMS, SAMPLES, SOLUTION, Drawn, Kind, Setting

MARGIN = 0.02
_OVER = 1.01


def kinds() -> list[Kind]:
    return [
        Kind("advice", "5 to 500 problems, 1 to 16 samples, 8 budgets, all or the smaller half bad", list(alone())),
        Kind("advice, three chains", "budgets and rules of 2 and 3 answers, whole problems or samples", list(chains())),
        Kind("advice, benchmarks", "3 benchmarks × 2 models, as large or from 30 to 500 problems", list(benchmarks())),
        Kind(
            "advice, seeds",
            "100 and 500 problems × 4, 2, 3, 5 seeds 0, 2, 5 points apart",
            list(seeds()),
        ),
        Kind("advice, looks", "after 1 to 16 samples of 50, 100 … 500 problems", list(looks()), 0.5),
    ]


def cell(given: np.ndarray, place: int | None, benchmark: str = "b", model: str = "m", chain: str = "") -> pl.DataFrame:
    """The problem table of one cell, of scores of shape (problems, samples) or (seeds, problems, samples): a budget by
    its place in a ladder, None without a limit; of a chain of rules the rule that begins to probe there."""
    scores = given if given.ndim == 3 else given[None]
    num_seeds, count, samples = scores.shape
    means, powers = scores.mean(axis=2), [2**power for power in range(samples.bit_length())]
    seen = np.stack([scores[:, :, :number].mean(axis=(0, 2)) for number in powers], axis=1)
    strategy = FREE if place is None else "separate"
    think = None if place is None else 8 * (place + 1)
    if chain:
        strategy, think = f"adaptive_agree{chain}_every8_from{8 * (place or 0) + 8}_to128", None
    found = pl.DataFrame(
        {
            "model": model, "benchmark": benchmark, "strategy": strategy, "think_budget": think,
            "solution_budget": None if place is None else SOLUTION, "problem": [str(i) for i in range(count)],
            "num_samples": num_seeds * samples, "score": means.mean(axis=0), "looks": seen.tolist(), "cut": 0.0,
            "cap": None, by_seed("score"): means.T.tolist(),
        },
        schema_overrides={"think_budget": pl.Int32, "solution_budget": pl.Int32, "cap": pl.Int64},
    )  # fmt: skip
    return found if given.ndim == 3 else found.drop(by_seed("score"))


def kept(tables: Sequence[pl.DataFrame], bad: Sequence[str]) -> bool:
    """Whether no budget or rule whose strategy and budget is named `bad` is promised to be within the margin."""
    found = certificates(pl.concat(tables), MARGIN, tried=()).filter(pl.col("within") <= MARGIN)
    names = found.select(pl.concat_str("model", "benchmark", "strategy", "think_budget", ignore_nulls=True))
    return not set(names.to_series()) & set(bad)


def lost(random: np.random.Generator, rate: float, shape: tuple[int, int], whole: bool) -> np.ndarray:
    """Which samples a budget loses of those that are right without one: of whole problems, or one by one."""
    return random.random((shape[0], 1) if whole else shape) < rate


def alone() -> Iterator[Setting]:
    for n, k, whole, bad in product(PROBLEMS, SAMPLES, (True, False), (8, 4)):

        def draw(random: np.random.Generator, n: int = n, k: int = k, whole: bool = whole, bad: int = bad) -> Drawn:
            free = np.ones((n, k)) if whole else (random.random((n, k)) < random.beta(2, 1, (n, 1))).astype(float)
            rate = _OVER * MARGIN / (1 if whole else 2 / 3)
            sides = [free * ~lost(random, rate if place < bad else 0, (n, k), whole) for place in range(8)]
            tables = [cell(side, place) for place, side in enumerate(sides)]
            return Drawn(kept([*tables, cell(free, None)], [f"mbseparate{8 * place + 8}" for place in range(bad)]))

        how = "problems broken outright" if whole else "samples lost"
        yield Setting(f"{n} problems × {k}, {bad} of 8 bad, {how}", draw)


def chains() -> Iterator[Setting]:
    """Three chains, of which all or two are bad; losses of their own, on the same problems, or both ways."""
    for n, kind, bad in product((100, 200, 500), ("own", "nested", "both ways"), (3, 2)):

        def draw(random: np.random.Generator, n: int = n, kind: str = kind, bad: int = bad) -> Drawn:
            free, shared = (random.random((n, 1)) < 0.8).astype(float), random.random((n, 1))
            tables, names = [cell(free, None)], []
            for number, chain in enumerate(("", "2", "3")):
                for place in range(8):
                    luck = shared if kind == "nested" else random.random((n, 1))
                    rate = _OVER * MARGIN * (number < bad)
                    gained = (luck > 0.9) if kind == "both ways" else np.zeros((n, 1), bool)
                    # Of those that are right a share is lost, and as much more as is gained of the others.
                    more = 0.1 * 0.2 if kind == "both ways" else 0.0
                    side = np.where(luck < (rate + more) / 0.8, 0.0, np.where(gained, 1.0, free))
                    tables.append(cell(side, place, chain=chain))
                    row = tables[-1].row(0, named=True)
                    if number < bad:
                        names.append(f"mb{row['strategy']}{row['think_budget'] or ''}")
            return Drawn(kept(tables, names))

        yield Setting(f"{n} problems, {kind}, {bad} of 3 chains bad", draw)


def benchmarks() -> Iterator[Setting]:
    """Three benchmarks and two models: one budget of each, all bad or all but one."""
    for sizes, k, bad in product(((200, 200, 200), (500, 500, 500), (30, 200, 500)), (1, 4), (6, 5)):

        def draw(random: np.random.Generator, sizes: tuple[int, ...] = sizes, k: int = k, bad: int = bad) -> Drawn:
            tables, names = [], []
            for number, (model, (benchmark, n)) in enumerate(product("mn", zip("abc", sizes, strict=True))):
                side = 1.0 - lost(random, _OVER * MARGIN * (number < bad), (n, k), True)
                tables += [
                    cell(side * np.ones((n, k)), 7, benchmark, model),
                    cell(np.ones((n, k)), None, benchmark, model),
                ]
                names += [f"{model}{benchmark}separate64"] * (number < bad)
            return Drawn(kept(tables, names))

        yield Setting(f"{', '.join(map(str, sizes))} problems × {k}, {bad} of 6 bad", draw)


def seeds() -> Iterator[Setting]:
    """A recipe that loses 1.01 margins on average over trainings, which differ."""
    for n, count, spread, k in product((100, 500), (2, 3, 5), (0.0, 0.02, 0.05), (4,)):

        def draw(
            random: np.random.Generator, n: int = n, count: int = count, spread: float = spread, k: int = k
        ) -> Drawn:
            free, rates = np.full((count, n, k), 0.0), _OVER * MARGIN + spread * random.normal(size=(count, 1, 1))
            luck = random.random((1, n, k))
            free[:] = luck < 0.7
            side = np.where(rates > 0, free * (random.random(free.shape) >= rates / 0.7), free)
            # A training that gains does so where it was wrong.
            gains = (random.random(free.shape) < -rates / 0.3) & (free == 0)
            return Drawn(kept([cell(np.maximum(side, gains), 7), cell(free, None)], ["mbseparate64"]))

        yield Setting(f"{n} problems × {k}, {count} seeds, {100 * spread:g} points apart", draw)


def looks() -> Iterator[Setting]:
    """The table is looked at again and again while it grows; problems come in the order of the sweep."""
    for whole, growing in product((True, False), ("samples", "problems", "both")):

        def draw(random: np.random.Generator, whole: bool = whole, growing: str = growing) -> Drawn:
            shape = 500, 16
            free = random.random(shape) < (0.9 if whole else random.beta(2, 1, (shape[0], 1)))
            side = free & ~lost(random, _OVER * MARGIN / (0.9 if whole else 2 / 3), shape, whole)
            ks = (1, 2, 4, 8, 16) if growing != "problems" else (4,)
            ns = range(50, 501, 50) if growing != "samples" else (500,)
            tables = {
                k: pl.concat([cell(side[:, :k].astype(float), 7), cell(free[:, :k].astype(float), None)]) for k in ks
            }
            order = _in_order(shape[0])
            return Drawn(
                all(
                    kept([tables[k].filter(pl.col("problem").is_in(order[:n]))], ["mbseparate64"])
                    for n, k in product(ns, ks)
                )
            )

        yield Setting(f"{'problems broken outright' if whole else 'samples lost'}, {growing} grow", draw)


def _in_order(count: int) -> list[str]:
    return sorted((str(number) for number in range(count)), key=lambda name: problem_digest("b", name))
