"""Rows of a batch: the same as if every trajectory were decoded, counted and graded by itself."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.miniature.grammar import build_tokenizer
from elastic_core.rewards import grade
from elastic_core.rewards.response import response_text, response_texts
from elastic_core.rewards.truth import THINK_END
from elastic_core.sweep.grid import Cell
from elastic_core.sweep.rows import RowBuilder, Sample
from elastic_core.trajectory import SCHEMA, SolutionFinish, ThinkFinish, Trajectory
from tests.marks import markers, single

THINK_END_ID, END_OF_TEXT = 0, 1
MARKERS = markers(single(2, THINK_END_ID, END_OF_TEXT))
CELL = Cell("base", "easy", "separate", Budget(8, None))
PROBLEM = Problem("easy", "1", "2+2=?", "4", "math")
TEXT = "the sum of two and two is four, naïvely: ½ + ½ = 1 \\boxed{4}\n"


def fast_tokenizer(decoder: str) -> Any:
    """Of one token per byte, or of words that lose the space before the first one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = [THINK_END, "<eos>", "<think>"]
    pieces = [*pre_tokenizers.ByteLevel.alphabet()] if decoder == "bytes" else [f"▁{word}" for word in TEXT.split()]
    tokenizer = Tokenizer(models.WordLevel({p: i for i, p in enumerate([*special, *sorted(set(pieces))])}, "<eos>"))
    tokenizer.decoder = decoders.ByteLevel() if decoder == "bytes" else decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


@cache
def tokenizer(name: str) -> Any:
    return build_tokenizer() if name == "miniature" else fast_tokenizer(name)


TOKENIZERS = ("miniature", "bytes", "words")
IDS = st.lists(st.integers(0, 14), max_size=8)


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    thought, solution = draw(IDS), draw(st.none() | IDS)
    ids = thought if solution is None else [*thought, THINK_END_ID, *solution]
    return Trajectory(
        prompt_ids=tuple(draw(IDS)),
        response_ids=tuple(ids),
        forced=tuple(draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))),
        solution_start=None if solution is None else len(thought) + 1,
        think_finish=draw(st.sampled_from(ThinkFinish)),
        solution_finish=draw(st.sampled_from(SolutionFinish)),
        dropped=tuple(draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 14)), max_size=2))),
    )


def decoded_alone(tokenizer: Any, trajectory: Trajectory) -> tuple[str, str | None]:
    """Think-end and what follows it, decoded by transformers and cut after think-end's text."""

    def decode(ids: tuple[int, ...]) -> str:
        text: str = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    ids, start = trajectory.response_ids, trajectory.solution_start
    if ids and ids[-1] == END_OF_TEXT:
        ids = ids[:-1]
    opened = len(MARKERS.think_start) if ids[: len(MARKERS.think_start)] == MARKERS.think_start else 0
    if start is None:
        return decode(ids[opened:]), None
    return decode(ids[min(opened, start - 1) : start - 1]), decode(ids[start - 1 :]).removeprefix(
        decode((THINK_END_ID,))
    )


@pytest.mark.parametrize("name", TOKENIZERS)
@given(batch=st.lists(trajectories(), max_size=6))
def test_texts_of_a_batch_are_those_of_transformers_one_by_one(name: str, batch: list[Trajectory]) -> None:
    texts = response_texts(tokenizer(name), MARKERS, batch)
    assert texts == [decoded_alone(tokenizer(name), trajectory) for trajectory in batch]
    assert texts == [response_text(tokenizer(name), MARKERS, trajectory) for trajectory in batch]


def test_a_space_at_the_beginning_of_a_solution_stays() -> None:
    words = tokenizer("words")
    four = words.convert_tokens_to_ids("▁four,")
    trajectory = Trajectory(
        (), (four, THINK_END_ID, four, END_OF_TEXT), (False,) * 4, 2, ThinkFinish.CLOSED, SolutionFinish.STOP
    )
    assert words.decode([four]) == "four,"
    assert response_text(words, MARKERS, trajectory) == ("four,", " four,")


class Slow:
    """A tokenizer without a backend in Rust."""

    def decode(self, ids: tuple[int, ...], **_: Any) -> str:
        return "".join(THINK_END if i == THINK_END_ID else chr(ord("a") + i) for i in ids)


def test_a_tokenizer_in_python_will_do() -> None:
    trajectory = Trajectory((), (3, 0, 4, 1), (False,) * 4, 2, ThinkFinish.CLOSED, SolutionFinish.STOP)
    assert response_text(Slow(), MARKERS, trajectory) == ("d", "e")


