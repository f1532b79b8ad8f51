"""Grades as published, held against stored verdicts of the authors' program (`tests/published_pairs.py` makes them)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from elastic_core.data import mapping
from elastic_core.data.dataset import ROW
from elastic_core.rewards import as_published
from elastic_core.rewards import math as rewards_math
from elastic_core.rewards.as_published import grade_as_published
from elastic_core.rewards.math import Pool
from elastic_core.rewards.truth import CodeTest, CodeTruth
from tests.hostile_answers import hostile_answers
from tests.published_pairs import FILES, groups, response

HANGS = 60.0
GROUPS = [group for path in FILES for group in groups(path)]
MATHEMATICS = [group for group in GROUPS if "truth" not in group]
CODE = [group for group in GROUPS if "truth" in group]


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """A pool that a busy machine does not hurry."""
    pool = Pool(deadline=HANGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(as_published, "shared_pool", lambda: pool)
        yield
    pool.close()


def encoded(benchmark: str, truth: Any) -> str:
    """A truth of a benchmark's file as the data set's mapping has it."""
    maps = {"amc": mapping.number, "minerva": mapping.minerva, "olympiadbench": mapping.olympiad}
    if benchmark == "aime-2024":
        return str(int(truth))  # as `mapping.aime` has it
    if benchmark not in maps:
        return str(truth).strip()
    row = {"problem": "x", "idx": 0, "id": "0", **(truth if isinstance(truth, dict) else {"answer": truth})}
    row["is_multiple_answer"] = bool(row.get("is_multiple_answer"))
    schema = {name: pl.String for name in ("unit", "error")}
    frame = pl.DataFrame([row | {name: row.get(name) for name in schema}], schema_overrides=schema)
    return str(maps[benchmark](frame.with_row_index(ROW))["truth"][0])


def by_us(group: dict[str, Any], pair: list[Any]) -> float:
    text = response(group, pair[0])
    thinking, closed, solution = text.partition("</think>")
    kind, truth = "math", ""
    if "truth" in group:
        kind, truth = "code", code_truth(group)
    else:
        truth = encoded(group["benchmark"], pair[1])
    return grade_as_published(kind, group["benchmark"], thinking, solution if closed else None, truth)


def code_truth(group: dict[str, Any]) -> str:
    tests = tuple(CodeTest(*test) for test in group["truth"].get("tests", ()))
    return CodeTruth(**{**group["truth"], "tests": tests}).encode()


@pytest.mark.parametrize("group", MATHEMATICS + CODE, ids=lambda group: f"{group['benchmark']}: {group['form']}")
def test_every_verdict_is_the_authors(group: dict[str, Any]) -> None:
    with ThreadPoolExecutor(4) as pool:
        given = list(pool.map(lambda pair: by_us(group, pair), group["pairs"]))
    wrong = [(pair, score) for pair, score in zip(group["pairs"], given, strict=True) if score != pair[-1]]
    assert wrong == []
