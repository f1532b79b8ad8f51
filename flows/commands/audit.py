"""`elastic audit`: whether a server keeps a thinking budget, tested from outside."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from elastic_core.audit.client import Api, Client, Ids
from elastic_core.audit.run import Audit, most_requests, read_audit
from elastic_core.audit.run import audit as carry_out
from elastic_core.engines.base import EngineLost, RequestFailed
from elastic_core.engines.endpoint import EndpointParameters, is_endpoint, parse_address
from elastic_core.engines.http_server import HttpServer
from elastic_core.errors import UserError, first_line
from elastic_core.models.special_tokens import load_tokenizer
from elastic_core.system.files import write_text
from flows.commands.options import PATH
from flows.runtime.environment import runs_directory
from reports.audit import PAGE, audit_text, write_audit_page

_SENDERS = ("auto", "openai", "anthropic", "vllm", "sglang", "llama.cpp")
_WAIT_SECONDS = 60.0
DOCUMENT = "audit.json"


@click.command()
@click.argument("url")
@click.option("--model", metavar="NAME", help="As the server's /v1/models has it; by default its only one.")
@click.option("--key-from", metavar="VARIABLE", help="Environment variable that holds the server's key.")
@click.option("--as", "dialect", type=click.Choice(_SENDERS), default="auto", help="Whose fields are tried.")
@click.option("--tokenizer", metavar="MODEL", help="Directory or OWNER/NAME, for a server that returns no token ids.")
@click.option("--requests", type=click.IntRange(10), default=100, help="Requests that check the length of thoughts.")
@click.option("--concurrent", type=click.IntRange(1, 1024), default=32, help="Most requests at once.")
@click.option("--tokens", type=click.IntRange(64), default=512, help="Most tokens of a response.")
@click.option("--question", "questions", multiple=True, metavar="TEXT", help="Ask this instead; at least two.")
@click.option("--compare", type=PATH, metavar="OLD.json", help="Show what differs from an earlier audit.")
@click.option("--to", "directory", type=PATH, metavar="DIR", help="Where to write audit.json and audit.html.")
@click.option("--markdown", is_flag=True, help="Print Markdown, for an issue.")
@click.option("--dry-run", is_flag=True, help="Only show how many requests and tokens it takes at most.")
def audit(
    url: str, model: str | None, key_from: str | None, dialect: str, tokenizer: str | None, requests: int,
    concurrent: int, tokens: int, questions: tuple[str, ...], compare: Path | None, directory: Path | None,
    markdown: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Test whether the server at URL keeps a thinking budget.

    Tries every known way to ask for one, counts the tokens of thoughts, and checks the promises at the first way that
    works (docs/audit.md). The exit status is 1 where one is broken.
    """
    if key_from and not os.environ.get(key_from):
        raise UserError(f"--key-from {key_from}: it is not set in the environment; expected the server's key there")
    if len(questions) == 1:
        raise UserError("there is one --question; expected none, or two and more")
    if not is_endpoint(url):
        raise UserError(f'{url} is no address; expected one like "http://host:8000/v1"')
    try:
        address = parse_address(f"{url}#{model or '?'}")._replace(model=model or "")
    except ValueError as error:
        raise UserError(str(error)) from None
    old, encode = read_audit(compare) if compare else None, _encoder(tokenizer)
    parameters = EndpointParameters(max_requests=concurrent, wait_seconds=_WAIT_SECONDS)
    sender = "" if dialect == "auto" else dialect
    api: Api = "messages" if dialect == "anthropic" else "chat"
    total = most_requests(questions, sender, requests)
    screen = Console(stderr=True, highlight=False, soft_wrap=True)
    screen.print(f"at most {total:,} responses of {tokens:,} tokens, {total * tokens:,} tokens in all")
    if dry_run:
        return

    async def run() -> Audit:
        async with HttpServer("audit", address, parameters, key_from) as server:
            with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
                tick = partial(progress.advance, progress.add_task("", total=total))
                return await carry_out(Client(server, api, tokens, tick, encode), questions, sender, requests)

    try:
        found = asyncio.run(run())
    except (EngineLost, RequestFailed) as error:
        raise UserError(str(error)) from None
    changes = found.changes(old) if old else None
    directory = directory or runs_directory() / "audit" / re.sub(r"[^\w.-]+", "_", found.address.partition("://")[2])
    write_text(directory / DOCUMENT, found.model_dump_json(indent=2) + "\n")
    write_audit_page(found, changes, directory / PAGE)
    click.echo(audit_text(found, changes, markdown))
    screen.print(f"written: {directory / DOCUMENT}, {PAGE}", markup=False)
    sys.exit(1 if found.broken else 0)


def _encoder(tokenizer: str | None) -> Callable[[str], Ids] | None:
    if tokenizer is None:
        return None
    try:
        found = load_tokenizer(tokenizer)
    except (OSError, ValueError) as error:
        raise UserError(f"--tokenizer {tokenizer}: {first_line(error)}; expected a directory or OWNER/NAME") from None
    return lambda text: found.encode(text, add_special_tokens=False)  # type: ignore[no-any-return]
