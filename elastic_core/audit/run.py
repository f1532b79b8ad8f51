"""The audit of a server, and the document that it leaves (`audit.json`)."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elastic_core.audit import ways
from elastic_core.audit.checks import CHECKS, Result, Run, carry_out
from elastic_core.audit.client import Client
from elastic_core.audit.ways import Way, known_ways, try_ways
from elastic_core.engines.http_server import ServerLost, look, server_version
from elastic_core.errors import UserError

QUESTIONS = (
    "How many ways are there to seat 5 people around a round table so that two of them are not neighbours?",
    "Find all integers n for which n^2 + 7n + 6 is a perfect square.",
    "A ladder of 10 m slides down a wall. How fast is its top when its foot is 6 m away and moves at 1 m/s?",
    "Which is larger, 2^100 or 3^63? Do not use logarithms.",
    "What is the sum of the digits of 99 times 12345679?",
    "Three dice are thrown. What is the probability that their sum is 10?",
)
_LEAST = 4  # Tokens of the smaller budget.
UNSEEN = (
    "whether the thought that is shown is the one that was sampled: it may be summarised or hidden",
    "whether the ids, the usage and the version that the server reports are true",
    "whether an answer goes on thinking without a mark, and how good answers are under a budget",
    "whether responses have the distribution of cutting thoughts of the same model by hand",
    "whether the engine goes on sampling after a client has left",
    "what happens with more requests at once, longer thoughts, images, or other APIs than the one asked",
)
"""What no audit sees from outside."""


class Audit(BaseModel):
    """What `audit.json` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    format: Literal[1] = 1
    """Version of the format; a file of another one is refused."""
    address: str
    """URL and model."""
    server: str
    """What the server calls itself, and its version, "unknown" where it does not say."""
    date: datetime.date
    api: Literal["chat", "messages"]
    """OpenAI's chat completions or Anthropic's messages."""
    counted_by: Literal["ids", "text", "usage"]
    """What tells the length of a thought: token ids (exact), its text by a tokenizer (2 tokens and 2 % are tolerated),
    or the server's usage."""
    requests: int = Field(ge=1)
    """Requests that were sent."""
    natural: list[int]
    """Tokens of the thoughts without a budget, cut at --tokens."""
    budgets: tuple[int, int]
    """The two values of t that were sent."""
    ways: list[Way]
    way: str | None
    """The field by which the checks were made, the first that works; None where none does, and none were made."""
    checks: list[Result]
    first_answer: list[float] | None = None
    """Seconds to the first token of a streamed answer under a budget: median, least, most, number of streams."""
    unseen: list[str]
    """What the audit cannot see."""

    @property
    def broken(self) -> list[str]:
        """Promises that the server breaks, in words."""
        ignored = [
            f"{each.field} is {each.verdict}" for each in self.ways if each.field == self.way and each.verdict == "over"
        ]
        return [*([] if self.way else ["no field for a number of thinking tokens is obeyed"]), *ignored,
            *(f"{each.name}: {each.promise}" for each in self.checks if each.status == "broken")]  # fmt: skip

    def changes(self, old: Audit) -> list[str]:
        """What differs from an earlier audit."""
        sides = [
            {"server": each.server, "checks at": each.way, **{way.field: way.verdict for way in each.ways},
             **{check.name: check.status for check in each.checks}} for each in (old, self)
        ]  # fmt: skip
        before, now = sides
        return [
            f"{key}: {before.get(key, 'not tried')} → {now.get(key, 'not tried')}"
            for key in {**before, **now}
            if before.get(key) != now.get(key)
        ]


def read_audit(path: Path) -> Audit:
    """An earlier audit's document; UserError with the key, where it is none."""
    try:
        return Audit.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; expected the audit.json of an earlier audit") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path}: {key}: {first['msg']}; expected the audit.json of an earlier audit") from None


def num_requests(questions: Sequence[str], sender: str | None, requests: int) -> int:
    """Most requests that an audit sends."""
    return (
        len(questions)
        + sum(map(ways.num_requests, known_ways(sender)))
        + sum(each.requests(requests) for each in CHECKS)
    )


async def audit(
    client: Client,
    questions: Sequence[str],
    sender: str | None,
    requests: int,
    concurrent: int,
    say: Callable[[str], None],
) -> Audit:
    """Ask without a budget, try every known field, then check the promises at the first that works. Raises UserError
    when nothing tells the length of thoughts, or they are too short."""
    served = await look(client.server, client.server.address.model)
    say("thoughts without a budget")
    natural = await client.begin(questions)
    ranked = sorted(zip(natural, questions, strict=True), key=lambda each: each[0].count or 0, reverse=True)
    longest = ranked[: max(ways.QUESTIONS, len(ranked) // 2)]
    high = min((longest[-1][0].count or 0) // 2, client.tokens // 4)
    budgets = (high // 2, high)
    if budgets[0] < _LEAST:
        counts = sorted(each.count or 0 for each in natural)
        raise UserError(
            f"{client.server.address}: thoughts without a budget have {counts} tokens, too few to cut: expected two of "
            f"{4 * _LEAST} or more; ask what makes the model think longer: --question TEXT, again and again, or raise "
            "--tokens"
        )
    asked = [question for _, question in longest]
    say("ways to ask for a budget")
    tried = await try_ways(client, known_ways(sender), asked, budgets)
    order = ("exact", "newline", "over")
    works = sorted(
        (each for each in tried if each.verdict in order and each.says == "number"),
        key=lambda each: order.index(each.verdict),
    )
    results: list[Result] = []
    run = None
    if works:
        run = Run(client, works[0], budgets, asked, natural, requests, concurrent)
        for each in CHECKS:
            say(each.name)
            try:
                results.append(await carry_out(each, run))
            except ServerLost as error:
                results.append(Result(name=each.name, promise=each.promise, status="broken", detail=str(error)))
                break
    seconds = [answer.seconds for _, answer in run.answers if answer.seconds is not None] if run else []
    return Audit(
        address=str(client.server.address),
        server=f"{served.server} {await server_version(client.server)}",
        date=datetime.datetime.now(datetime.UTC).date(),
        api=client.api,
        counted_by=client.counted_by,
        requests=client.sent,
        natural=[each.count or 0 for each in natural],
        budgets=budgets,
        ways=tried,
        way=works[0].field if works else None,
        checks=results,
        first_answer=[median(seconds), min(seconds), max(seconds), len(seconds)] if seconds else None,
        unseen=list(UNSEEN),
    )
