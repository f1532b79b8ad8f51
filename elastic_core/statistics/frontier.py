"""What tokens buy: the budgets that were measured of a model, and how a mean number of tokens is spent best on them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, NamedTuple

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
class Point:
    """A budget of the thought as it was measured: accuracy in [0, 1], and mean and 95th percentile of a response's
    tokens, those that were forced included."""

    think: Annotated[int, Field(ge=0)]
    accuracy: Annotated[float, Field(ge=0, le=1)]
    tokens: Annotated[float, Field(gt=0)]
    tokens_p95: Annotated[float, Field(gt=0)]


class Allocation(NamedTuple):
    """Responses get `upper` with the chance `share`, else `lower`. `price` is the accuracy that one more token per
    response would buy; 0 where none would."""

    lower: Point
    upper: Point
    share: float
    price: float

    @property
    def tokens(self) -> float:
        """Mean over responses."""
        return self.lower.tokens + self.share * (self.upper.tokens - self.lower.tokens)

    @property
    def accuracy(self) -> float:
        return self.lower.accuracy + self.share * (self.upper.accuracy - self.lower.accuracy)


def hull(costs: Sequence[float], means: Sequence[float]) -> list[int]:
    """Places on the upper concave hull of means over costs, from the cheapest to the most accurate."""
    found: list[int] = []

    def slope(upper: int) -> float:
        return (means[upper] - means[found[-2]]) / (costs[upper] - costs[found[-2]])

    for place in sorted(range(len(costs)), key=lambda i: (costs[i], -means[i])):
        if found and means[place] <= means[found[-1]]:
            continue
        while len(found) > 1 and slope(found[-1]) <= slope(place):
            found.pop()
        found.append(place)
    return found


def frontier(points: Sequence[Point]) -> tuple[Point, ...]:
    """The vertices of the concave hull of accuracy over tokens, from the cheapest point to the most accurate: no mean
    over budgets is more accurate at as many tokens than the mean over two neighbours here."""
    return tuple(points[i] for i in hull([each.tokens for each in points], [each.accuracy for each in points]))


def allocate(vertices: Sequence[Point], tokens: float) -> Allocation:
    """The best use of at most `tokens` per response on average; the cheapest vertex where that is too much."""
    first, last = vertices[0], vertices[-1]
    if tokens >= last.tokens or first is last:
        return Allocation(last, last, 1.0, 0.0)
    if tokens <= first.tokens:
        return Allocation(first, first, 1.0, _slope(first, vertices[1]))
    lower, upper = next(pair for pair in pairwise(vertices) if tokens < pair[1].tokens)
    return Allocation(lower, upper, (tokens - lower.tokens) / (upper.tokens - lower.tokens), _slope(lower, upper))


def _slope(lower: Point, upper: Point) -> float:
    return (upper.accuracy - lower.accuracy) / (upper.tokens - lower.tokens)
