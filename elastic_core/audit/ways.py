"""Find out by trying which of the known ways to ask for a budget a server obeys. The ways are the table that the
serving side reads, `elastic_core/serving/dialects.toml`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from elastic_core.audit.client import Answer, Client, reason
from elastic_core.engines.base import RequestFailed
from elastic_core.engines.budgets.parameters import SOLUTION, THINK
from elastic_core.serving.dialects import ARGUMENTS, SENDERS, requesting

Verdict = Literal["exact", "newline", "over", "ignored", "refused", "unclear"]
OURS = f"{ARGUMENTS}.{THINK}"
QUESTIONS = 2  # That each value of a field is sent with.
_AT_ONCE = 8
_MOST_CLOSING, _SUFFIX = 64, 8  # Tokens of a closing phrase, and characters by which it shows.
_ROOM = 64  # Tokens of a response that is to have no thought.


class Way(BaseModel):
    """A field of a request, and what the server did with it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    field: str
    """Its path in the body."""
    senders: str
    """Who sends or documents it."""
    says: Literal["number", "none"]
    """Whether it was sent with a number of thinking tokens, or to ask for no thought."""
    verdict: Verdict
    """exact: no thought was longer. newline: longer by at most a tenth, to the end of a line. over: the field limits
    the thought, and some are longer. ignored: status 200, and thoughts as without it. refused: an error. unclear: all
    thoughts are shorter than the smaller value."""
    counts: dict[int, list[int]]
    """Tokens of the thoughts, by the value sent; 0 stands for any wording of no thought."""
    closing: int = 0
    """Tokens of a phrase that the server adds to each thought it cuts; they are not counted against the budget."""
    detail: str = ""
    """The refusal."""


def fields(path: str, tokens: int, room: int) -> dict[str, Any] | None:
    """The fields of a request for at most so many tokens of thought, None where this one cannot say it."""
    if path == OURS:
        return {ARGUMENTS: {THINK: tokens, SOLUTION: room}} if tokens else None
    return requesting(tuple(path.split(".")), tokens)


def known_ways(sender: str | None) -> list[str]:
    """Paths of the fields that say a number or no thought, ours first; of those that one sender documents, or all."""
    every = {OURS: "elastic serve"} | {".".join(path): who for path, who in SENDERS.items()}
    return [
        path
        for path, who in every.items()
        if (sender is None or sender.lower() in who.lower()) and (fields(path, 1, 1) or fields(path, 0, 1))
        # The first is for messages alone; the other is how a client writes the same.
        if not path.startswith(("configuration_update.", "extra_body."))
    ]


def senders(path: str) -> str:
    return "elastic serve" if path == OURS else SENDERS[tuple(path.split("."))]


def num_requests(path: str) -> int:
    """Requests that trying a field takes."""
    return QUESTIONS * (2 if fields(path, 1, 1) else 1)


async def try_ways(client: Client, paths: Sequence[str], questions: Sequence[str], values: Sequence[int]) -> list[Way]:
    """Send each field at each of two values, or with the wording of no thought, and judge the thoughts."""
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def one(path: str, tokens: int, i: int) -> Answer:
        most = client.tokens if tokens else min(client.tokens, _ROOM)
        async with at_once:
            (answer,) = await client.ask(questions[i], i, fields(path, tokens, most - tokens), max_tokens=most)
        return answer

    async def way(path: str) -> Way:
        tried, says = (values, "number") if fields(path, 1, 1) else ([0], "none")
        about = {"field": path, "senders": senders(path), "says": says}
        asked = [(tokens, i) for tokens in tried for i in range(QUESTIONS)]
        got = await asyncio.gather(*(one(path, *each) for each in asked), return_exceptions=True)
        found: dict[int, list[Answer]] = {tokens: [] for tokens in tried}
        for (tokens, _), each in zip(asked, got, strict=True):
            if isinstance(each, RequestFailed):
                return Way(**about, verdict="refused", counts={}, detail=reason(each))
            if isinstance(each, BaseException):
                raise each
            found[tokens].append(each)
        verdict, closing = judge(found, client)
        counts = {tokens: [each.count or 0 for each in answers] for tokens, answers in found.items()}
        return Way(**about, verdict=verdict, counts=counts, closing=closing)

    return list(await asyncio.gather(*map(way, paths)))


def inexact(client: Client, tokens: int) -> int:
    """By how many tokens a count may be wrong: a text that is encoded again may have others than were sampled."""
    return 2 + tokens // 50 if client.counted_by == "text" and tokens else 0


def to_line_end(answer: Answer, excess: int, tokens: int) -> bool:
    """Whether a thought is longer only up to the end of its line, and by at most a tenth, as NIM's."""
    return excess <= math.ceil(tokens / 10) and answer.thought.endswith("\n")


def judge(found: Mapping[int, Sequence[Answer]], client: Client) -> tuple[Verdict, int]:
    """The verdict on thoughts by the budget requested, and tokens of a closing phrase."""
    each = [(tokens, answer, (answer.count or 0) - tokens) for tokens, got in found.items() for answer in got]
    longer = [(tokens, answer, excess) for tokens, answer, excess in each if excess > inexact(client, tokens)]
    if not longer:
        low, high = min(found), max(found)
        reacts = low == high or max(answer.count or 0 for answer in found[high]) > low
        return ("exact" if reacts else "unclear"), 0
    excesses = {excess for *_, excess in longer}
    ends = {answer.thought.rstrip()[-_SUFFIX:] for _, answer, _ in longer}
    if len(excesses) == 1 and {tokens for tokens, *_ in longer} == {*found} and max(found):
        (closing,) = excesses
        if closing <= _MOST_CLOSING and len(ends) == 1:
            return "exact", closing
    if all(to_line_end(answer, excess, tokens) for tokens, answer, excess in longer):
        return "newline", 0
    near = sum(excess <= max(1, tokens / 10) for tokens, _, excess in each)
    return ("over" if 2 * near >= len(each) else "ignored"), 0
