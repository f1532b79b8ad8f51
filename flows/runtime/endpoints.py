"""Models behind servers: which of a sweep's models they are, and what each server says of itself. Servers are asked at
the start of a run and remembered, so that a sweep that is done, its report and its status need no server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from filelock import FileLock

from elastic_core.engines.endpoint import (
    CHAT,
    EXAMPLE,
    Address,
    Endpoint,
    EndpointParameters,
    Served,
    is_endpoint,
    parse_address,
    parse_addresses,
)
from elastic_core.errors import UserError
from elastic_core.models import files as model_files
from elastic_core.strategies.chat import CHAT_STRATEGIES, EFFORT, EFFORTS
from elastic_core.sweep.grid import split_model
from elastic_core.system.files import write_text

_KNOWN = "servers.json"  # Below the runs directory: what servers said last, by address.


def with_levels(strategies: Sequence[str]) -> list[str]:
    """Strategies by name, "effort" in its levels."""
    return [each for name in strategies for each in (EFFORTS if name == EFFORT else [name])]


def endpoints_of(places: Mapping[str, str | list[str]]) -> dict[str, tuple[Address, ...]]:
    """Addresses of those places that are servers, by name. Raises ValueError when one cannot be read."""
    found = {}
    for name, place in places.items():
        if isinstance(place, list) or is_endpoint(place):
            try:
                found[name] = parse_addresses(place)
            except ValueError as error:
                raise ValueError(f"checkpoints.{name}: {error}") from None
    return found


def check_endpoints(
    endpoints: Mapping[str, Sequence[Address]], tokenizers: Collection[str], strategies: Mapping[str, Sequence[str]]
) -> None:
    """Raise ValueError when a model cannot be measured as asked; `strategies` are those of each model of the sweep."""
    chat = {name for name, addresses in endpoints.items() if addresses[0].chat}
    with_ids = endpoints.keys() - chat
    for name in sorted(with_ids.difference(tokenizers)):
        raise ValueError(
            f"tokenizers.{name} is missing; expected the directory of the tokenizer that the server has for {name}, or "
            "OWNER/NAME on the hub"
        )
    for name in sorted(set(tokenizers) - with_ids):
        raise ValueError(
            f"tokenizers.{name} has no effect: checkpoints has no server of that name that takes token ids"
        )
    for model, chosen in strategies.items():
        names = set(split_model(model))
        in_text = names & chat
        if len(names) > 1 and (in_text or len(names & with_ids) == 1):
            raise ValueError(
                f'"{model}" is two models of different kinds; expected both behind servers that take token ids'
            )
        if in_text and (refused := [name for name in chosen if name not in CHAT_STRATEGIES]):
            raise ValueError(
                f"{refused[0]} works on token ids, and {model} is asked in text; expected vanilla, unconstrained or "
                f"{EFFORT}: give it its own in strategies_of.{model}"
            )
        if not in_text and (refused := [name for name in chosen if name in EFFORTS]):
            raise ValueError(
                f"{refused[0]} is for models behind a chat API ({CHAT}{EXAMPLE}), and {model} is none; give those that "
                "are strategies_of of their own"
            )


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
