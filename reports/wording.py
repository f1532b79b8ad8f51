"""How names, numbers and counts read, wherever a report shows them."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import polars as pl

from elastic_core.budget import UNLIMITED
from elastic_core.statistics.intervals import Estimate
from elastic_core.trajectory import BUDGET

if TYPE_CHECKING:
    from jinja2 import Template

_CAPTIONS = "templates/captions.toml.j2"


@cache
def texts(section: str) -> dict[str, Any]:
    """A section of captions.toml.j2; the texts of "shared" on one line each."""
    found = tomllib.loads(files("reports").joinpath(_CAPTIONS).read_text(encoding="utf-8"))[section]
    return {name: " ".join(text.split()) for name, text in found.items()} if section == "shared" else dict(found)


def captioned(kind: str, name: str, **words: Any) -> tuple[str, str]:
    """Title and caption of one of the "tables" or "figures", from captions.toml.j2, with `words` filled in."""
    entry = texts(kind)[name]
    return _filled(entry["title"], words), _filled(entry["caption"], words)


def sentence(name: str, **words: Any) -> str:
    """One of the "sentences" of captions.toml.j2, with `words` filled in."""
    return _filled(texts("sentences")[name], words)


def _filled(text: str, words: Mapping[str, Any]) -> str:
    return _template(text).render({**texts("shared"), **words})


@cache
def _template(text: str) -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, autoescape=False)  # The renderers escape it.
    environment.filters["n"] = "{:,}".format
    return environment.from_string(" ".join(text.split()))


MAX_NAMED = 3  # Of more benchmarks a sentence on the first screen counts, and names none.


def ordered(names: Iterable[str], first: str) -> list[str]:
    """Each name once: `first`, where it occurs, then the others by name."""
    return sorted(set(names), key=lambda name: (name != first, name))


def plural(count: int | str, noun: str) -> str:
    """ "1 problem", "2 problems", "3 to 5 problems"."""
    return f"{count} {noun}{'' if str(count) == '1' else 's'}"


def listed(names: Sequence[str]) -> str:
    """ "a and b"; only their number where there are more than `MAX_NAMED`."""
    return f"{len(names)} others" if len(names) > MAX_NAMED else " and ".join(names)


def of_one_training(models: Iterable[str], lone: Collection[str]) -> str:
    """The sentence on those of the models that are `lone`: of one seed, where others have several; "" where none is."""
    found = " and ".join(sorted({*models} & {*lone}))
    return sentence("one_training", models=found) if found else ""


def plain(strategy: str) -> str:
    """A strategy's name in a text; one by import path as it is."""
    return strategy if ":" in strategy else strategy.replace("_", " ")


def limit(tokens: int | None) -> str:
    return "∞" if tokens is None else str(tokens)


def budget_text() -> pl.Expr:
    """The budget of a table's row, as `Budget` is written."""
    t, s = (pl.col(name).cast(pl.String).fill_null(UNLIMITED) for name in BUDGET)
    return pl.when(t == UNLIMITED, s == UNLIMITED).then(pl.lit(UNLIMITED)).otherwise(pl.format("{}+{}", t, s))


def number(value: float, form: str = ".1f") -> str:
    """A number as people read it: an infinite one is ∞ or −∞."""
    return f"{value:{form}}" if isfinite(value) else "∞" if value > 0 else "−∞"


def with_bounds(mean: float, low: float | None, high: float | None, form: str = ".1f", scale: float = 100) -> str:
    """ "12.3 [10.1, 14.5]", in percent unless scaled otherwise; a bound that is None is infinite."""
    ends = -inf if low is None else scale * low, inf if high is None else scale * high
    low_shown, high_shown = (number(end, form) for end in ends)
    return f"{scale * mean:{form}} [{low_shown}, {high_shown}]"


def signed(estimate: Estimate) -> str:
    """A difference of scores with its interval, in points (percent)."""
    return with_bounds(*estimate[:3], "+.1f")


def sampled(cells: pl.DataFrame) -> str:
    """ "100 problems × 8 samples", with a range where cells differ, and without samples where they are not known."""
    problems = plural(_range(cells["num_problems"]), "problem")
    if "num_samples" not in cells.columns:
        return problems
    return f"{problems} × {plural(_range(cells['num_samples']), 'sample')}"


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
