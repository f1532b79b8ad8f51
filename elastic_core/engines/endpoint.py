"""A model behind a server: how a setting names it, the facts that the server reports, and its fingerprint.

Weights behind a server cannot be hashed. The fingerprint covers the server's address and version, the model's name, the
directory that the server reports, and the local tokenizer. A change of weights under the same name goes unnoticed; the
manifest says that weights were not hashed.
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
CHAT = "openai+"  # Begins the address of a server that is used through its chat API, without token ids.
_TOKENIZER_FILES = ("tokenizer*", "chat_template*", "vocab*", "merges*", "thought.toml", "generation_config.json")
_OPENAI = "api.openai.com"


class EndpointParameters(BaseModel):
    """How servers are called. None of it changes a row."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    max_requests: int = Field(256, ge=1, le=16384)
    """Requests under way at once, at each server; twice its max_num_seqs keeps its batch full."""
    timeout_seconds: float = Field(1800, gt=0)
    """A request that has no answer after so long counts as lost, in seconds."""
    wait_seconds: float = Field(600, ge=0)
    """How long to wait for a server that does not answer, or takes no requests, in seconds. Then the sweep ends with
    what is stored."""


class Address(NamedTuple):
    """One server's API, without a slash at its end; a model on it; and whether it is used through its chat API."""

    url: str
    model: str
    chat: bool = False

    def __str__(self) -> str:
        return f"{CHAT if self.chat else ''}{self.url}" + (f"#{self.model}" if self.model else "")


def is_endpoint(text: str) -> bool:
    """Whether a setting names a server, not a directory or a repository of the hub."""
    return re.match(rf"({re.escape(CHAT)})?https?://", text) is not None


def parse_address(text: str) -> Address:
    """Read "http://host:8000/v1#model". A ValueError names the accepted form, and a text that holds no password."""
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
    """One address, or those of replicas; a ValueError as `parse_address`, and on replicas that do not fit together."""
    texts = [text] if isinstance(text, str) else list(text)
    if not texts:
        raise ValueError(f'the list of addresses is empty; expected at least one like "{EXAMPLE}"')
    if local := [each for each in texts if not is_endpoint(each)]:
        raise ValueError(f'"{local[0]}" in a list of replicas is not an address; expected one like "{EXAMPLE}"')
    found = tuple(map(parse_address, texts))
    if len(set(found)) < len(found):
        raise ValueError("the list of replicas has an address twice")
    if len({(each.model, each.chat) for each in found}) > 1:
        raise ValueError(f"replicas serve one model; found {', '.join(map(str, found))}")
    return found


class Served(NamedTuple):
    """A server's report of itself and of a model: the owner of its models, such as "vllm"; its version, or "unknown";
    the model's directory or repository on its machine, or ""; tokens of prompt and response together, or None."""

    server: str
    version: str
    root: str
    context: int | None

    def __str__(self) -> str:
        return f"{self.server} {self.version}" + (f" with {self.root}" if self.root else "")


@dataclass(frozen=True)
class Endpoint:
    """A model of a sweep that servers run. The first address identifies it, and `served` is of that server; further
    replicas may come and go. `tokenizer` is a directory, None behind a chat API."""

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
        assert self.served.context is not None  # `look` refuses a server that does not say it.
        return self.served.context

    @property
    def fingerprint(self) -> str:
        """16 hex digits, in place of `model_fingerprint`."""
        tokenizer = None
        if self.tokenizer is not None:
            tokenizer = hash_files({file for pattern in _TOKENIZER_FILES for file in self.tokenizer.glob(pattern)})
        said = self.served
        return hash_value([str(self.addresses[0]), said.server, said.version, said.root, tokenizer])[:16]

    @property
    def engine_fingerprint(self) -> str:
        """The fingerprint that stands for `EngineParameters.fingerprint`."""
        return hash_value([self.served.server, self.served.version, self.served.context])[:16]

    @property
    def description(self) -> dict[str, Any]:
        return {
            "address": str(self.addresses[0]),
            "server": f"{self.served.server} {self.served.version}",
            "root": self.served.root,
            "context": self.served.context,
            "weights": "not hashed: behind a server",
        }


def key_variables(name: str, address: Address) -> list[str]:
    """Environment variables of the key of a model's server; the first one that is set counts. OPENAI_API_KEY is sent to
    OpenAI alone."""
    own = f"ELASTIC_API_KEY_{re.sub('[^0-9A-Z]', '_', name.upper())}"
    return [own, "OPENAI_API_KEY"] if urlsplit(address.url).hostname == _OPENAI else [own]


def api_key(name: str, address: Address) -> str | None:
    return next((os.environ[each] for each in key_variables(name, address) if os.environ.get(each)), None)
