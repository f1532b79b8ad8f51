r"""Rows that are left out of training: rows that overlap with an evaluation set, and prompts that are too long.

Two questions overlap when they are equal but for case and white space, or have 13 consecutive words in common (runs of
`\w+`, in lower case; Brown et al. 2020, appendix C). Not found: rephrased or translated questions, and questions of
fewer than 13 words that are a part of another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from elastic_core.data.problems import OverlapRecord

COMMON = 10  # training rows that a 13-gram may occur in before GPT-3 took it for a common phrase

NGRAM = 13
MIN_CHARACTERS = 5  # characters of the shortest question that asks something, such as "1+1=?"
EVIDENCE_CHARACTERS = 200  # characters of an equal question that are shown as evidence

REMOVED = pl.Schema(
    {
        "dataset": pl.String(),
        "id": pl.String(),
        "reason": pl.String(),  # "exact", "13-gram" or "too long"
        "evaluation": pl.String(),  # the evaluation set that it overlaps with
        "evaluation_id": pl.String(),
        "evidence": pl.String(),  # the words in common, or the tokens of the prompt
    }
)
"""Every row of a clean table that was left out, one line per reason and evaluation set."""

OVERLAPS = pl.Schema(
    {
        "train_row": pl.UInt32(),
        "evaluation_row": pl.UInt32(),  # the lowest of those that it overlaps with in this way
        "kind": pl.String(),  # "exact" or "13-gram"; a row that is both is exact
        "evidence": pl.String(),  # the words in common, or the start of the normalised question
    }
)
"""Table of the training rows that overlap, each once and in order. Rows are positions in the questions, from 0."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # Odd, so that no bits of a word's hash are lost.


@dataclass(frozen=True)
class Questions:
    """Ids and questions of one data set, and prompt lengths in tokens where they were taken."""

    ids: pl.Series
    text: pl.Series
    lengths: np.ndarray | None = None


def overlaps(
    name: str, train: Questions, evaluations: Mapping[str, Questions], common: int | None
) -> tuple[pl.DataFrame, dict[str, OverlapRecord]]:
    """Training rows that overlap with evaluation sets, as `REMOVED`, and their numbers; `common` as in
    `find_overlaps`."""
    prepared = Ngrams.of(train.text)
    found = [pl.DataFrame(schema=REMOVED)]
    numbers = {}
    for evaluation, questions in evaluations.items():
        ngrams = Ngrams.of(questions.text)
        rows = find_overlaps(prepared, ngrams, common=common)
        rare = rows if common == COMMON else find_overlaps(prepared, ngrams, common=COMMON)
        exact, ngram, ngram_rare = (
            frame.filter(kind=kind).height for frame, kind in ((rows, "exact"), (rows, "13-gram"), (rare, "13-gram"))
        )
        numbers[evaluation] = OverlapRecord(exact=exact, ngram=ngram, ngram_rare=ngram_rare)
        found.append(
            rows.select(
                dataset=pl.lit(name),
                id=train.ids.gather(rows["train_row"]),
                reason="kind",
                evaluation=pl.lit(evaluation),
                evaluation_id=questions.ids.gather(rows["evaluation_row"]),
                evidence="evidence",
            )
        )
    return pl.concat(found), {name: count for name, count in numbers.items() if any(count.values())}


def too_long(name: str, train: Questions, max_prompt_tokens: int) -> pl.DataFrame:
    """Rows with a prompt of more tokens than training allows, as `REMOVED`."""
    assert train.lengths is not None
    rows = pl.DataFrame({"id": train.ids, "tokens": train.lengths}).filter(pl.col("tokens") > max_prompt_tokens)
    return rows.select(
        dataset=pl.lit(name),
        id="id",
        reason=pl.lit("too long"),
        evaluation=pl.lit(None, pl.String),
        evaluation_id=pl.lit(None, pl.String),
        evidence=pl.format("{} tokens", "tokens"),
    )


def by_reason(removed: pl.DataFrame) -> dict[str, int]:
    """Rows of `REMOVED` by reason, each counted once: an equal question before a 13-gram, overlap before length."""
    order = pl.col("reason").replace_strict({"exact": 0, "13-gram": 1, "too long": 2})
    first = removed.sort(order, maintain_order=True).unique("id", keep="first")
    return dict(sorted(first["reason"].value_counts().iter_rows()))


