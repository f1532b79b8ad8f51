"""Presets: TOML files that fill `flows.runtime.settings.Settings`. Missing settings come from the preset that
`extends = "NAME"` names, or from a file of that name in the same directory.

A preset is given by its name, or as a file: what ends in .toml or holds a slash is a path, and names the preset.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from elastic_core.errors import UserError, nearest, worded
from elastic_core.system.files import read_toml, write_text
from elastic_core.system.nested import leaves
from flows.runtime.environment import runs_directory
from tasks.records.stage_directory import RESOLVED

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from flows.runtime.settings import Settings

_DIRECTORY = Path(__file__).resolve().parent
_TAKEN = {
    *("datasets", "gpu-check", "gpu-evidence", "mlartifacts", "prefect"),
    *("rehearsals", "sets", "sources", "templates"),
}
"""What lies beside the presets' directories in that of all runs."""
PUBLISHED = {
    "train.as_published": True,
    "train.rollout_correction": None,
    "train.rollout_seeds": "engine",
    "data.decontaminate": False,
    "sweep.grading": "elastic-reasoning",
}
"""Settings with which models of Elastic Reasoning are trained and measured as by the authors' programs."""


def names() -> list[str]:
    """Every preset that has a name."""
    return sorted(file.stem for file in _DIRECTORY.glob("*.toml"))


