"""Trajectories as text: what tables show and graders read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from elastic_core.models.special_tokens import Markers
from elastic_core.rewards.grade import THINK_END
from elastic_core.trajectory import ThinkFinish, Trajectory


class ResponseText(NamedTuple):
    """Text before and after think-end; solution is None when none was begun."""

    thinking: str
    solution: str | None

    def graded(self, think_finish: str) -> str:
        """What `grade` takes. Graders read what follows think-end, so that without what precedes it equal solutions are
        equal answers; and they give no credit without a think-end. A model that stopped inside its thought was not
        cut: its solution is empty.

        Args:
            think_finish: how the thinking ended, a `ThinkFinish`.
        """
        if self.solution is None and think_finish == ThinkFinish.END_OF_TEXT:
            return THINK_END
        return self.thinking if self.solution is None else f"{THINK_END}{self.solution}"


def response_text(tokenizer: Any, markers: Markers, trajectory: Trajectory) -> ResponseText:
    """As `response_texts`, of one."""
    return response_texts(tokenizer, markers, [trajectory])[0]


def response_texts(tokenizer: Any, markers: Markers, trajectories: Iterable[Trajectory]) -> list[ResponseText]:
    """Thinking and solution, special tokens included, without think-end and a last end-of-text.

    Trajectories of one sample under several budgets have much in common: what is equal is decoded once.
    """
    responses: dict[tuple[tuple[int, ...], int | None], int] = {}
    places = [responses.setdefault((t.response_ids, t.solution_start), len(responses)) for t in trajectories]
    parts = [_parts(markers, *response) for response in responses]
    marker = (markers.think_end,) if markers.thinks else ()
    distinct = list(dict.fromkeys([marker, *(ids for pair in parts for ids in pair if ids is not None)]))
    decoded = dict(zip(distinct, _decode(tokenizer, distinct), strict=True))
    texts = [
        ResponseText(decoded[thinking], None if solution is None else decoded[solution].removeprefix(decoded[marker]))
        for thinking, solution in parts
    ]
    return [texts[place] for place in places]


def _parts(
    markers: Markers, ids: tuple[int, ...], solution_start: int | None
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Tokens before think-end and, when a solution was begun, from think-end on: some tokenizers drop the space before
    the first token that they decode, so that the marker's text has to go and not the marker. Without markers what comes
    before the solution is what it begins after."""
    end = len(ids) - bool(ids and ids[-1] in markers.end_of_text)
    if solution_start is None:
        return ids[:end], None
    before = solution_start - markers.thinks
    return ids[:before], ids[before:end]


def _decode(tokenizer: Any, sequences: Sequence[tuple[int, ...]]) -> list[str]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        # In Rust and without the lock of the interpreter; transformers' own batch is a loop in Python.
        decoded: list[str] = backend.decode_batch(sequences, skip_special_tokens=False)
        return decoded
    return [tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False) for ids in sequences]
