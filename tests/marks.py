"""Marks and markers of tests."""

from dataclasses import asdict
from typing import Any

from elastic_core.models.marks import Marks
from elastic_core.models.special_tokens import Markers


def single(start: int, end: int, *end_of_text: int) -> Marks:
    """Of a thought between two tokens."""
    return Marks((start,), ((end,),), (end,), (end,), end_of_text)


def markers(
    marks: Marks,
    final_answer_before: tuple[int, ...] = (),
    final_answer_after: tuple[int, ...] = (),
    wait: tuple[int, ...] = (),
    template_opens_thinking: bool = True,
) -> Markers:
    fields: dict[str, Any] = asdict(Marks.of(marks))
    return Markers(
        **fields,
        final_answer_before=final_answer_before,
        final_answer_after=final_answer_after,
        wait=wait,
        template_opens_thinking=template_opens_thinking,
    )
