"""The trajectories as the page carries them: which problems are drawn, an index of what lists and filters need, and a
chunk of texts per problem.

Both are JSON, deflated and in base64. The page reads the index when its reader comes into view, and a chunk when a
problem of it is opened or searched.

The responses of a track, which is one sample under one strategy and model, have most of their text in common: under a
smaller budget the same thought is cut earlier. A text that is the beginning of another is stored as that one's number
and its own length, and the page can show how the thought went on.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import polars as pl

from elastic_core.data.problems import Problem
from elastic_core.models.special_tokens import FINAL_ANSWER_AFTER, FINAL_ANSWER_BEFORE
from elastic_core.rewards.truth import GradeStatus, MathTruth
from elastic_core.seeds import problem_digest
from elastic_core.statistics.estimates import sampled_tokens
from elastic_core.trajectory import SolutionFinish, ThinkFinish

_NUMBERS = (
    "sample", "think_budget", "solution_budget", "prompt_tokens", "think_tokens", "forced_tokens", "solution_tokens",
    "score",
)  # fmt: skip
_NAMES = ("model", "strategy", "think_finish", "solution_finish", "grade_status")
_ORDER = ("sample", "model", "strategy", "think_budget", "solution_budget")

PROBLEM = ["benchmark", "problem"]

WORDING = {
    "think_finish": {
        ThinkFinish.CLOSED: "closed by the model",
        ThinkFinish.FORCED: "cut when its budget was spent",
        ThinkFinish.END_OF_TEXT: "the model stopped inside it",
        ThinkFinish.LENGTH: "cut by the limit of the whole response, and not closed",
        ThinkFinish.NOT_APPLICABLE: "the strategy has no thinking",
    },
    "solution_finish": {
        SolutionFinish.STOP: "ended by the model",
        SolutionFinish.LENGTH: "cut when its budget was spent",
        SolutionFinish.NOT_APPLICABLE: "none was begun",
    },
    "grade_status": {
        GradeStatus.CORRECT: "the answer is right",
        GradeStatus.WRONG: "an answer was read, and it is not right",
        GradeStatus.NO_ANSWER: "no answer could be read, or the model stopped before it began a solution",
        GradeStatus.TRUNCATED: "cut before the thought ended, so there is no solution to grade",
        GradeStatus.TIMEOUT: "the program, or the comparison of the answer, took longer than it may",
        GradeStatus.RUNTIME_ERROR: "the program failed",
    },
}
"""What the page says for the names that a row has: column → value → explanation."""

MAX_TRAJECTORIES = 50_000
MAX_TOKENS = 30_000_000  # Sampled tokens of all trajectories: what is in memory at a time is about 100 MB of text.
MAX_BYTES = 16 * 2**20  # Of all chunks: what a browser opens in a second.

Key = tuple[str, str]  # Benchmark and problem.
Problems = Mapping[Key, Problem]


@dataclass(frozen=True)
class Drawing:
    """Problems in the order in which the page takes them, as long as it has room: columns benchmark, problem, and turn,
    1 for the first of its benchmark, and so on; and the counts of the whole table."""

    problems: pl.DataFrame
    num_problems: int
    num_trajectories: int

    def note(self, num_problems: int, num_trajectories: int) -> str:
        """What of the table is held, as a sentence."""
        if num_problems == self.num_problems:
            return f"Holds all {num_trajectories:,} trajectories of {num_problems:,} problems."
        return (
            f"Shows {num_trajectories:,} of {self.num_trajectories:,} trajectories: every one of {num_problems:,} of "
            f"the {self.num_problems:,} problems, drawn by a hash of their names and not by their results. Figures and "
            "tables are of all trajectories."
        )


def draw_problems(
    rows: pl.LazyFrame, max_trajectories: int = MAX_TRAJECTORIES, max_tokens: int = MAX_TOKENS
) -> Drawing:
    """All problems, or as many as keep both limits, the benchmarks in turn and at least one of each. The order within a
    benchmark is that of a hash of the problem's name: the same in every report, blind to its results."""
    sizes = (
        rows.group_by(PROBLEM)
        .agg(pl.len().alias("trajectories"), sampled_tokens().cast(pl.Int64).sum().alias("tokens"))
        .collect(engine="streaming")
    )
    digests = pl.Series([problem_digest(*names) for names in sizes.select(PROBLEM).iter_rows()], dtype=pl.String)
    drawn = (
        sizes.with_columns(digest=digests)
        .sort("digest")
        .with_columns(turn=pl.int_range(1, pl.len() + 1).over("benchmark"))
        .sort("turn", "benchmark")
    )
    fits = (pl.col("trajectories").cum_sum() <= max_trajectories) & (pl.col("tokens").cum_sum() <= max_tokens)
    shown = drawn.filter(fits | (pl.col("turn") == 1)).select(*PROBLEM, "turn")
    return Drawing(shown, sizes.height, int(sizes["trajectories"].sum()))


@dataclass(frozen=True)
class Payload:
    """What the page carries: an index with a row per trajectory, problem by problem, and the texts of each problem, in
    the same order."""

    index: str
    chunks: list[str]
    num_trajectories: int


