"""Models behind servers: which of a sweep's models they are, and what each server says of itself. Servers are queried
at the start of a run and remembered, so that a sweep that is done, its report and its status need no server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from elastic_core.engines.endpoint import (
    Address,
    Endpoint,
    EndpointParameters,
    Served,
    parse_address,
)
from elastic_core.errors import UserError
from elastic_core.models import files as model_files
from elastic_core.system.files import write_text

_KNOWN = "servers.json"  # Below the runs directory: what servers said last, by address.


def find_endpoints(
    behind: Mapping[str, tuple[Address, ...]], tokenizers: Mapping[str, str], parameters: EndpointParameters, runs: Path
) -> dict[str, Endpoint]:
    """Endpoints by name, from the addresses of the replicas and the tokenizer (directory or hub name) of each.

    Raises:
        UserError: when an unknown server does not answer, a server lacks the model, or a tokenizer is not there.
    """
    return {
        name: Endpoint(
            name,
            addresses,
            _served(name, addresses[0], parameters, runs / _KNOWN, f"sweep.checkpoints.{name}"),
            None if addresses[0].chat else _tokenizer(name, tokenizers[name]),
            parameters,
        )
        for name, addresses in behind.items()
    }


def named_endpoint(name: str, text: str, parameters: EndpointParameters, runs: Path) -> Endpoint:
    """The endpoint of an address alone; its tokenizer is the server's model's. Raises UserError as `find_endpoints`."""
    try:
        address = parse_address(text)
    except ValueError as error:
        raise UserError(f"--model {text}: {error}") from None
    if address.chat:
        raise UserError(f"--model {text}: asked in text, it shows no token ids; only a sweep measures such a model")
    served = _served(name, address, parameters, runs / _KNOWN, "--model")
    try:
        tokenizer = _tokenizer(name, served.root or "none")
    except UserError as error:
        raise UserError(
            f"--model {text}: the server does not say where its tokenizer is to be had here ({error}); name it with "
            f"--set sweep.checkpoints.NAME={text} --set sweep.tokenizers.NAME=DIR, and give --model NAME"
        ) from None
    return Endpoint(name, (address,), served, tokenizer, parameters)


def _served(name: str, address: Address, parameters: EndpointParameters, known: Path, setting: str) -> Served:
    from elastic_core.engines.http_server import HttpServer, ServerLost, look

    async def ask(patience: EndpointParameters) -> Served:
        async with HttpServer(name, address, patience) as server:
            return await look(server, address.model)

    before = _known(known).get(str(address))
    # One that is known need not be there now: only drawing needs it, and then it is waited for.
    patience = parameters if before is None else parameters.model_copy(update={"wait_seconds": 0.0})
    try:
        served = asyncio.run(ask(patience))
    except ServerLost as error:
        if before is None:
            raise UserError(f"{error}; {setting} names it: start it, or give another address") from None
        return before
    if served != before:
        known.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(known.with_name(f".{known.name}.lock")):
            said = {name: each._asdict() for name, each in (_known(known) | {str(address): served}).items()}
            write_text(known, json.dumps(said, indent=2, sort_keys=True) + "\n")
    return served


def _tokenizer(name: str, place: str) -> Path:
    directory = model_files.locate(place, model_files.TOKENIZER_FILES)
    if not any(directory.glob("tokenizer*")):
        raise UserError(
            f"{directory}: no tokenizer there; sweep.tokenizers.{name} names it: give a directory with the one that "
            "the server has, or OWNER/NAME on the hub"
        )
    return directory


def _known(file: Path) -> dict[str, Served]:
    said = json.loads(file.read_text()) if file.exists() else {}
    return {address: Served(**values) for address, values in said.items()}
