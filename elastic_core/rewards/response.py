"""A trajectory as text: what tables show and graders read."""

from __future__ import annotations

from typing import Any, NamedTuple

from elastic_core.markers import Markers
from elastic_core.rewards.grade import THINK_END
from elastic_core.trajectory import Trajectory


class ResponseText(NamedTuple):
    """Text before and after think-end; solution is None when none was begun."""

    thinking: str
    solution: str | None

    @property
    def graded(self) -> str:
        """What `grade` takes; graders give no credit without a think-end."""
        return self.thinking if self.solution is None else f"{self.thinking}{THINK_END}{self.solution}"


def response_text(tokenizer: Any, markers: Markers, trajectory: Trajectory) -> ResponseText:
    """Thinking and solution, special tokens included, without think-end and a last end-of-text."""
    ids, start = trajectory.response_ids, trajectory.solution_start
    if ids and ids[-1] in markers.end_of_text:
        ids = ids[:-1]
    if start is None:
        return ResponseText(_decode(tokenizer, ids), None)
    # From think-end on, then without its text: some tokenizers drop the space before the first token they decode.
    marker = _decode(tokenizer, (markers.think_end,))
    return ResponseText(_decode(tokenizer, ids[: start - 1]), _decode(tokenizer, ids[start - 1 :]).removeprefix(marker))


def _decode(tokenizer: Any, ids: tuple[int, ...]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