def purpose(name: str) -> str:
    """Return the purpose of a preset: the first sentence of the comment that it begins with."""
    lines = (_DIRECTORY / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    comment = " ".join(line[1:].strip() for line in takewhile(lambda line: line.startswith("#"), lines))
    return re.split(r"\. (?=[A-Z])", comment, maxsplit=1)[0].removesuffix(".") + "."


def unpublished(settings: Settings) -> list[str] | None:
    """Settings that a preset has otherwise than published; None of one that is not for a model of Elastic Reasoning.
    docs/seeds.md has all differences, those that no setting restores too."""
    if not re.match(r"(evaluate-)?e1-", settings.preset):
        return None
    used = PUBLISHED if settings.train else ["sweep.grading"]
    bare = ["data.benchmarks"] if "humaneval-plus" in settings.data.benchmarks else []  # Theirs is humaneval-plus-bare.
    return [key for key in used if attrgetter(key)(settings) != PUBLISHED[key]] + bare


def resolve(preset: str, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Settings of a preset, by name or path, with dotted keys replaced, such as {"sweep.samples": 16}.

    Raises:
        UserError: an unknown preset or key (with the nearest valid name), a file that is not a preset, or a value out
            of bounds.
    """
    parts = _read(preset)
    values = reduce(_merged, (part.values for part in parts), dict[str, Any]())
    return _validated({**values, "preset": _name(parts[-1])}, parts, overrides or {})


def changed(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """The settings with dotted keys replaced. Raises UserError when a value is out of bounds."""
    values = settings.model_dump(exclude_unset=True)
    return _validated(values, [_Part(_DIRECTORY / f"{settings.preset}.toml", values)], changes)


def as_toml(settings: Settings) -> str:
    """A preset file of these settings; settings that it does not name have their defaults."""
    return toml(settings.model_dump(mode="json", exclude_unset=True, exclude_none=True))


def toml(values: Mapping[str, Any]) -> str:
    """A preset file: one dotted key a line, values as JSON writes them, which TOML reads."""
    lines = []
    for path, value in leaves(values):
        dotted = ".".join(key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key) for key in path)
        lines.append(f"{dotted} = {json.dumps(value, ensure_ascii=False)}\n")
    return "".join(lines)


def parse_override(text: str) -> tuple[str, Any]:
    """("sweep.samples", 16) from "sweep.samples=16". Values are TOML, or else text. Raises UserError without "="."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f'--set {text}: expected KEY=VALUE, like "sweep.samples=16"')
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return key.strip(), value.strip()


def read_overrides(context: object, option: object, texts: Iterable[str]) -> dict[str, Any]:
    """Settings to replace, by dotted key: the callback of `--set`. Raises as `parse_override`."""
    return dict(map(parse_override, texts))


class LastRun(NamedTuple):
    """Preset and settings to replace of the last `elastic run`, which later commands take over."""

    preset: str
    overrides: dict[str, Any]


_LAST_RUN = "last-run.json"


def remember(preset: str, overrides: Mapping[str, Any]) -> None:
    """Write the last run's to the runs directory. A preset that is a file is remembered by its absolute path."""
    file = Path(preset).expanduser()
    last = LastRun(str(file.resolve()) if file.is_file() else preset, dict(overrides))
    write_text(runs_directory() / _LAST_RUN, json.dumps(last, default=str))


def last_run() -> LastRun | None:
    """None before the first run."""
    try:
        return LastRun(*json.loads((runs_directory() / _LAST_RUN).read_bytes()))
    except (OSError, ValueError):
        return None


def given_or_last(preset: str | None, overrides: Mapping[str, Any]) -> LastRun:
    """Preset and settings to replace: those given, on top of the last run's where no preset is given."""
    last = (None if preset else last_run()) or LastRun("embedded", {})
    return LastRun(preset or last.preset, {**last.overrides, **overrides})


class _Part(NamedTuple):
    """What one file of a preset says."""

    file: Path
    values: dict[str, Any]

    @property
    def shown(self) -> str:
        return self.file.name if self.file.parent == _DIRECTORY else str(self.file)

    def says(self, path: list[str]) -> bool:
        return any(keys[: len(path)] == tuple(path) for keys, _ in leaves(self.values))


def _validated(values: dict[str, Any], parts: Sequence[_Part], overrides: Mapping[str, Any]) -> Settings:
    from pydantic import ValidationError

    from flows.runtime.settings import Settings

    for key, value in overrides.items():
        _put(values, key, value)
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise UserError(_explain(error, Settings, parts, overrides)) from None


def _read(preset: str) -> list[_Part]:
    """The files of a preset, the one that all others extend first."""
    parts: list[_Part] = []
    following: str | None = preset
    while following is not None:
        file = _locate(following, parts[0] if parts else None)
        if file in [part.file for part in parts]:
            raise UserError(f"{parts[0].shown}: extends = {following!r} leads back to itself")
        part = _Part(file, _parse(file))
        following = part.values.pop("extends", None)
        if not isinstance(following, str | None):
            raise UserError(f"{part.shown}: extends = {following!r}; expected the name of a preset, or a file")
        parts.insert(0, part)
    return parts


def _locate(preset: str, extending: _Part | None) -> Path:
    """The file of a preset: by path, from the directory of the file that extends it, or by name."""
    of = f"{extending.shown}: extends: " if extending else ""
    if preset.endswith(".toml") or "/" in preset:
        file = ((extending.file.parent if extending else Path()) / Path(preset).expanduser()).resolve()
        if not file.is_file():
            raise UserError(
                f"{of}{file}: no such file; expected a preset in TOML, or one of these: {', '.join(names())}"
            )
        return file
    if preset in names():
        return _DIRECTORY / f"{preset}.toml"
    if extending and (beside := extending.file.with_name(f"{preset}.toml")).is_file():
        return beside
    raise UserError(f'{of}unknown preset "{preset}"{nearest(preset, names())}; there are: {", ".join(names())}')


def _parse(file: Path) -> dict[str, Any]:
    values = read_toml(file, "a preset in TOML")
    if "preset" in values and file.name != RESOLVED:
        raise UserError(f"{file}: preset: a preset is called like its file; delete this key")
    return values


def _name(part: _Part) -> str:
    """Return the name of a preset's runs directory and MLflow experiment."""
    file, resolved = part.file, "preset" in part.values
    name = str(part.values["preset"]) if resolved else file.stem
    if file.parent == _DIRECTORY:
        return name
    if name in names() and not resolved:
        raise UserError(
            f'{file}: "{name}" is a preset of ours, and results of both would lie together; rename the file'
        )
    if name in _TAKEN or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UserError(
            f'{file}: no directory of results can be called "{name}"; rename the file: letters, digits, dots and '
            f"dashes, and none of {', '.join(sorted(_TAKEN))}"
        )
    return name


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two tables; the second wins, key by key."""
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


def _explain(
    error: ValidationError, model: type[BaseModel], parts: Sequence[_Part], overrides: Mapping[str, Any]
) -> str:
    """The first problem as one sentence: place, value, expectation."""
    problem = error.errors()[0]
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    # An override of a section, or a key below a section that does not exist, is to blame as well.
    overridden = any(f"{key}.".startswith(f"{name}.") or name.startswith(f"{key}.") for name in overrides)
    # The last file that says it; what none says is missing in the preset itself.
    part = next((part for part in reversed(parts) if part.says(path)), parts[-1])
    where = f"--set {key}" if overridden and problem["type"] != "missing" else f"{part.shown}: {key}"
    where = where.removesuffix(": ")
    if problem["type"] == "extra_forbidden":
        valid = _fields_at(model, path[:-1])
        sections = [f"{name}.{key}" for name in valid if key in _fields_at(model, [name]) and key not in valid]
        hint = nearest(path[-1], valid) or nearest(f"sweep.{key}", sections)
        return f"{where}: unknown key{hint}; valid here: {', '.join(valid)}"
    if problem["type"] == "missing":
        return f"{where}: missing; every preset must give it"
    return f"{where}: {worded(problem)}"


def _fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    for part in path:
        if part in model.model_fields:  # Otherwise it is a name that the user chose, in a table of models.
            annotation = model.model_fields[part].annotation
            models = [kind for kind in (annotation, *get_args(annotation)) if hasattr(kind, "model_fields")]
            model = models[0] if models else model
    return list(model.model_fields)
