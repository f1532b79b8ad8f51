"""Presets: TOML files that fill `flows.settings.Settings`. Reading them, overriding single keys, and saying what is
wrong with a key in one sentence. A preset that begins with `extends = "NAME"` is that other one, but for what it says
itself."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from elastic_core.errors import UserError, nearest

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from flows.settings import Settings

_DIRECTORY = Path(__file__).parent


def names() -> list[str]:
    """Every preset that exists."""
    return sorted(file.stem for file in _DIRECTORY.glob("*.toml"))


def resolve(preset: str, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Settings of a preset with dotted keys replaced, such as {"sweep.samples": 16}.

    Raises:
        UserError: an unknown preset or key (with the nearest valid name), or a value out of bounds.
    """
    from pydantic import ValidationError

    from flows.settings import Settings

    if preset not in names():
        raise UserError(f'unknown preset "{preset}"{nearest(preset, names())}; there are: {", ".join(names())}')
    file = _DIRECTORY / f"{preset}.toml"
    values = _read(preset)
    for key, value in (overrides or {}).items():
        _put(values, key, value)
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise UserError(_explain(error, Settings, file, overrides or {})) from None


def parse_override(text: str) -> tuple[str, Any]:
    """("sweep.samples", 16) from "sweep.samples=16". Values are TOML; what is none is taken as text.

    Raises:
        UserError: when there is no equals sign.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f'--set {text}: expected KEY=VALUE, like "sweep.samples=16"')
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _read(preset: str) -> dict[str, Any]:
    own = tomllib.loads((_DIRECTORY / f"{preset}.toml").read_text())
    extended = own.pop("extends", None)
    return _merged(_read(extended) if extended else {}, {"preset": preset, **own})


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Of two tables the second wins, key by key."""
    merged = dict(first)
    for key, value in second.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _put(values: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, key = dotted.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise UserError(f"--set {dotted}: {section} is a value, not a section")
        values = inner
    values[key] = value


def _explain(error: ValidationError, model: type[BaseModel], file: Path, overrides: Mapping[str, Any]) -> str:
    """The first problem as one sentence: where, what was found, what was expected."""
    problem = error.errors()[0]
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    # An override of a whole section, or a key below a section that does not exist, is to blame as well.
    overridden = any(f"{key}.".startswith(f"{name}.") or name.startswith(f"{key}.") for name in overrides)
    where = f"--set {key}" if overridden and problem["type"] != "missing" else f"{file.name}: {key}"
    where = where.removesuffix(": ")
    if problem["type"] == "extra_forbidden":
        valid = _fields_at(model, path[:-1])
        return f"{where}: unknown key{nearest(path[-1], valid)}; valid here: {', '.join(valid)}"
    if problem["type"] == "missing":
        return f"{where}: missing; every preset must give it"
    message = problem["msg"].removeprefix("Value error, ")
    # What is wrong between several keys of a section is in the message; the whole section would drown it.
    found = "" if isinstance(problem["input"], dict) else f", found {problem['input']!r}"
    return f"{where}: {message[0].lower()}{message[1:]}{found}"


def _fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    for part in path:
        if part in model.model_fields:  # Otherwise it is a name that the user chose, in a table of models.
            annotation = model.model_fields[part].annotation
            models = [kind for kind in (annotation, *get_args(annotation)) if hasattr(kind, "model_fields")]
            model = models[0] if models else model
    return list(model.model_fields)
