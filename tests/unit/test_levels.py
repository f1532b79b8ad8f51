"""The file budgets.json: read as it was written, and refused in one sentence where it is not one."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.errors import UserError
from elastic_core.serving.levels import EFFORTS, LEVELS, Gain, Level, Levels, read_levels

MAKE = "elastic plan budgets --from runs/PRESET/sweep/KEY/table"


def level(think: int, accuracy: float, tokens: float, **columns: Any) -> Level:
    given = {"solution": 32, "accuracy_low": 0, "accuracy_high": 1, "num_problems": 50, "num_samples": 4}
    return Level(think=think, accuracy=accuracy, tokens_mean=tokens, tokens_p95=2 * tokens, **{**given, **columns})


def make_levels(**columns: Any) -> Levels:
    gain = Gain(mean=0.25, low=-0.05, high=0.55)
    given: dict[str, Any] = {
        "model": "trained",
        "weights": "9bb3dd6fd571b7e1",
        "table": "d6dc",
        "benchmarks": ["easy", "hard"],
        "strategy": "separate",
        "temperature": 0.8,
        "top_p": 1.0,
        "margin": 0.02,
        "date": datetime.date(2026, 11, 22),
        "levels": {"minimal": level(0, 0.5, 30), "high": level(64, 0.75, 80, gain=gain)},
    }
    return Levels(**{**given, **columns})


@given(
    st.lists(
        st.tuples(st.sampled_from(EFFORTS), st.integers(0, 2**31), st.integers(1, 2**31)),
        min_size=1,
        unique_by=lambda each: each[0],
    )
)
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, chosen: list[tuple[str, int, int]]) -> None:
    file = tmp_path_factory.getbasetemp() / LEVELS
    ascending = sorted(chosen, key=lambda each: EFFORTS.index(each[0]))
    found = {
        name: level(think, (i + 1) / 8, 10.5 * (i + 1), solution=solution)
        for i, (name, think, solution) in enumerate(ascending)
    }
    levels = make_levels(levels=found)
    levels.write(file)
    assert read_levels(file) == levels
    assert {name: read_levels(file).budget(name) for name in found} == {
        name: Budget(think, solution) for name, think, solution in chosen
    }


def test_a_level_that_was_not_measured_is_refused_with_those_that_were() -> None:
    assert make_levels().budget("high") == Budget(64, 32)
    for name in ("medium", "xhigh"):
        with pytest.raises(UserError, match=f'"{name}" .* minimal, '):
            make_levels().budget(name)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("levels.high.think", -1, "think.* 0,"),
        ("levels.high.solution", 0, "solution.* 1"),
        ("levels.high.think", 1.5, "think.*found 1.5"),
        ("levels.high.think", "64", "think.*found '64'"),
        ("levels.high.accuracy_high", 75, "accuracy_high"),
        ("levels.high.accuracy_high", 0.6, "accuracy 0.75 .* 0.0 "),
        ("levels.high.tokens_mean", 1.0, "high takes 1 tokens"),
        ("levels.high.accuracy", float("nan"), "accuracy.*found nan"),
        ("levels.extreme", {}, "levels.extreme"),
        ("levels", {}, "levels"),
        ("format", 2, "format.*found 2"),
        ("modle", "x", "modle"),
        ("weights", None, "weights"),
    ],
)
def test_a_broken_file_is_named_with_its_key(key: str, value: Any, says: str, tmp_path: Path) -> None:
    document = inside = json.loads(make_levels().model_dump_json())
    *places, last = key.split(".")
    for place in places:
        inside = inside[place]
    inside[last] = value
    (tmp_path / LEVELS).write_text(json.dumps(document))
    with pytest.raises(UserError, match=f"^{tmp_path / LEVELS}: .*{says}.*{MAKE}$"):
        read_levels(tmp_path / LEVELS)


@pytest.mark.parametrize("text", [None, "", "hello", "[]", "\udcff"])
def test_a_missing_or_unreadable_file_names_the_command_that_makes_one(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / LEVELS).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=MAKE):
        read_levels(tmp_path / LEVELS)


def test_a_level_may_say_what_the_template_was_told(tmp_path: Path) -> None:
    told = level(8, 0.5, 10.0).model_copy(update={"template": {"reasoning_effort": "low"}})
    make_levels(levels={"low": told}).write(tmp_path / LEVELS)
    assert read_levels(tmp_path / LEVELS).offered["template"] == {"low": {"reasoning_effort": "low"}}
    assert make_levels().offered["template"] == {}
