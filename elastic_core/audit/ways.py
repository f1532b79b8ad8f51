"""Find out by trying which of the known ways to ask for a budget a server obeys. The ways are the table that the
serving side reads, `elastic_core/serving/dialects.toml`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel

from elastic_core.audit.client import Answer, Client, reason
from elastic_core.engines.base import RequestFailed
from elastic_core.serving.dialects import SENDERS, requesting

Verdict = Literal["exact", "newline", "over", "ignored", "refused", "unclear"]
QUESTIONS = 2  # That each value of a field is sent with.
_MOST_CLOSING, _SUFFIX = 64, 8  # Tokens of a closing phrase, and characters by which it shows.
_ELSEWHERE = ("configuration_update.", "extra_body.")  # In messages alone; a client's spelling of another field.


class Way(BaseModel, frozen=True, extra="forbid"):
    """A field of a request, and what the server did with it; docs/audit.md explains the keys and the verdicts."""

    field: str
    senders: str
    says: Literal["number", "none"]
    verdict: Verdict = "refused"
    counts: dict[int, list[int]] = {}
    closing: int = 0
    detail: str = ""


def known_ways(sender: str) -> list[Way]:
    """Fields that say a number or no thought, untried; those whose senders a name is part of."""
    return [
        Way(field=name, senders=who, says="number" if requesting(name, 1) else "none")
        for name, who in SENDERS.items()
        if sender.lower() in who.lower() and (requesting(name, 1) or requesting(name, 0))
        if not name.startswith(_ELSEWHERE)
    ]


async def try_ways(client: Client, sender: str, questions: Sequence[str], values: Sequence[int]) -> list[Way]:
    """Send each field with each of two numbers, or asking for no thought, and judge the thoughts."""

    async def tried(way: Way) -> Way:
        found: dict[int, list[Answer]] = {}
        try:
            for tokens in values if way.says == "number" else [0]:
                body = requesting(way.field, tokens)
                got = await asyncio.gather(*(client.ask(questions[i], i, body) for i in range(QUESTIONS)))
                found[tokens] = [answer for answers in got for answer in answers]
        except RequestFailed as error:
            return way.model_copy(update={"detail": reason(error)})
        verdict, closing = judge(found)
        counts = {tokens: [each.count for each in answers] for tokens, answers in found.items()}
        return way.model_copy(update={"verdict": verdict, "closing": closing, "counts": counts})

    return list(await asyncio.gather(*map(tried, known_ways(sender))))


def inexact(answer: Answer, tokens: int) -> int:
    """Return by how much a count may be wrong: a text that is encoded again may have others than were sampled."""
    return 2 + tokens // 50 if answer.by_text and tokens else 0


def to_line_end(answer: Answer, excess: int, tokens: int) -> bool:
    """Whether a thought is longer only up to the end of its line, and by at most a tenth, as NIM's."""
    return excess <= math.ceil(tokens / 10) and answer.thought.endswith("\n")


def judge(found: Mapping[int, Sequence[Answer]]) -> tuple[Verdict, int]:
    """The verdict on thoughts by the budget requested, and tokens of a closing phrase."""
    each = [(tokens, answer, answer.count - tokens) for tokens, got in found.items() for answer in got]
    longer = [(tokens, answer, excess) for tokens, answer, excess in each if excess > inexact(answer, tokens)]
    low, high = min(found), max(found)
    if not longer:
        return ("exact" if low == high or max(each.count for each in found[high]) > low else "unclear"), 0
    (closing, *others), ends = {excess for *_, excess in longer}, {a.thought.rstrip()[-_SUFFIX:] for _, a, _ in longer}
    is_phrase = not others and len(ends) == 1 and closing <= _MOST_CLOSING
    if is_phrase and low < high and {tokens for tokens, *_ in longer} == {*found}:
        return "exact", closing
    if all(to_line_end(answer, excess, tokens) for tokens, answer, excess in longer):
        return "newline", 0
    near = sum(excess <= max(1, tokens / 10) for tokens, _, excess in each)
    return ("over" if 2 * near >= len(each) and high else "ignored"), 0
