"""Colours of models, on paper and on the page, and how well they can be seen."""

from __future__ import annotations

from collections.abc import Sequence

LEAST_CONTRAST = 3.0
"""Of a line or a mark against what it stands on (WCAG 2.2, 1.4.11)."""

RGB = Sequence[float]
"""Red, green and blue in [0, 1]."""
WHITE = (1.0, 1.0, 1.0)


def parse(colour: str) -> tuple[float, float, float]:
    """Of "#rrggbb"."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


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
