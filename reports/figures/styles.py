"""Colour is the model, mark and line the strategy, in every figure; and how well a colour is seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from elastic_core.statistics.estimates import FREE
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from reports.summary import BASE, SEPARATE, TRAINED, VANILLA

COLOURS = {BASE: "C0", TRAINED: "C1"}
NUM_COLOURS = 10
"""In the style file."""
LEAST_CONTRAST = 3.0
"""Of a line or a mark against what it stands on (WCAG 2.2, 1.4.11)."""

RGB = Sequence[float]
"""Red, green and blue in [0, 1]."""
WHITE = (1.0, 1.0, 1.0)


class Style(NamedTuple):
    """How a strategy is drawn: its line, its marker and that one's size beside the others', and how far the model's
    colour is mixed with white, as far as it stays visible (`tinted`), so that lines of one model differ."""

    line: str
    marker: str
    white: float = 0.0
    size: float = 1.0


STYLES = {
    SEPARATE: Style("-", "o"),
    "budget_forcing": Style("--", "s", 0.25),
    VANILLA: Style(":", "^", 0.45),
    REASONFLUX_ZERO: Style("-.", "D", 0.15),
    FREE: Style("-", "*", size=2.2),
}
_LINES = ("-.", "--", ":", "-")
_MARKERS = "PXvph<>dH81234"
"""Of other strategies."""


def model_colours(models: Iterable[str]) -> dict[str, str]:
    """The colour of each model of a report: fixed for base and trained, then by place among the others."""
    others = sorted(set(models) - COLOURS.keys())
    rest = NUM_COLOURS - len(COLOURS)
    return COLOURS | {model: f"C{len(COLOURS) + i % rest}" for i, model in enumerate(others)}


def strategy_styles(strategies: Iterable[str]) -> dict[str, Style]:
    """The style of each strategy of a report: its own for `STYLES`, then by place among the others. None shares its
    mark with another, as long as there are marks."""
    others = enumerate(sorted(set(strategies) - STYLES.keys()))
    return STYLES | {
        name: Style(_LINES[i % len(_LINES)], _MARKERS[i % len(_MARKERS)], 0.1 * (i % 5)) for i, name in others
    }


def contrast(one: RGB, other: RGB) -> float:
    """The contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: RGB) -> float:
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def tinted(colour: RGB, white: float) -> tuple[float, float, float]:
    """A colour mixed with so much white, or with as much as leaves it visible on white; one that is too light as it
    is is darkened until it is seen."""
    shares = [white * step / 20 for step in range(20, -1, -1)]
    mixed = [tuple(each + (1 - each) * share for each in colour) for share in shares]
    mixed += [tuple(each * (1 - step / 20) for each in colour) for step in range(1, 20)]
    red, green, blue = next(each for each in mixed if contrast(each, WHITE) >= LEAST_CONTRAST)
    return red, green, blue