def build_payload(rows: pl.LazyFrame, drawn: pl.DataFrame, problems: Problems, max_bytes: int = MAX_BYTES) -> Payload:
    """The trajectories of the `drawn` problems, from the first one on until the limit is reached, with the questions
    and reference answers that are known. The table is read once, and only what was drawn stays in memory."""
    columns = (*PROBLEM, *_NUMBERS, *_NAMES, "answer", "thinking", "solution")
    # For each token that we wrote, how many had been sampled before it.
    at = pl.element().arg_true().cast(pl.Int64)
    forced_after = pl.col("forced").list.eval(at - pl.int_range(0, at.len())).alias("forced_after")
    frame = (
        rows.filter(pl.col("problem").is_in(drawn["problem"].unique().to_list()))
        .select(*columns, forced_after, pl.col("dropped").list.len())
        .join(drawn.lazy().select(PROBLEM), on=PROBLEM, how="semi")
        .sort(_ORDER, nulls_last=True)
        .collect(engine="streaming")
    )
    parts = frame.partition_by(PROBLEM, as_dict=True, maintain_order=True)
    chunks: dict[Key, str] = {}
    room = max_bytes
    for benchmark, problem, turn in drawn.iter_rows():
        key = (benchmark, problem)
        chunk = _packed(_chunk(parts[key].to_dicts(), problems.get(key)))
        room -= len(chunk)
        if room < 0 and turn > 1:
            break
        chunks[key] = chunk
    held = sorted(chunks, key=_natural)
    listed = pl.concat(parts[key] for key in held)
    index = {
        "problems": {
            "benchmark": [benchmark for benchmark, _ in held],
            "id": [problem for _, problem in held],
            "rows": [parts[key].height for key in held],
        },
        "numbers": {name: listed[name].to_list() for name in _NUMBERS},
        "names": {name: _coded(listed[name]) for name in _NAMES},
        "phrase": FINAL_ANSWER_AFTER,
        "wording": WORDING,
    }
    return Payload(_packed(index), [chunks[key] for key in held], listed.height)


def _coded(names: pl.Series) -> dict[str, list[Any]]:
    """Each name once, and the number of every row's."""
    values = names.unique().sort().to_list()
    numbers = {name: number for number, name in enumerate(values)}
    return {"values": values, "rows": [numbers[name] for name in names]}


def _chunk(rows: list[dict[str, Any]], problem: Problem | None) -> dict[str, Any]:
    """Columns of one problem's rows. A solution that was not begun has the text -1. `closing` counts the tokens that we
    wrote at the end of the thought; `phrase` tells that they are budget forcing's, which are left out of both texts.
    `interruptions` are the numbers of thinking tokens after which we wrote something and the thought went on."""
    phrases = [_has_phrase(row) for row in rows]
    thoughts, solutions = [row["thinking"] for row in rows], [row["solution"] for row in rows]
    for place in (place for place, phrase in enumerate(phrases) if phrase):
        thoughts[place] = thoughts[place].removesuffix(FINAL_ANSWER_BEFORE)
        solutions[place] = solutions[place].removeprefix(FINAL_ANSWER_AFTER)
    texts: dict[str, int] = {}
    tracks = [(row["sample"], row["model"], row["strategy"]) for row in rows]
    thinking, solving = _shared(thoughts, tracks, texts), _shared(solutions, tracks, texts)
    return {
        "question": problem.question if problem else None,
        "reference": reference_answer(problem) if problem else None,
        "texts": list(texts),
        "thinking": [number for number, _ in thinking],
        "thinking_length": [length for _, length in thinking],
        "solution": [number for number, _ in solving],
        "solution_length": [length for _, length in solving],
        "answer": [row["answer"] for row in rows],
        "phrase": phrases,
        "closing": [(row["forced_after"] or []).count(row["think_tokens"]) for row in rows],
        "interruptions": [
            sorted({after for after in row["forced_after"] or () if after < row["think_tokens"]}) for row in rows
        ],
        "dropped": [row["dropped"] or 0 for row in rows],
    }


def _has_phrase(row: Mapping[str, Any]) -> bool:
    """Whether budget forcing asked for the final answer: other strategies write the think-end only."""
    return (
        row["think_finish"] == ThinkFinish.FORCED
        and row["forced_tokens"] > 1
        and (row["thinking"] or "").endswith(FINAL_ANSWER_BEFORE)
        and (row["solution"] or "").startswith(FINAL_ANSWER_AFTER)
    )


def _shared(texts: Sequence[str | None], tracks: Sequence[Hashable], known: dict[str, int]) -> list[tuple[int, int]]:
    """Every text as the number of the longest one of its track that begins with it, and its own length in JavaScript's
    units; those are added to `known`."""
    by_track: dict[Hashable, set[str]] = {}
    for text, track in zip(texts, tracks, strict=True):
        if text is not None:
            by_track.setdefault(track, set()).add(text)
    whole: dict[tuple[Hashable, str], str] = {}
    for track, own in by_track.items():
        longest: list[str] = []
        for text in sorted(own, key=lambda text: (-len(text), text)):
            holder = next((other for other in longest if other.startswith(text)), text)
            if holder is text:
                longest.append(text)
                known.setdefault(text, len(known))
            whole[track, text] = holder
    return [
        (-1, 0) if text is None else (known[whole[track, text]], _javascript_length(text))
        for text, track in zip(texts, tracks, strict=True)
    ]


def _javascript_length(text: str) -> int:
    """In UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def reference_answer(problem: Problem) -> str | None:
    """The right answer as people write it; None where there is none but tests."""
    if problem.grader == "code":
        return None
    if problem.grader != "math":
        return problem.truth
    truth = MathTruth.decode(problem.truth)
    text = (" or " if truth.match == "any" else " and ").join(truth.answers)
    unit = f" {truth.unit}" if truth.unit else ""
    return f"{text}{unit} ± {truth.tolerance:g}" if truth.tolerance else f"{text}{unit}"


def _natural(names: Sequence[str]) -> list[list[int | str]]:
    """Sorts "problem 9" before "problem 10"."""
    return [[int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", name)] for name in names]


def _packed(value: Any) -> str:
    # The names of wordings are enumerations.
    return base64.b64encode(zlib.compress(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS), 6)).decode()
