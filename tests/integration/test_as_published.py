"""Grades as published, held against stored verdicts of the authors' program (`tests/published_pairs.py` makes them)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from elastic_core.data import mapping
from elastic_core.data.dataset import ROW
from elastic_core.rewards import as_published
from elastic_core.rewards.as_published import grade_as_published
from elastic_core.rewards.math import Pool
from elastic_core.rewards.math.as_published import _parsed as parsed
from elastic_core.rewards.truth import CodeTest, CodeTruth
from tests.hostile_answers import hostile_answers
from tests.published_pairs import FILES, groups, response

HANGS = 60.0
GROUPS = [group for path in FILES for group in groups(path)]
MATHEMATICS = [group for group in GROUPS if "truth" not in group]
CODE = [group for group in GROUPS if "truth" in group]

pytestmark = pytest.mark.usefixtures("patient")


def encoded(benchmark: str, truth: Any) -> str:
    """A truth of a benchmark's file as the data set's mapping has it."""
    maps = {"amc": mapping.number, "minerva": mapping.minerva, "olympiadbench": mapping.olympiad}
    if benchmark == "aime-2024":
        return str(int(truth))  # as `mapping.aime` has it
    if benchmark not in maps:
        return str(truth).strip()
    row = {"problem": "x", "idx": 0, "id": "0", **(truth if isinstance(truth, dict) else {"answer": truth})}
    row["is_multiple_answer"] = bool(row.get("is_multiple_answer"))
    schema = dict.fromkeys(("unit", "error"), pl.String)
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


@pytest.mark.parametrize("third", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_no_hostile_answer_hangs_or_does_anything(third: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canary, late = tmp_path / "canary", []
    pool = Pool(num_workers=2, deadline=0.3)
    monkeypatch.setattr(as_published, "shared_pool", lambda: pool)
    for item in [*hostile_answers(str(canary))][third::3]:
        started = time.monotonic()
        grade_as_published("math", "math500", "", f"\\boxed{{{item.answer}}}", item.truth)
        late += [item.answer[:80]] if time.monotonic() - started > HANGS else []
    pool.close()
    assert late == []
    assert not canary.exists()


@pytest.mark.parametrize(
    "text", ["sqrt('1')", "(1)('x')", "x.n()", "[x]", "(x,x)", "x<1", "(lambda:1)()", "x[1]", "f(*x)"]
)
def test_text_is_looked_up_and_not_evaluated(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        parsed(text)


def test_what_they_do_not_grade_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not grade choice; expected math or code"):
        grade_as_published("choice", "gpqa-diamond", "", "A", "A")


@pytest.mark.parametrize("answer", [{"dict": 5}, {"dict": [[1, 2]]}, {"tuple": 5}, {"dict": [["a", 1], ["a", 1]]}, {}])
def test_a_value_that_a_program_forged_is_not_the_expected_one(answer: Any) -> None:
    assert not as_published._equal(answer, {"a": 1, "b": 2})
    assert not as_published._equal_or_wrapped(answer, [1])
