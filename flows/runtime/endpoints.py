"""Models behind servers: what each server says of itself, asked at the start of a run and remembered, so that a sweep
that is done, its report and its status need no server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from elastic_core.engines.endpoint import Address, Endpoint, EndpointParameters, Served, parse_address
from elastic_core.errors import UserError
from elastic_core.models import files as model_files
from elastic_core.system.files import write_text

_KNOWN = "servers.json"
"""Below the runs directory: what servers said last, by address."""


def find_endpoints(
    behind: Mapping[str, tuple[Address, ...]],
    tokenizers: Mapping[str, str],
    parameters: EndpointParameters,
    runs: Path,
) -> dict[str, Endpoint]:
    """Endpoints by name.

    Args:
        behind: addresses of the replicas of each.
        tokenizers: directory or hub name of each.

    Raises:
        UserError: when a server does not answer and is not known from before, or has not the model, or a tokenizer is
            not there.
    """
    known = _Known(runs / _KNOWN)
    return {
        name: Endpoint(
            name,
            addresses,
            _served(name, addresses[0], parameters, known, f"sweep.checkpoints.{name}"),
            None if addresses[0].chat else _tokenizer(name, tokenizers),
            parameters,
        )
        for name, addresses in behind.items()
    }


def named_endpoint(name: str, text: str, parameters: EndpointParameters, runs: Path) -> Endpoint:
    """The endpoint of an address alone, whose tokenizer lies where the server says that its model does.

    Raises:
        UserError: as `find_endpoints`, or when that is not here and not to be had.
    """
    try:
        address = parse_address(text)
    except ValueError as error:
        raise UserError(f"--model {text}: {error}") from None
    if address.chat:
        raise UserError(f"--model {text}: asked in text, it shows no token ids; only a sweep measures such a model")
    served = _served(name, address, parameters, _Known(runs / _KNOWN), "--model")
    try:
        tokenizer = _tokenizer(name, {name: served.root or "none"})
    except UserError as error:
        raise UserError(
            f"--model {text}: the server does not say where its tokenizer is to be had here ({error}); name it with "
            f"--set sweep.checkpoints.NAME={text} --set sweep.tokenizers.NAME=DIR, and give --model NAME"
        ) from None
    return Endpoint(name, (address,), served, tokenizer, parameters)


def _served(name: str, address: Address, parameters: EndpointParameters, known: _Known, setting: str) -> Served:
    from elastic_core.engines.http_server import ServerLost

    before = known.read().get(str(address))
    # One that is known need not be there now: only drawing needs it, and then it is waited for.
    patience = parameters if before is None else parameters.model_copy(update={"wait_seconds": 0.0})
    try:
        served = asyncio.run(_look(name, address, patience))
    except ServerLost as error:
        if before is None:
            raise UserError(f"{error}; {setting} names it: start it, or give another address") from None
        return before
    if served != before:
        known.keep(address, served)
    return served


async def _look(name: str, address: Address, parameters: EndpointParameters) -> Served:
    from elastic_core.engines.http_server import HttpServer, look

    async with HttpServer(name, address, parameters) as server:
        return await look(server, address.model)


def _tokenizer(name: str, tokenizers: Mapping[str, str]) -> Path:
    directory = model_files.locate(tokenizers[name], model_files.TOKENIZER_FILES)
    if not any(directory.glob("tokenizer*")):
        raise UserError(
            f"{directory}: no tokenizer there; sweep.tokenizers.{name} names it: give a directory with the one that "
            "the server has, or OWNER/NAME on the hub"
        )
    return directory


class _Known:
    """A file of what servers said, by address."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> dict[str, Served]:
        if not self._file.exists():
            return {}
        return {address: Served(**said) for address, said in json.loads(self._file.read_text()).items()}

    def keep(self, address: Address, served: Served) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self._file.with_name(f".{self._file.name}.lock")):
            said = self.read() | {str(address): served}
            text = {name: each._asdict() for name, each in said.items()}
            write_text(self._file, json.dumps(text, indent=2, sort_keys=True) + "\n")
