"""What a twin needs of a model that cannot be had: a few facts per family, one TOML file each in `families`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_core.errors import UserError

_DIRECTORY = Path(__file__).parent / "families"
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?B)(?!\w)", re.IGNORECASE)


@dataclass(frozen=True)
class Family:
    """Models of one architecture and tokenizer.

    Attributes:
        name: of the file.
        models: how the names of its models begin, without their owner.
        vocabulary: tokens of its byte-pair encoding, which come first.
        tokens: further tokens by id, and whether decoding leaves them out.
        bos, eos, pad: texts of tokens.
        chat_template: Jinja.
        generation: generation_config.json without token ids.
        config: what config.json says besides sizes that a twin replaces.
        sizes: what differs in the configuration, by size such as "7B".
    """

    name: str
    models: tuple[str, ...]
    vocabulary: int
    tokens: Mapping[int, tuple[str, bool]]
    eos: str
    chat_template: str
    generation: Mapping[str, Any]
    config: Mapping[str, Any]
    sizes: Mapping[str, Mapping[str, Any]]
    bos: str | None = None
    pad: str | None = None

    def config_of(self, model: str) -> dict[str, Any]:
        """The configuration of one of its models."""
        found = _SIZE.search(model)
        size = self.sizes.get(found[1].upper(), {}) if found else {}
        return {**self.config, **size}


def family_of(model: str) -> Family:
    """The family of a model of the hub, OWNER/NAME: the one with the longest beginning of its name.

    Raises:
        UserError: when no family has it.
    """
    name = model.rpartition("/")[2].lower()
    found = [
        (len(beginning), family)
        for family in families()
        for beginning in family.models
        if name.startswith(beginning.lower())
    ]
    if not found:
        known = ", ".join(sorted(beginning for family in families() for beginning in family.models))
        raise UserError(
            f"{model}: no twin can be made: the hub did not give its configuration and tokenizer, and it is of no "
            f"family that we know ({known}); get it with `hf download {model}` where there is internet"
        )
    return max(found, key=lambda pair: pair[0])[1]


def families() -> Iterator[Family]:
    """Every family."""
    for file in sorted(_DIRECTORY.glob("*.toml")):
        yield _load(file.stem)


def _load(name: str) -> Family:
    values = _read(name)
    tokens: dict[int, tuple[str, bool]] = {}
    following = values["vocabulary"]
    for token in values.pop("tokens"):
        following = token.get("id", following)
        tokens[following] = (token["text"], token["special"])
        following += 1
    sizes = {size: table["config"] for size, table in values.pop("sizes", {}).items()}
    models = tuple(values.pop("models"))
    template = values.pop("chat_template").strip()
    return Family(name=name, models=models, tokens=tokens, sizes=sizes, chat_template=template, **values)


def _read(name: str) -> dict[str, Any]:
    own = tomllib.loads((_DIRECTORY / f"{name}.toml").read_text())
    extended = own.pop("extends", None)
    if extended is None:
        return own
    inherited = _read(extended)
    return {**inherited, **own, "config": {**inherited["config"], **own.get("config", {})}}
