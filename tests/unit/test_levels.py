"""The file budgets.json: read as it was written, and refused in one sentence where it is not one."""

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.errors import UserError
from elastic_core.serving.levels import EFFORTS, LEVELS, Gain, Level, Levels, read_levels

MAKE = "measure them: elastic budgets --from runs/PRESET/sweep/KEY/table"


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
        with pytest.raises(UserError, match=f'no effort level "{name}" was measured of this model; expected minimal, '):
            make_levels().budget(name)


def put(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(changes)


def put_high(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["levels"]["high"].update(changes)


BROKEN = {
    "a negative budget": (
        put_high(think=-1),
        "levels.high.think: input should be greater than or equal to 0,",
    ),
    "no room for an answer": (put_high(solution=0), "levels.high.solution: input should be greater than or equal to 1"),
    "half a token": (put_high(think=1.5), "levels.high.think: input should be a valid integer, found 1.5"),
    "text": (put_high(think="64"), "levels.high.think: input should be a valid integer, found '64'"),
    "an accuracy in percent": (put_high(accuracy_high=75), "levels.high.accuracy_high: input should be less than or"),
    "an interval beside it": (put_high(accuracy_high=0.6), "levels.high: accuracy 0.75 lies outside its interval 0.0 "),
    "a higher level that is cheaper": (put_high(tokens_mean=1.0), "high takes 1 tokens, and"),
    "no number": (put_high(accuracy=float("nan")), "levels.high.accuracy: input should be a finite number, found nan"),
    "another name": (
        lambda document: document["levels"].update(extreme=document["levels"]["high"]),
        "levels.extreme: input should be 'minimal', 'low', 'medium' or 'high', found 'extreme'",
    ),
    "no level": (put(levels={}), "levels: dictionary should have at least 1 item"),
    "a format of another day": (put(format=2), "format: input should be 1, found 2"),
    "a key too many": (put(modle="x"), "modle: unknown key"),
    "a key too few": (lambda document: document.pop("weights"), "weights: missing"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_sentence_with_file_and_key(name: str, tmp_path: Path) -> None:
    breaking, says = BROKEN[name]
    document = json.loads(make_levels().model_dump_json())
    breaking(document)
    (tmp_path / LEVELS).write_text(json.dumps(document))
    with pytest.raises(UserError) as refused:
        read_levels(tmp_path / LEVELS)
    assert str(refused.value).startswith(f"{tmp_path / LEVELS}: {says}")
    assert str(refused.value).endswith(f"; restore it, or {MAKE}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "hello", "[]", "\udcff"])
def test_what_is_no_such_file_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / LEVELS).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match="not a file of effort levels") as refused:
        read_levels(tmp_path / LEVELS)
    assert "\n" not in str(refused.value)


def test_without_a_file_the_command_that_makes_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"no effort levels there .*; {MAKE}"):
        read_levels(tmp_path / LEVELS)
