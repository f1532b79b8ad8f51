"""A model behind a server: how a setting names it, what the server says of it, and what its rows are told apart by.

Its weights are not ours to read. A fingerprint is of the server's address, its version, the model's name and the
directory that the server says it runs, and of the tokenizer beside it: whoever changes weights under one name goes
unnoticed, and the manifest says that weights were not hashed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from elastic_core.system.fingerprint import hash_files, hash_value

EXAMPLE = "http://host:8000/v1#model"
CHAT = "openai+"
"""Begins the address of a server that is asked through its chat API: it takes and returns no token ids."""
WEIGHTS = "not hashed: behind a server"
_TOKENIZER_FILES = ("tokenizer*", "chat_template*", "vocab*", "merges*", "generation_config.json")
_OPENAI = "api.openai.com"


class EndpointParameters(BaseModel):
    """How servers are asked. None of it changes a row."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    max_requests: int = Field(256, ge=1, le=16384)
    """Requests under way at once, at each server; twice its max_num_seqs keeps its batch full."""
    timeout_seconds: float = Field(1800, gt=0)
    """A request that has no answer after so long counts as lost, in seconds."""
    wait_seconds: float = Field(600, ge=0)
    """How long to wait for a server that does not answer, or takes no requests, in seconds. Then the sweep ends with
    what is stored."""


class Address(NamedTuple):
    """One server, and the model that it is asked for.

    Attributes:
        url: of the API, without a slash at its end.
        chat: whether its chat API is all that it has for us.
    """

    url: str
    model: str
    chat: bool = False

    def __str__(self) -> str:
        return f"{CHAT if self.chat else ''}{self.url}#{self.model}"


def is_endpoint(text: str) -> bool:
    """Whether it names a server, and no directory and no repository of the hub."""
    return re.match(rf"({re.escape(CHAT)})?https?://", text) is not None


def parse_address(text: str) -> Address:
    """Read "http://host:8000/v1#model".

    Raises:
        ValueError: naming the text and the accepted form. A text with a password is not repeated.
    """
    chat = text.startswith(CHAT)
    parts = urlsplit(text.removeprefix(CHAT))
    if "@" in parts.netloc or parts.query:
        raise ValueError(
            "an address must hold no password and no key, as it is written into every result; expected one like "
            f'"{EXAMPLE}", with the key in the environment'
        )
    try:
        parts.port  # noqa: B018 (it raises)
    except ValueError:
        raise ValueError(f'"{text}" has no readable port; expected an address like "{EXAMPLE}"') from None
    if not parts.hostname or not parts.fragment:
        missing = "host" if not parts.hostname else "model after a #"
        raise ValueError(f'"{text}" names no {missing}; expected an address like "{EXAMPLE}"')
    return Address(f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}", parts.fragment, chat)


def parse_addresses(text: str | Sequence[str]) -> tuple[Address, ...]:
    """One address, or those of replicas.

    Raises:
        ValueError: as `parse_address`, on an empty or repeated one, or on replicas of different models.
    """
    texts = [text] if isinstance(text, str) else list(text)
    if not texts:
        raise ValueError(f'the list of addresses is empty; expected at least one like "{EXAMPLE}"')
    if local := [each for each in texts if not is_endpoint(each)]:
        raise ValueError(f'"{local[0]}" in a list of replicas is no address; expected one like "{EXAMPLE}"')
    found = tuple(map(parse_address, texts))
    if len(set(found)) < len(found):
        raise ValueError("the list of replicas has an address twice")
    if len({(each.model, each.chat) for each in found}) > 1:
        raise ValueError(f"replicas serve one model; found {', '.join(map(str, found))}")
    return found


class Served(NamedTuple):
    """What a server says of itself and of a model.

    Attributes:
        server: its kind, as it calls the owner of its models, such as "vllm".
        version: of the server; "unknown" where it does not say.
        root: the directory or repository that it runs, on its own machine; empty where it does not say.
        context: of the model in tokens, prompt included; None where it does not say.
    """

    server: str
    version: str
    root: str
    context: int | None

    def __str__(self) -> str:
        return f"{self.server} {self.version}" + (f" with {self.root}" if self.root else "")


@dataclass(frozen=True)
class Endpoint:
    """A model of a sweep that servers run.

    Attributes:
        name: as in the settings and the table.
        addresses: of replicas; the first one's names the model, so that replicas may come and go.
        served: what the first said last.
        tokenizer: the directory of its tokenizer; None where the server is asked in text.
    """

    name: str
    addresses: tuple[Address, ...]
    served: Served
    tokenizer: Path | None
    parameters: EndpointParameters

    @property
    def chat(self) -> bool:
        return self.addresses[0].chat

    @property
    def context(self) -> int:
        """Of the model in tokens, prompt included."""
        assert self.served.context is not None, "refused where it is not said"
        return self.served.context

    @property
    def fingerprint(self) -> str:
        """16 hex digits in the place of `model_fingerprint`."""
        tokenizer = None
        if self.tokenizer is not None:
            tokenizer = hash_files({file for pattern in _TOKENIZER_FILES for file in self.tokenizer.glob(pattern)})
        return hash_value(
            [str(self.addresses[0]), self.served.server, self.served.version, self.served.root, tokenizer]
        )[:16]

    @property
    def engine_fingerprint(self) -> str:
        """In the place of `EngineParameters.fingerprint`."""
        return hash_value([self.served.server, self.served.version, self.served.context])[:16]

    @property
    def description(self) -> dict[str, Any]:
        """For manifests."""
        return {
            "address": str(self.addresses[0]),
            "server": f"{self.served.server} {self.served.version}",
            "root": self.served.root,
            "context": self.served.context,
            "weights": WEIGHTS,
        }


def key_variables(name: str, address: Address) -> list[str]:
    """Environment variables that the key of a model's server is read from, the first one that is set. OpenAI's own
    goes to OpenAI alone: a key is not for whatever address a setting names."""
    own = f"ELASTIC_API_KEY_{re.sub('[^0-9A-Z]', '_', name.upper())}"
    return [own, "OPENAI_API_KEY"] if urlsplit(address.url).hostname == _OPENAI else [own]


def api_key(name: str, address: Address) -> str | None:
    """The key, None where there is none."""
    return next((os.environ[each] for each in key_variables(name, address) if os.environ.get(each)), None)
