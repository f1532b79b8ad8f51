"""Checks of a server's promises, each at the field that it obeys: a function that sends requests, and says of each
response what is wrong with it, or None."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from elastic_core.audit.client import Answer, Client, reason
from elastic_core.audit.ways import Way, fields, inexact, to_line_end
from elastic_core.engines.base import RequestFailed
from elastic_core.statistics.intervals import share_interval

Status = Literal["kept", "broken", "unseen"]
Wrong = str | None
FEW = 4  # Requests of a check beside the budget's.


class Result(BaseModel):
    """What a check found."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    promise: str
    """What a server that passes does."""
    status: Status
    """kept, broken, or unseen: it could not be tried."""
    responses: int = Field(0, ge=0)
    """That were looked at."""
    failures: int = Field(0, ge=0)
    """Of these, that break the promise."""
    at_most: float | None = None
    """Upper end of the 95 % interval of the share of responses that break it (Clopper and Pearson 1934)."""
    detail: str = ""
    """What the commonest failures are, why it could not be tried, or what else was seen."""


class Unseen(Exception):
    """A promise could not be tried; the message says why."""


@dataclass
class Run:
    """What checks share: the client, the field that works, two budgets and questions whose thoughts are longer; all
    responses under a budget so far, each with its t; and remarks of the check that is running."""

    client: Client
    way: Way
    budgets: tuple[int, int]
    questions: Sequence[str]
    natural: Sequence[Answer]
    requests: int
    concurrent: int
    answers: list[tuple[int, Answer]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    number: int = 0

    async def ask(self, question: Any = None, given: dict[str, Any] | None = None, **options: Any) -> list[Answer]:
        """A response to the next question, at the two budgets in turn. Raises Unseen when the server refuses."""
        number, self.number = self.number, self.number + 1
        t = options.pop("t", self.budgets[number % 2])
        asked = fields(self.way.field, t, self.client.tokens - t) or {}
        question = question or self.questions[number % len(self.questions)]
        try:
            got = await self.client.ask(question, options.pop("seed", number), asked | (given or {}), **options)
        except RequestFailed as error:
            raise Unseen(f"the server refuses it: {reason(error) or error}") from None
        self.answers += [(t, each) for each in got]
        return got

    def too_long(self, last: int) -> list[Wrong]:
        """Of the last responses, what is wrong with the length of the thought."""
        return [self._excess(t, answer) for t, answer in self.answers[len(self.answers) - last :]]

    def _excess(self, t: int, answer: Answer) -> Wrong:
        excess = (answer.count or 0) - t - self.way.closing
        if answer.count is None:
            return None
        is_line = self.way.verdict == "newline" and to_line_end(answer, excess, t)
        return None if excess <= inexact(self.client, t) or is_line else f"{answer.count} tokens of thought at t = {t}"


class Check(NamedTuple):
    name: str
    promise: str
    run: Callable[[Run], Awaitable[list[Wrong]]]
    requests: Callable[[int], int]


CHECKS: list[Check] = []
"""In the order in which they run."""


def check(name: str, promise: str, requests: Callable[[int], int] = lambda _: FEW) -> Callable[..., Any]:
    """Register a check; `requests` are those it sends, by the number that --requests gives."""

    def register(run: Callable[[Run], Awaitable[list[Wrong]]]) -> Any:
        CHECKS.append(Check(name, promise, run, requests))
        return run

    return register


def _budget_check(title: str, share: float, at_once: bool, **options: Any) -> None:
    def number(requests: int) -> int:
        return max(2, math.ceil(share * requests))

    @check(f"budget, {title}", "a thought has at most t tokens", number)
    async def _(run: Run) -> list[Wrong]:
        before, left = len(run.answers), number(run.requests)
        while left:
            together = min(left, run.concurrent if at_once else 1)
            await asyncio.gather(*(run.ask(**options) for _ in range(together)))
            left -= together
        return run.too_long(len(run.answers) - before)


_budget_check("one at a time", 0.2, False)
_budget_check("one at a time, streamed", 0.2, False, stream=True)
_budget_check("many at once", 0.25, True)
_budget_check("many at once, streamed", 0.25, True, stream=True)
_budget_check("two choices a request", 0.1, False, given={"n": 2})


def no_requests(_: int) -> int:
    return 0


@check("leak", "no mark of a thought, and no second thought, comes after the thought", no_requests)
async def _(run: Run) -> list[Wrong]:
    return [f"…{answer.text[:60]}…" if answer.again else None for _, answer in run.answers]


@check("answer", "a thought that was cut is followed by an answer", no_requests)
async def _(run: Run) -> list[Wrong]:
    cut = [each for t, each in run.answers if abs((each.count or 0) - t - run.way.closing) <= inexact(run.client, t)]
    return [None if answer.text.strip() or answer.calls else f"no answer, {answer.finish}" for answer in cut]


@check("finish", "a response that max_tokens cuts inside its thought has no more tokens, and says length")
async def _(run: Run) -> list[Wrong]:
    found: list[Wrong] = []
    most = max(1, run.budgets[0] // 2)
    for _ in range(FEW):
        (answer,) = await run.ask(max_tokens=most)
        run.answers.pop()
        if (answer.sampled or 0) > most:
            found.append(f"{answer.sampled} tokens of max_tokens = {most}")
        else:
            is_cut = not answer.text.strip() and answer.finish != "length"
            found.append(f"no answer, and finish_reason {answer.finish}" if is_cut else None)
    return found


@check("usage", "usage counts the thought's tokens (reasoning_tokens), and all (completion_tokens)", no_requests)
async def _(run: Run) -> list[Wrong]:
    found: list[Wrong] = []
    for _, answer in run.answers:
        told, count = answer.reasoning_tokens, answer.count or 0
        if answer.usage is None:
            continue
        if told is None:
            found.append("reasoning_tokens is missing")
        elif abs(told - count) > max(FEW, inexact(run.client, count), count // 10):  # Marks may be counted.
            found.append(f"reasoning_tokens is {told}, and the thought has {count}")
        elif answer.ids and not 0 <= len(answer.ids) - (answer.sampled or 0) <= max(FEW, run.way.closing):
            found.append(f"completion_tokens is {answer.sampled}, and {len(answer.ids)} ids came")
        else:
            found.append(None)
    if not found:
        raise Unseen("no response has usage")
    return found


_TOOL = {"name": "answer", "description": "Give the answer to the question."}
_SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}


async def _structured(run: Run, given: dict[str, Any], text: Callable[[Answer], Any], missing: str) -> list[Wrong]:
    """Responses whose `text` has to be JSON of the schema; those that max_tokens cuts are not looked at."""
    found: list[Wrong] = []
    for _ in range(FEW):
        (answer,) = await run.ask(given=given)
        said = text(answer)
        begins = answer.thought.lstrip().startswith('{"')
        if answer.finish == "length" and not begins:
            continue
        wrong = "the JSON begins in the thought" if begins else _not_of_schema(said) if said else missing
        found.append(run.too_long(1)[0] or wrong)
    if not found:
        raise Unseen(f"none of {FEW} responses ended within {run.client.tokens} tokens")
    return found


def _not_of_schema(said: Any) -> Wrong:
    try:
        value = json.loads(said) if isinstance(said, str) else said
    except ValueError:
        return f"no JSON: {said[:60]!r}"
    return None if isinstance(value, dict) and isinstance(value.get("answer"), int) else f"not of the schema: {value}"


@check("tool call", "a required tool is called after a thought that was cut, with arguments of its schema")
async def _(run: Run) -> list[Wrong]:
    if run.client.api == "messages":
        given = {"tools": [{**_TOOL, "input_schema": _SCHEMA}], "tool_choice": {"type": "any"}}
    else:
        tool = {"type": "function", "function": {**_TOOL, "parameters": _SCHEMA}}
        given = {"tools": [tool], "tool_choice": "required"}
    return await _structured(run, given, lambda each: each.calls and each.calls[0].get("arguments"), "no call")


@check("schema", "JSON of a schema begins after the thought, and is complete")
async def _(run: Run) -> list[Wrong]:
    schema = {"name": "answer", "schema": _SCHEMA, "strict": True}
    given = {"response_format": {"type": "json_schema", "json_schema": schema}}
    if run.client.api == "messages":
        given = {"output_config": {"format": {"type": "json_schema", "schema": _SCHEMA}}}
    return await _structured(run, given, lambda each: each.text, "no answer")


@check("stop", "a stop string is in no answer, and lifts no budget")
async def _(run: Run) -> list[Wrong]:
    thoughts, texts = (Counter(" ".join(each).split()) for each in zip(*((a.thought, a.text) for _, a in run.answers)))
    words = thoughts & texts or thoughts
    if not words:
        raise Unseen("no thought is shown")
    word, inside = words.most_common(1)[0][0], 0
    found: list[Wrong] = []
    for _ in range(FEW):
        name = "stop_sequences" if run.client.api == "messages" else "stop"
        (answer,) = await run.ask(given={name: [word]})
        run.answers.pop()
        inside += not answer.text.strip()
        found.append(f"the answer has the stop string {word!r}" if word in answer.text else None)
    run.notes.append(f"{inside} of {FEW} responses ended inside the thought" if inside else "")
    return found


@check("history", "earlier thoughts in the conversation neither lift nor use up the budget")
async def _(run: Run) -> list[Wrong]:
    found: list[Wrong] = []
    thoughts = 0
    for i in range(FEW):
        said = {"role": "assistant", "content": "<think>\nLet me see.\n</think>\n\nIt is 4."}
        again = run.questions[i % len(run.questions)]
        (answer,) = await run.ask([{"role": "user", "content": "2+2=?"}, said, {"role": "user", "content": again}])
        found += run.too_long(1)
        run.answers.pop()
        thoughts += bool(answer.count)
    return found if thoughts else ["no thought at all"] * FEW


@check("seed", "two requests with one seed, one after the other, have one response")
async def _(run: Run) -> list[Wrong]:
    if "seed" not in run.client.form:
        raise Unseen("the server takes no seed")
    repeats = []
    for i in range(FEW // 2):
        pair = [await run.ask(run.questions[0], seed=i, t=run.budgets[1]) for _ in range(2)]
        (first,), (second,) = pair
        repeats.append((first.thought, first.text) == (second.thought, second.text))
    run.notes.append(f"{sum(repeats)} of {len(repeats)} repeat")
    return [None if any(repeats) else "another response"] * len(repeats)


@check("logprobs", "each token of the response has a logarithm of a probability")
async def _(run: Run) -> list[Wrong]:
    found: list[Wrong] = []
    for _ in range(FEW):
        (answer,) = await run.ask(given={"logprobs": True})
        values = [each.get("logprob") for each in answer.logprobs or ()]
        if not values:
            found.append("there are none")
        elif not all(isinstance(each, (int, float)) and math.isfinite(each) and each <= 1e-6 for each in values):
            found.append("some are above 0, or no numbers")
        else:
            few = len(values) < (answer.sampled or 0)
            found.append(f"{len(values)} of {answer.sampled} tokens" if few else None)
    return found


@check("leaving", "after clients that leave a stream the server answers, and keeps the budget", lambda _: 2 * FEW)
async def _(run: Run) -> list[Wrong]:
    await asyncio.gather(*(run.ask(stream=True, leave_after=3) for _ in range(FEW)))
    await asyncio.gather(*(run.ask() for _ in range(FEW)))
    return run.too_long(FEW)


async def carry_out(each: Check, run: Run) -> Result:
    """Run one check."""
    run.notes.clear()
    try:
        found = await each.run(run)
    except Unseen as reason:
        return Result(name=each.name, promise=each.promise, status="unseen", detail=str(reason))
    if not found:
        return Result(name=each.name, promise=each.promise, status="unseen", detail="no response to look at")
    wrong = [what for what in found if what is not None]
    commonest = [f"{what} ({count})" if count > 1 else what for what, count in Counter(wrong).most_common(2)]
    return Result(
        name=each.name,
        promise=each.promise,
        status="broken" if wrong else "kept",
        responses=len(found),
        failures=len(wrong),
        at_most=share_interval(len(wrong) / len(found), len(found))[1],
        detail="; ".join(filter(None, [*commonest, *run.notes])),
    )


def first_answer(run: Run) -> tuple[float, float, float, int] | None:
    """Seconds to the first token of the answer, of streams: median, least, most, and their number."""
    seconds = [answer.seconds for _, answer in run.answers if answer.seconds is not None]
    return (median(seconds), min(seconds), max(seconds), len(seconds)) if seconds else None
