"""Overlap with evaluation sets, duplicates, near-empty rows: as slow Python finds them, in real data too."""

import json
import re
from collections import Counter
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from elastic_core.data import decontaminate
from elastic_core.data.decontaminate import NGRAM, OVERLAPS, Ngrams, count_duplicates, count_near_empty, find_overlaps
from tests.upstream import UPSTREAM, needs_upstream

RLLM = "agentica-project/rllm/rllm/data"
THIRTEEN = "one two three four five six seven eight nine ten eleven twelve thirteen"

pieces = st.sampled_from(["a ", "B", "b ", "a-", "b\n", " ", "é_1 "])
texts = st.lists(st.lists(pieces, max_size=10).map("".join), max_size=8)


class Overlap(NamedTuple):
    """What is expected of a training row; `evidence` are the texts that would do."""

    train_row: int
    evaluation_row: int
    kind: str
    evidence: set[str]


def series(*questions: str | None) -> pl.Series:
    return pl.Series(questions, dtype=pl.String)


def overlaps(train: list[str], evaluation: list[str], common: int | None = None, length: int = NGRAM) -> pl.DataFrame:
    return find_overlaps(Ngrams.of(series(*train), length), Ngrams.of(series(*evaluation), length), common=common)


def normalized(question: str) -> str:
    return " ".join(question.lower().split())


def ngrams(question: str, length: int) -> set[str]:
    words = re.findall(r"\w+", question.lower())
    return {" ".join(words[start : start + length]) for start in range(len(words) - length + 1)}


def reference(train: list[str], evaluation: list[str], common: int | None, length: int) -> list[Overlap]:
    """`find_overlaps` pair by pair."""
    rows_with = Counter(ngram for question in train for ngram in ngrams(question, length))
    found = []
    for row, question in enumerate(train):
        counted = {ngram for ngram in ngrams(question, length) if common is None or rows_with[ngram] <= common}
        shared = [counted & ngrams(other, length) for other in evaluation]
        exact = [other for other, text in enumerate(evaluation) if normalized(text) == normalized(question)]
        if exact:
            found.append(Overlap(row, exact[0], "exact", {normalized(question)}))
        elif any(shared):
            first = next(other for other, texts in enumerate(shared) if texts)
            found.append(Overlap(row, first, f"{length}-gram", shared[first]))
    return found


# N-grams do not run from one question into the next; equality comes before shared words with an earlier question, and
# common words do not excuse it; n-grams are counted in training rows and not in occurrences.
@example(["a b", "c d"], ["a b c d"], None, 3)
@example(["a b c d"], ["a b", "c d"], None, 3)
@example(["a b c"], ["a b c d", "a b c"], None, 3)
@example(["a b c"] * 3, ["A b c"], 1, 3)
@example(["a b c x a b c", "y a b c", "p q r"], ["z a b c", "o p q r"], 1, 3)
@example(["a b c x a b c", "y a b c", "p q r"], ["z a b c", "o p q r"], 2, 3)
@given(texts, texts, st.sampled_from([None, 1, 2]), st.sampled_from([1, 2, 3]))
def test_overlaps_are_those_that_a_comparison_of_every_pair_finds(
    train: list[str], evaluation: list[str], common: int | None, length: int
) -> None:
    found, expected = overlaps(train, evaluation, common, length), reference(train, evaluation, common, length)
    event(f"kinds: {sorted({row.kind[-4:] for row in expected})}")
    assert found.drop("evidence").rows() == [row[:3] for row in expected]
    assert all(text in row.evidence for text, row in zip(found["evidence"], expected, strict=True))


@pytest.mark.parametrize("train, evaluation", [([], []), (["a"], []), ([], ["a"]), ([""], [THIRTEEN])])
def test_the_table_has_its_schema_without_rows_too(train: list[str], evaluation: list[str]) -> None:
    found = overlaps(train, evaluation)
    assert found.schema == OVERLAPS
    assert found.is_empty()


def test_thirteen_words_in_common_are_shown_and_twelve_are_none() -> None:
    found = overlaps(["Nothing.", f"Zero; {THIRTEEN.upper()}!"], ["Other", THIRTEEN.replace(" ", ", ") + " (why?)"])
    assert found.rows() == [(1, 1, "13-gram", THIRTEEN)]
    assert found.schema == OVERLAPS
    twelve = THIRTEEN.removesuffix(" thirteen")
    assert overlaps([f"{twelve} x"], [f"{twelve} y"]).is_empty()
    assert overlaps(["É" * 300], ["é" * 300])["evidence"].to_list() == ["é" * 200], "the start of a long question"


def test_equal_questions_may_be_short_and_differ_in_case_and_white_space_but_not_in_punctuation() -> None:
    found = overlaps([" 36+6-4\u00a0=?", "36-6+4 =?", "WHY\n\n\tme"], ["why me", "36+6-4 =?", "Why  me"])
    assert found.rows() == [(0, 1, "exact", "36+6-4 =?"), (2, 0, "exact", "why me")]


def test_ngrams_of_equal_hash_and_other_words_are_no_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decontaminate, "_MULTIPLIER", np.uint64(1))  # Every order of the same words has one hash.
    train, evaluation = (Ngrams.of(series(text), 3) for text in ("c b a", "a b c"))
    assert train.hashes == evaluation.hashes
    assert find_overlaps(train, evaluation).is_empty()


@given(texts)
def test_duplicates_are_the_rows_that_occurred_before(questions: list[str]) -> None:
    assert count_duplicates(series(*questions)) == len(questions) - len({normalized(text) for text in questions})


def test_near_empty_questions_have_fewer_than_five_characters() -> None:
    assert count_near_empty(series("", " \n ", "a b\tc\u00a0d", "1 + 1=", "éééé")) == 5
    assert count_near_empty(series("1+1=?", "36+6=?", "ééééé")) == 0
    assert count_near_empty(series()) == 0


@needs_upstream
@pytest.mark.parametrize(
    "benchmark, num_exact, num_all, num_uncommon",
    [("aime", 0, 160, 31), ("amc", 0, 22, 22), ("math", 3, 116, 11), ("minerva", 0, 0, 0)],
)
def test_overlaps_of_past_aime_problems_with_benchmarks(
    benchmark: str, num_exact: int, num_all: int, num_uncommon: int
) -> None:
    train, evaluation = _real("train/math/aime.json"), _real(f"test/math/{benchmark}.json")
    assert len(train.questions) == 975
    found, uncommon = find_overlaps(train, evaluation), find_overlaps(train, evaluation, common=10)
    assert (found["kind"] == "exact").sum() == (uncommon["kind"] == "exact").sum() == num_exact
    assert (found.height, uncommon.height) == (num_all, num_uncommon)


def _real(file: str) -> Ngrams:
    return Ngrams.of(series(*(row["problem"] for row in json.loads((UPSTREAM / RLLM / file).read_text()))))
