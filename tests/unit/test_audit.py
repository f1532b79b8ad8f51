"""`elastic audit` finds what a server breaks, and invents nothing."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.audit.client import Client
from elastic_core.audit.run import Audit, audit
from elastic_core.engines.endpoint import EndpointParameters, parse_address
from elastic_core.engines.http_server import HttpServer
from elastic_core.errors import UserError
from elastic_core.serving.dialects import DIALECTS, SENDERS, requesting
from elastic_core.serving.requests import ServeConfiguration, plan
from flows.commands.audit import DOCUMENT
from flows.commands.audit import audit as command
from reports.audit import PAGE
from tests.audited import FIELD, MODEL, Scripted, listening, tokens_of
from tests.unit.test_serving_law import MARKS

CALLS = {"tool call", "schema", "history", "leaving"}
LENGTHS = {
    "one at a time",
    "one at a time, streamed",
    "many at once",
    "many at once, streamed",
    "two choices a request",
}
FAULTS = {
    "over by one": LENGTHS | CALLS,
    "streams": {"one at a time, streamed", "many at once, streamed"},
    "second choice": {"two choices a request"},
    "leak": {"leak"},
    "empty": {"answer"},
    "finish": {"finish"},
    "usage": {"usage"},
    "no reasoning_tokens": {"usage"},
    "tool call": {"tool call"},
    "schema": {"schema"},
    "stop": {"stop"},
    "history": {"history"},
    "seed": {"seed"},
    "logprobs": {"logprobs"},
}


def audited(
    scripted: Scripted, sender: str = "vLLM", encode: Any = None, api: Any = "chat", tokens: int = 256
) -> Audit:
    async def run() -> Audit:
        address = parse_address(f"openai+{scripted.url}#{MODEL}")
        async with HttpServer("audit", address, EndpointParameters(max_requests=16, wait_seconds=5)) as server:
            client = Client(server, api, tokens, lambda: None, encode)
            return await audit(client, (), sender, 20)

    with listening(scripted):
        return asyncio.run(run())


def verdict(found: Audit, name: str = FIELD) -> str:
    return next(each.verdict for each in found.ways if each.field == name)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found_and_no_other(fault: str) -> None:
    assert {*audited(Scripted(fault)).broken} == FAULTS[fault]


def test_a_budget_that_is_lost_in_one_request_of_five_is_found() -> None:
    found = audited(Scripted("sometimes"))
    assert {*found.broken} & LENGTHS
    assert verdict(found) in ("exact", "over")


def test_ids_that_a_proxy_loses_from_streams_break_no_promise() -> None:
    found = audited(Scripted(loses_ids=True))
    assert (found.counted_by, found.broken) == ("ids", [])


@pytest.mark.parametrize("counted_by", ["ids", "text"])
@pytest.mark.parametrize(("fault", "broken"), [("", []), ("ignored", ["any budget"])])
def test_thoughts_within_the_text_count_though_some_have_no_end(fault: str, broken: list[str], counted_by: str) -> None:
    found = audited(Scripted(fault, splits=False, shows_ids=counted_by == "ids"), tokens=512)
    assert (found.counted_by, found.broken) == (counted_by, broken)


@pytest.mark.parametrize("shows_ids", [True, False])
def test_a_text_without_any_mark_is_no_thought(shows_ids: bool) -> None:
    with pytest.raises(UserError, match=r"shows no thought|have \[0, 0, 0, 0, 0, 0\] tokens, too few to cut"):
        audited(Scripted("thinks nothing", splits=False, shows_ids=shows_ids))


@pytest.mark.parametrize("seed", range(20))
def test_a_right_server_breaks_nothing(seed: int) -> None:
    vocabulary = Scripted().vocabulary
    kinds: list[tuple[str, Scripted, Any]] = [
        ("ids", Scripted(seed=seed), None),
        ("text", Scripted(seed=seed, shows_ids=False), None),
        ("text", Scripted(seed=seed, tokenizes=False), lambda text: vocabulary.encode(tokens_of(text))),
        ("usage", Scripted(seed=seed, tokenizes=False), None),
    ]
    counted_by, scripted, encode = kinds[seed % 4]
    if encode is not None:
        scripted.shows_ids = False
    found = audited(scripted, encode=encode)
    assert (found.broken, found.way, found.counted_by) == ([], FIELD, counted_by)
    assert {each.status for each in found.checks} == {"kept"}
    assert all(each.at_most is not None and each.at_most < 1 for each in found.checks)


def test_every_known_field_is_tried_and_each_verdict_given() -> None:
    found = audited(Scripted(), sender="")
    assert verdict(found) == "exact"
    assert verdict(found, "reasoning_budget") == "refused"
    assert "reasoning_budget is not a field" in next(e.detail for e in found.ways if e.field == "reasoning_budget")
    assert {each.verdict for each in found.ways} == {"exact", "refused", "ignored"}
    caps = [path for path, kind in DIALECTS.items() if kind in ("cap", "template_cap") and path[0] != "extra_body"]
    numbers = {each.field for each in found.ways if each.says == "number"}
    assert numbers == {".".join(path) for path in [*caps, ("vllm_xargs", "think_budget")]}


def test_no_budget_at_all_is_a_broken_promise() -> None:
    found = audited(Scripted("ignored"))
    assert (verdict(found), found.way, found.broken, found.checks) == ("ignored", None, ["any budget"], [])


@pytest.mark.parametrize(("fault", "expected"), [("ends the line", "newline"), ("closing phrase", "exact")])
def test_the_end_of_a_line_and_a_closing_phrase_break_no_budget(fault: str, expected: str) -> None:
    found = audited(Scripted(fault))
    assert (verdict(found), found.broken) == (expected, [])


def test_anthropics_messages_are_audited_too() -> None:
    found = audited(Scripted(), "Anthropic", api="messages")
    assert (found.way, found.counted_by, found.broken) == ("thinking.budget_tokens", "text", [])
    assert {e.name for e in found.checks if e.status == "unseen"} == {
        "two choices a request", "usage", "seed", "logprobs",
    }  # fmt: skip


@given(st.sampled_from([*SENDERS]), st.integers(0, 2**31 - 1))
def test_the_server_reads_what_the_audit_writes(field: str, tokens: int) -> None:
    if body := requesting(field, tokens):
        assert plan("chat", body, ServeConfiguration(), MARKS).budget.think == tokens
    elif tokens:
        assert DIALECTS[tuple(field.split("."))] not in ("cap", "template_cap")


@pytest.fixture
def right() -> Iterator[Scripted]:
    with listening(Scripted()) as scripted:
        yield scripted


def call(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--as", "vllm", "--requests", "10", "--tokens", "128"])


def test_the_command_writes_a_document_and_a_page_and_keeps_its_price(right: Scripted, tmp_path: Path) -> None:
    done = call(right.url, "--to", str(tmp_path))
    assert (done.exit_code, "every promise kept" in done.output) == (0, True)
    most = int(re.search(r"at most (\d+) responses of 128 tokens", done.output)[1])  # type: ignore[index]
    document = json.loads((tmp_path / DOCUMENT).read_text())
    assert right.requests == document["requests"] <= most
    page = (tmp_path / PAGE).read_text()
    assert FIELD in page and "default-src" in page and "<script" not in page
    explained = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    fields = {*document, *document["ways"][0], *document["checks"][0]}
    assert {name for name in fields if f"`{name}`" not in explained} == set()


def test_a_dry_run_sends_nothing(right: Scripted) -> None:
    assert (call(right.url, "--dry-run").exit_code, right.requests) == (0, 0)


def test_an_upgrade_that_breaks_a_promise_is_a_change_and_status_1(right: Scripted, tmp_path: Path) -> None:
    call(right.url, "--to", str(tmp_path / "old"))
    right.fault = "leak"
    done = call(right.url, "--to", str(tmp_path), "--compare", str(tmp_path / "old" / DOCUMENT), "--markdown")
    assert done.exit_code == 1
    assert "Since the earlier audit: leak: kept → broken." in done.output
    assert "| leak: no mark of a thought comes after the thought | ✗ broken |" in done.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["http://127.0.0.1:9/v1", "--key-from", "NO_SUCH_KEY"], "--key-from NO_SUCH_KEY: it is not set"),
        (["http://127.0.0.1:9/v1", "--question", "1+1=?"], "there is one --question"),
        (["127.0.0.1:9"], "127.0.0.1:9 is no address"),
        (["http://127.0.0.1:9/v1", "--compare", "/no/such/file"], "expected the audit.json"),
        (["{url}/chat/completions"], "expected the API's address, which often ends in /v1"),
        (["{url}", "--model", "other"], "serves scripted; name one"),
        (["{url}", "--question", "say nothing", "--question", "say nothing"], "too few to cut"),
    ],
)
def test_what_cannot_be_audited_is_one_sentence(right: Scripted, arguments: list[str], sentence: str) -> None:
    done = call(*(each.format(url=right.url) for each in arguments))
    assert sentence in str(done.exception)
    assert done.exit_code == 1 and not isinstance(done.exception, SystemExit)


@pytest.mark.parametrize("choices", [[], "none", [{"message": {"content": ["text"]}}], [None]])
def test_a_response_of_another_form_is_one_sentence(right: Scripted, choices: Any) -> None:
    right.respond = lambda _: {"choices": choices}  # type: ignore[method-assign]
    assert "takes no plain request: a response is not of the API's form" in str(call(right.url).exception)


def test_a_servers_text_moves_no_cursor_and_is_no_markup(right: Scripted, tmp_path: Path) -> None:
    right.refusal = "\x1b[2J<b>|"
    for flags in ([], ["--markdown"]):
        done = call(right.url, "--to", str(tmp_path), "--as", "auto", *flags)
        assert "\x1b" not in done.output
    assert "<b>" not in (tmp_path / PAGE).read_text()
