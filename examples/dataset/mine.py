"""A mapping of rows to problems, and a grader for their answers, which `elastic data add` takes by import path."""

from typing import Any

from elastic_core.rewards.response import last_boxed
from elastic_core.rewards.truth import NO_ANSWER, Grade, graded, grader


def capitals(row: dict[str, Any]) -> dict[str, Any] | None:
    """The problem of a row of capitals.csv; a row without a capital is left out."""
    if not row["capital"]:
        return None
    return {"ask": f"What is the capital of {row['country']}?", "right": row["capital"], "region": row["region"]}


@grader("mine:same_city")
def same_city(solution: str, truth: str) -> Grade:
    """Right is a box with the city's name, in any case and between any words."""
    city = last_boxed(solution)
    return graded(city, truth.casefold() in city.casefold()) if city else NO_ANSWER
