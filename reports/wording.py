"""How names, numbers and counts read, wherever a report shows them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from elastic_core.budget import UNLIMITED
from elastic_core.statistics.intervals import Estimate
from elastic_core.trajectory import BUDGET

METHOD = (
    "Accuracy is avg@k: the mean over problems of the mean score over k samples. Intervals are 95 % and count a "
    "problem once, however often it was sampled. For accuracy and other shares they are Clopper-Pearson's at the "
    "effective sample size; for tokens Student's t; for paired differences of accuracy a t-interval of the problems' "
    "differences; for pass@k, maj@k, areas, slopes and gains per token a bootstrap over problems. Tokens are sampled "
    "tokens, thinking and solution; tokens that the pipeline wrote itself are counted separately."
)
"""What every number of a report is, and the method of its interval; docs/numbers.md has the sources."""
VERDICTS = (
    "An expectation holds when the whole 95 % interval lies on its side. Holds as measured: the interval shows the "
    "direction, and only the estimate reaches the size. Not refuted: the test of a straight line does not speak "
    "against it, and shows no more. Undecided: so many problems cannot tell."
)
"""What the verdicts on expectations say."""
MAX_NAMED = 3  # Of more benchmarks a sentence on the first screen counts, and names none.


def ordered(names: Iterable[str], first: str) -> list[str]:
    """Each name once: `first`, where it occurs, then the others by name."""
    return sorted(set(names), key=lambda name: (name != first, name))


def listed(names: Sequence[str]) -> str:
    """ "a and b"; only their number where there are more than `MAX_NAMED`."""
    return f"{len(names)} others" if len(names) > MAX_NAMED else " and ".join(names)


def of_one_training(models: Iterable[str], lone: Collection[str]) -> str:
    """The sentence on those of the models that are `lone`: of one seed, beside some of several; "" where none is."""
    found = " and ".join(sorted({*models} & {*lone}))
    return f"About just one training of {found}: another may differ by more than the interval." if found else ""


def plain(strategy: str) -> str:
    return strategy.replace("_", " ")


def limit(tokens: int | None) -> str:
    return "∞" if tokens is None else str(tokens)


def budget_text() -> pl.Expr:
    """The budget of a table's row, as `Budget` is written."""
    t, s = (pl.col(name).cast(pl.String).fill_null(UNLIMITED) for name in BUDGET)
    return pl.when(t == UNLIMITED, s == UNLIMITED).then(pl.lit(UNLIMITED)).otherwise(pl.format("{}+{}", t, s))


def with_bounds(mean: float, low: float | None, high: float | None, form: str = ".1f", scale: float = 100) -> str:
    """ "12.3 [10.1, 14.5]", in percent unless scaled otherwise; a bound that is None is infinite."""
    low_shown, high_shown = ("∞" if bound is None else f"{scale * bound:{form}}" for bound in (low, high))
    return f"{scale * mean:{form}} [{low_shown}, {high_shown}]"


def signed(estimate: Estimate) -> str:
    """A difference of scores with its interval, in points (percent)."""
    return with_bounds(*estimate[:3], "+.1f")


def sampled(cells: pl.DataFrame) -> str:
    """ "100 problems × 8 samples", with a range where cells differ, and without samples where they are not known."""
    problems = f"{_range(cells['num_problems'])} problems"
    return f"{problems} × {_range(cells['num_samples'])} samples" if "num_samples" in cells.columns else problems


def _range(counts: pl.Series) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def one_line(value: Any) -> str:
    """A value of the provenance."""
    if isinstance(value, Mapping):
        return "; ".join(f"{one_line(name)} {one_line(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(one_line, value))
    return str(value)