@dataclass(frozen=True)
class Ngrams:
    """Questions prepared for `find_overlaps`: a training set is prepared once for all evaluation sets."""

    questions: pl.Series  # normalised
    words: pl.Series  # of all questions, one after the other
    length: int  # words of an n-gram; a question with fewer has none
    starts: np.ndarray  # where each n-gram begins in `words`, ascending
    rows: np.ndarray  # the question of each n-gram
    hashes: np.ndarray  # 64 bits of each n-gram

    @classmethod
    def of(cls, questions: pl.Series, length: int = NGRAM) -> Ngrams:
        """N-grams of questions, none of which is null."""
        normalized = _normalize(questions)
        split = normalized.str.extract_all(r"\w+")
        words = split.explode().drop_nulls()  # An empty list becomes a null.
        rows = np.repeat(np.arange(len(questions), dtype=np.uint32), split.list.len().to_numpy())
        # A polynomial of the hashes of `length` consecutive words, modulo 2^64, for every word they can begin with.
        of_words, hashes = words.hash().to_numpy(), np.zeros(max(len(words) - length + 1, 0), dtype=np.uint64)
        for offset in range(length):
            hashes = hashes * _MULTIPLIER + of_words[offset : offset + len(hashes)]
        starts = np.flatnonzero(rows[: len(hashes)] == rows[length - 1 :])  # Those that end in the same question.
        return cls(normalized, words, length, starts, rows[starts], hashes[starts])

    def text(self, starts: pl.Series) -> pl.Series:
        """The n-grams that begin at these positions, their words joined by spaces."""
        columns = [self.words.gather(starts + offset) for offset in range(self.length)]
        return pl.select(pl.concat_str(columns, separator=" ")).to_series()


def find_overlaps(train: Ngrams, evaluation: Ngrams, *, common: int | None = None) -> pl.DataFrame:
    """Training rows that overlap with the evaluation set, as `OVERLAPS`. N-grams of more than `common` training rows,
    such as "where m and n are relatively prime positive integers find m n", do not count; GPT-3 used 10, None counts
    all."""
    assert train.length == evaluation.length
    overlaps = pl.concat([_equal_questions(train, evaluation), _shared_ngrams(train, evaluation, common)])
    return overlaps.unique("train_row", keep="first", maintain_order=True).sort("train_row")


def count_duplicates(questions: pl.Series) -> int:
    """Rows with the question of an earlier row, but for case and white space."""
    return len(questions) - _normalize(questions).n_unique()


def count_near_empty(questions: pl.Series) -> int:
    """Rows with a question of fewer than `MIN_CHARACTERS` characters, white space not counted."""
    characters = _normalize(questions).str.replace_all(" ", "", literal=True).str.len_chars()
    return int((characters < MIN_CHARACTERS).sum())


def _normalize(questions: pl.Series) -> pl.Series:
    """Lower case, white space as single spaces and none at the ends; punctuation stays, as 36+6-4 is not 36-6+4."""
    assert not questions.null_count()
    return questions.str.to_lowercase().str.replace_all(r"\s+", " ").str.strip_chars(" ")


def _equal_questions(train: Ngrams, evaluation: Ngrams) -> pl.DataFrame:
    rows = train.questions.alias("question").to_frame().with_row_index("train_row")
    other = evaluation.questions.alias("question").to_frame().with_row_index("evaluation_row")
    first = other.unique("question", keep="first", maintain_order=True)
    return rows.join(first, on="question").select(
        "train_row",
        "evaluation_row",
        kind=pl.lit("exact"),
        evidence=pl.col("question").str.head(EVIDENCE_CHARACTERS),
    )


def _shared_ngrams(train: Ngrams, evaluation: Ngrams, common: int | None) -> pl.DataFrame:
    """The first n-gram of each training row that the evaluation set has, and where it has it first. Words are compared,
    so a collision of hashes can only hide an n-gram of the evaluation set behind another: for 10^6 of them with
    probability 10^12 / 2^65, less than 10^-7."""
    ours, theirs = (
        pl.DataFrame({"hash": ngrams.hashes, f"{side}_start": ngrams.starts, f"{side}_row": ngrams.rows})
        for side, ngrams in (("train", train), ("evaluation", evaluation))
    )
    candidates = ours.join(theirs.unique("hash", keep="first", maintain_order=True), on="hash")
    shared = candidates.filter(train.text(candidates["train_start"]) == evaluation.text(candidates["evaluation_start"]))
    if common is not None:
        shared = shared.filter(pl.col("train_row").n_unique().over("evaluation_start") <= common)
    # The first n-gram in the evaluation set is also in the lowest row.
    shared = shared.sort("train_row", "evaluation_start").unique("train_row", keep="first", maintain_order=True)
    return shared.select(
        "train_row",
        "evaluation_row",
        kind=pl.lit(f"{train.length}-gram"),
        evidence=evaluation.text(shared["evaluation_start"]),
    )