@given(st.lists(trajectories(), max_size=6))
def test_token_columns_are_what_each_trajectory_counts(batch: list[Trajectory]) -> None:
    builder = RowBuilder(tokenizer("bytes"), MARKERS, "model", "engine")
    frame = builder.frame([(Sample(CELL, PROBLEM, i, 7 + i), trajectory) for i, trajectory in enumerate(batch)])
    assert frame.schema == SCHEMA
    rows = frame.select(
        "sample", "prompt_tokens", "think_tokens", "forced_tokens", "solution_tokens", "think_finish",
        "solution_finish", "response_ids", "forced", "seed",
    ).rows()  # fmt: skip
    assert rows == [
        (
            i,
            len(trajectory.prompt_ids),
            trajectory.think_tokens,
            trajectory.forced_tokens,
            trajectory.solution_tokens,
            trajectory.think_finish,
            trajectory.solution_finish,
            list(trajectory.response_ids),
            list(trajectory.forced),
            7 + i,
        )
        for i, trajectory in enumerate(batch)
    ]
    dropped = [[{"at": at, "id": token} for at, token in trajectory.dropped] for trajectory in batch]
    assert frame["dropped"].to_list() == dropped


def spelled(thinking: str, solution: str | None) -> Trajectory:
    """Of characters of the miniature, which has a token for each."""
    vocabulary = tokenizer("miniature").get_vocab()
    ids = [vocabulary[character] for character in thinking]
    if solution is not None:
        ids += [vocabulary[THINK_END], *(vocabulary[character] for character in solution)]
    start = None if solution is None else len(thinking) + 1
    return Trajectory((), tuple(ids), (False,) * len(ids), start, ThinkFinish.CLOSED, SolutionFinish.STOP)


@pytest.mark.parametrize("truth", ["4", "5"])
def test_grades_are_those_of_the_whole_responses(truth: str) -> None:
    parts = [
        (thinking, solution)
        for thinking in ("", r"\boxed{4}", r"</think>\boxed{4}")
        for solution in (None, "", "4", r"\boxed{4}", r"\boxed{4}</think>", r"</think>\boxed{5}")
    ]
    problem = Problem("easy", "1", "2+2=?", truth, "math")
    batch = [(Sample(CELL, problem, i, 0), spelled(*part)) for i, part in enumerate(parts)]
    end = tokenizer("miniature").convert_tokens_to_ids(THINK_END)
    frame = RowBuilder(tokenizer("miniature"), markers(single(2, end, END_OF_TEXT)), "model", "engine").frame(batch)
    assert frame.select("thinking", "solution").rows() == parts
    expected = [
        grade("math", thinking if solution is None else f"{thinking}{THINK_END}{solution}", truth)
        for thinking, solution in parts
    ]
    assert frame.select("score", "grade_status", "answer").rows() == [tuple(graded) for graded in expected]
    assert frame["published_score"].null_count() == len(parts)


def test_a_sweep_may_grade_as_published_as_well() -> None:
    texts = [("", r"\boxed{4}"), ("", r"</think>\boxed{4}"), ("", r"\boxed{4}</think>"), (r"\boxed{4}", None)]
    letter = Problem("choices", "1", "Which?", "A", "choice")
    batch = [(Sample(CELL, PROBLEM, i, 0), spelled(*text)) for i, text in enumerate(texts)]
    end = tokenizer("miniature").convert_tokens_to_ids(THINK_END)
    marked = markers(single(2, end, END_OF_TEXT))
    frame = RowBuilder(tokenizer("miniature"), marked, "model", "engine", as_published=True).frame(
        [*batch, (Sample(CELL, letter, 9, 0), spelled("", "A"))]
    )
    assert frame["published_score"].to_list() == [1.0, 0.0, 1.0, 0.0, None]
    assert frame["score"].to_list()[:4] == [1.0, 1.0, 0.0, 0.0]


def test_columns_of_the_cell_the_problem_and_the_model() -> None:
    [row] = (
        RowBuilder(tokenizer("miniature"), MARKERS, "model", "engine")
        .frame([(Sample(CELL, PROBLEM, 3, 7), spelled("4", None))])
        .rows(named=True)
    )
    expected = {
        "model": "base",
        "benchmark": "easy",
        "problem": "1",
        "sample": 3,
        "strategy": "separate",
        "think_budget": 8,
        "solution_budget": None,
        "engine_fingerprint": "engine",
        "model_fingerprint": "model",
    }
    assert {name: row[name] for name in expected} == expected
