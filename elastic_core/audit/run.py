"""The audit of a server, and the document that it leaves."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from elastic_core.audit.checks import Result, Run, num_requests
from elastic_core.audit.client import Answer, Api, Client, reason
from elastic_core.audit.ways import QUESTIONS, Way, known_ways, try_ways
from elastic_core.engines.base import RequestFailed
from elastic_core.engines.http_server import HttpServer, listed_models, server_version
from elastic_core.errors import UserError, first_fault

TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("audit.toml").read_text())
_LEAST = 4  # Tokens of the smaller budget.
_ORDER = ("exact", "newline", "over")  # Verdicts on a field that works, the best first.


class Audit(BaseModel, frozen=True, extra="forbid"):
    """What `audit.json` holds; docs/audit.md explains the keys."""

    format: Literal[1] = 1
    address: str
    server: str
    date: datetime.date
    api: Api
    counted_by: Literal["ids", "text", "usage"]
    requests: int
    natural: list[int]
    budgets: tuple[int, int]
    ways: list[Way]
    way: str | None
    checks: list[Result]
    first_answer: list[float]
    unseen: list[str]

    @property
    def broken(self) -> list[str]:
        """Promises that the server breaks."""
        return [each.name for each in self.checks if each.status == "broken"] if self.way else ["any budget"]

    def changes(self, old: Audit) -> list[str]:
        """What differs from an earlier audit."""
        before, now = (
            {"server": each.server, "checks at": each.way}
            | {way.field: way.verdict for way in each.ways}
            | {check.name: check.status for check in each.checks}
            for each in (old, self)
        )
        keys = [key for key in before | now if before.get(key) != now.get(key)]
        return [f"{key}: {before.get(key, 'not tried')} → {now.get(key, 'not tried')}" for key in keys]


def read_audit(path: Path) -> Audit:
    """Read an earlier audit's document; UserError with the key that is wrong."""
    try:
        return Audit.model_validate_json(path.read_bytes())
    except OSError as error:
        why = error.strerror
    except ValidationError as error:
        why = first_fault(error)
    raise UserError(f"{path}: {why}; expected the audit.json of an earlier audit")


def most_requests(questions: Sequence[str], sender: str, requests: int) -> int:
    """Requests that an audit sends at most, two choices of one counted as two."""
    tried = sum(QUESTIONS * (2 if each.says == "number" else 1) for each in known_ways(sender))
    checks = sum(num_requests(each, requests) * each.get("chat", {}).get("n", 1) for each in TABLE["check"])
    return (len(questions) or len(TABLE["questions"])) + tried + checks + num_requests({}, requests)


async def _find_model(server: HttpServer) -> str:
    """Address the server's only model where none is named, and return who owns it. Raises UserError when there is no
    such model, or no API."""
    url, name = server.address.url, server.address.model
    try:
        found = await listed_models(server)
    except RequestFailed as error:
        if not name:
            raise UserError(
                f"{url}/models lists no models: {reason(error)}; expected the API's address, which often ends in /v1, "
                "or --model NAME"
            ) from None
        return "unknown"  # Some gateways list none.
    if not name and len(found) == 1:
        (name,) = found
    if name not in found:
        raise UserError(f"{url} serves {', '.join(found) or 'no model'}; name one: --model NAME")
    server.address = server.address._replace(model=name)
    return str(found[name].get("owned_by") or "unknown")


async def audit(client: Client, questions: Sequence[str], sender: str, requests: int) -> Audit:
    """Ask without a budget, try every known field of a sender ("" for all), then check the promises at the first that
    works best. Raises UserError as `_find_model`, when nothing tells the length of thoughts, or they are too short to
    cut."""
    owner = await _find_model(client.server)
    version = await server_version(client.server)
    questions = questions or TABLE["questions"]
    natural = await client.begin(questions)
    ranked = sorted(zip(natural, questions, strict=True), key=lambda each: -each[0].count)
    longest = ranked[: max(QUESTIONS, len(ranked) // 2)]
    high = min(longest[-1][0].count // 2, client.tokens // 4)
    budgets, asked = (high // 2, high), [question for _, question in longest]
    if budgets[0] < _LEAST:
        raise UserError(
            f"{client.server.address}: thoughts without a budget have {[each.count for each in natural]} tokens, too "
            f"few to cut: expected two of {4 * _LEAST} or more; ask what makes it think longer (--question TEXT, again "
            "and again), or raise --tokens"
        )
    tried = await try_ways(client, sender, asked, budgets)
    works = [each for verdict in _ORDER for each in tried if (each.verdict, each.says) == (verdict, "number")]
    results, answers = list[Result](), list[tuple[int, Answer]]()
    if works:
        run = Run(client, works[0], budgets, asked, requests, answers)
        for check in TABLE["check"]:
            results.append(await run.check(check))
            if results[-1].status == "broken" and not results[-1].responses:
                break  # The server went away.
    seconds = [answer.seconds for _, answer in answers if answer.seconds is not None]
    return Audit(
        address=str(client.server.address),
        server=f"{owner} {version}",
        date=datetime.datetime.now(datetime.UTC).date(),
        api=client.api,
        counted_by=client.counted_by,
        requests=client.sent,
        natural=[each.count for each in natural],
        budgets=budgets,
        ways=tried,
        way=works[0].field if works else None,
        checks=results,
        first_answer=[median(seconds), min(seconds), max(seconds)] if seconds else [],
        unseen=TABLE["unseen"],
    )
