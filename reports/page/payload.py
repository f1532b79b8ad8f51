"""The trajectories of the page: which problems it holds, an index for lists and filters, and a chunk of texts per
problem.

Both are JSON, deflated and in base64. The page reads the index when its reader comes into view, and a chunk when a
problem of it is opened or searched.

The responses of a track, which is one sample under one strategy and model, have most of their text in common: under a
smaller budget the same thought is cut earlier. A text that is the beginning of another is stored as that one's number
and its length, and the page can show how the thought went on.
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
from elastic_core.rewards.truth import MathTruth
from elastic_core.seeds import problem_digest
from elastic_core.statistics.estimates import sampled_tokens
from elastic_core.trajectory import ThinkFinish
from reports.wording import sentence, texts

_NUMBERS = (
    "sample", "think_budget", "solution_budget", "prompt_tokens", "think_tokens", "forced_tokens", "solution_tokens",
    "score",
)  # fmt: skip
_NAMES = ("model", "strategy", "think_finish", "solution_finish", "grade_status")
_ORDER = ("sample", "model", "strategy", "think_budget", "solution_budget")

PROBLEM = ["benchmark", "problem"]

MAX_TRAJECTORIES = 50_000
MAX_TOKENS = 30_000_000  # Sampled tokens of all trajectories: about 100 MB of text in memory at a time.
MAX_BYTES = 16 * 2**20  # Of all chunks: a browser opens them in a second.

Key = tuple[str, str]  # Benchmark and problem.
Problems = Mapping[Key, Problem]


@dataclass(frozen=True)
class Drawing:
    """Problems in the page's order of preference: columns benchmark, problem, and turn, 1 for the first of its
    benchmark, and so on; and the counts of the table."""

    problems: pl.DataFrame
    num_problems: int
    num_trajectories: int

    def note(self, num_problems: int, num_trajectories: int) -> str:
        """What of the table is held, as a sentence."""
        known = {"of_problems": self.num_problems, "of_trajectories": self.num_trajectories}
        return sentence("held", problems=num_problems, trajectories=num_trajectories, **known)


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
    """The data of the page: an index with a row per trajectory, problem by problem, and the texts of each problem, in
    the same order."""

    index: str
    chunks: list[str]
    num_trajectories: int


def build_payload(rows: pl.LazyFrame, drawn: pl.DataFrame, problems: Problems, max_bytes: int = MAX_BYTES) -> Payload:
    """The trajectories of the `drawn` problems, from the first one on until the limit is reached, with the questions
    and reference answers that are known. The table is read once, and only drawn problems stay in memory."""
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
        "wording": texts("wording"),
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
    """Whether budget forcing wrote its phrase for the final answer: other strategies write the think-end only."""
    return (
        row["think_finish"] == ThinkFinish.FORCED
        and row["forced_tokens"] > 1
        and (row["thinking"] or "").endswith(FINAL_ANSWER_BEFORE)
        and (row["solution"] or "").startswith(FINAL_ANSWER_AFTER)
    )


def _shared(texts: Sequence[str | None], tracks: Sequence[Hashable], known: dict[str, int]) -> list[tuple[int, int]]:
    """Every text as the number of the longest one of its track that begins with it, and its length in JavaScript's
    units; adds those to `known`."""
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
    """Length in UTF-16 units."""
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
