"""Checks of a server's promises, at the field that it obeys; `audit.toml` lists them. A judge returns the fault of a
response to a request with budget t, None for nothing, or SKIP where it does not show."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel

from elastic_core.audit.client import Answer, Client, reason
from elastic_core.audit.ways import Way, inexact, requesting, to_line_end
from elastic_core.engines.base import RequestFailed
from elastic_core.engines.http_server import ServerLost
from elastic_core.statistics.intervals import share_interval

FEW = 4  # Requests of a check that takes no share.
SKIP = "skip"


class Result(BaseModel, frozen=True, extra="forbid"):
    """What a check found; docs/audit.md explains the keys."""

    name: str
    promise: str
    status: Literal["kept", "broken", "unseen"] = "unseen"
    responses: int = 0
    failures: int = 0
    at_most: float | None = None
    detail: str = "no response shows it"


@dataclass
class Run:
    """What checks share: the client, the field that works, two budgets, questions whose thoughts are longer,
    --requests, and the responses of checks with a share, each with its t."""

    client: Client
    way: Way
    budgets: tuple[int, int]
    questions: Sequence[str]
    requests: int
    answers: list[tuple[int, Answer]] = field(default_factory=list)

    @property
    def word(self) -> str:
        """A word of the thoughts, and of the answers if one is in both."""
        thoughts, texts = (
            Counter(word for _, each in self.answers for word in getattr(each, part).split())
            for part in ("thought", "text")
        )
        return max(thoughts & texts or thoughts or ["the"], key=lambda word: (thoughts[word], word))

    async def check(self, check: dict[str, Any]) -> Result:
        """Carry out an entry of `audit.toml`."""
        about = {"name": check["name"], "promise": check["promise"]}
        if ("chat" in check and self.client.api not in check) or ("pairs" in check and "seed" not in self.client.form):
            return Result(**about, detail="the server, or its API, has no such field")
        try:
            answers = self.answers if "earlier" in check else await self._answers(check)
        except RequestFailed as error:
            return Result(**about, detail=f"the server refuses it: {reason(error)}")
        except ServerLost as error:
            return Result(**about, status="broken", detail=f"the server went away: {error}")
        if "share" in check:
            self.answers += answers
        judge = getattr(self, f"judge_{check['judge']}")
        judged = [what for t, each in answers if (what := judge(t, each)) != SKIP]
        if not judged:
            return Result(**about)
        wrong = Counter(what for what in judged if what is not None)
        share = wrong.total() / len(judged)
        return Result(
            **about,
            status="broken" if wrong else "kept",
            responses=len(judged),
            failures=wrong.total(),
            at_most=share_interval(share, len(judged))[1],
            detail="; ".join(f"{what} ({count})" for what, count in wrong.most_common(2)),
        )

    async def _answers(self, check: dict[str, Any]) -> list[tuple[int, Answer]]:
        async def one(number: int) -> list[tuple[int, Answer]]:
            at = number // 2 if "pairs" in check else number
            t, question = self.budgets[at % 2], self.questions[at % len(self.questions)]
            given = _filled(check.get(self.client.api, {}), {"{question}": question, "{word}": self.word})
            given |= {self.client.form[0]: t // 2} if "half" in check else {}
            asked = requesting(self.way.field, t) | given
            return [(t, each) for each in await self.client.ask(question, at, asked, "stream" in check)]

        if "leaving" in check:
            asked = requesting(self.way.field, self.budgets[1])
            leave = partial(self.client.ask, given=asked, stream=True, leave_after=3)
            await asyncio.gather(*map(leave, self.questions[:FEW], range(FEW)))
        numbers = range(num_requests(check, self.requests))
        if "together" in check:  # As many at once as the client has connections.
            got = await asyncio.gather(*map(one, numbers))
        else:
            got = [await one(number) for number in numbers]
        found = [each for answers in got for each in answers]
        for (_, first), (_, second) in zip(found[::2], found[1::2], strict=False):
            second.repeats = (first.thought, first.text) == (second.thought, second.text)
        return found[1::2] if "pairs" in check else found

    def judge_long(self, t: int, answer: Answer) -> str | None:
        excess = answer.count - t - self.way.closing
        is_line = self.way.verdict == "newline" and to_line_end(answer, excess, t)
        is_kept = excess <= inexact(answer, t) or is_line
        return None if is_kept else f"{answer.count} tokens of thought at t = {t}"

    def judge_leak(self, t: int, answer: Answer) -> str | None:
        return "a mark in the answer" if answer.again else None

    def judge_stop(self, t: int, answer: Answer) -> str | None:
        return "the answer has the stop string" if self.word in answer.text else None

    def judge_history(self, t: int, answer: Answer) -> str | None:
        return self.judge_long(t, answer) if answer.count else "no thought"

    def judge_seed(self, t: int, answer: Answer) -> str | None:
        return None if answer.repeats else "another response"

    def judge_answer(self, t: int, answer: Answer) -> str | None:
        if abs(answer.count - t - self.way.closing) > inexact(answer, t):
            return SKIP  # The thought was not cut.
        return None if answer.text.strip() or answer.arguments else f"no answer, and finish_reason {answer.finish}"

    def judge_finish(self, t: int, answer: Answer) -> str | None:
        if answer.sampled > t // 2:
            return f"{answer.sampled} tokens of max_tokens = {t // 2}"
        is_wrong = not answer.text.strip() and answer.finish != "length"
        return f"no answer, and finish_reason {answer.finish}" if is_wrong else None

    def judge_usage(self, t: int, answer: Answer) -> str | None:
        told, marks = answer.reasoning_tokens, 4 + self.way.closing  # It may count the marks, or what was forced.
        if not answer.usage or self.client.api == "messages":
            return SKIP
        if told is None:
            return "reasoning_tokens is missing"
        if abs(told - answer.count) > max(marks, inexact(answer, t)):
            return "reasoning_tokens is 0" if not told else "reasoning_tokens is not the number of the thought's tokens"
        is_sum = not answer.ids or 0 <= len(answer.ids) - answer.sampled <= marks
        return None if is_sum else "completion_tokens is not the number of ids"

    def judge_call(self, t: int, answer: Answer) -> str | None:
        return self._judge_json(t, answer, answer.arguments)

    def judge_schema(self, t: int, answer: Answer) -> str | None:
        return self._judge_json(t, answer, answer.text)

    def _judge_json(self, t: int, answer: Answer, said: str) -> str | None:
        if wrong := self.judge_long(t, answer):
            return wrong
        if answer.thought.lstrip().startswith('{"'):
            return "the JSON begins in the thought"
        if answer.finish == "length":
            return SKIP
        try:
            value = json.loads(said)
        except ValueError:
            return f"no JSON: {said[:80]!r}" if said else f"none; the answer is {answer.text[:80]!r}"
        is_right = isinstance(value, dict) and isinstance(value.get("answer"), int)
        return None if is_right else f"not of the schema: {said[:80]!r}"

    def judge_logprobs(self, t: int, answer: Answer) -> str | None:
        values = [each.get("logprob") for each in answer.logprobs]
        if not values:
            return "there are none"
        if not all(isinstance(each, (int, float)) and each <= 1e-6 for each in values):
            return "some are above 0, or no numbers"
        return None if len(values) >= answer.sampled else "fewer than completion_tokens"


def num_requests(check: dict[str, Any], requests: int) -> int:
    """Requests that a check is judged by."""
    return 0 if "earlier" in check else max(2, math.ceil(check["share"] * requests)) if "share" in check else FEW


def _filled(value: Any, words: dict[str, str]) -> Any:
    """A part of a request with the words in place of their names."""
    if isinstance(value, dict):
        return {key: _filled(each, words) for key, each in value.items()}
    return [_filled(each, words) for each in value] if isinstance(value, list) else words.get(value, value)
