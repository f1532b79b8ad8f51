"""docs/settings.md and docs/settings-train.md: every setting of a preset, with its type, its default and its docstring.

python -m tests.settings_pages --write
"""

from __future__ import annotations

import argparse
import json
import types
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from flows.runtime.settings import Settings

DOCS = Path(__file__).parents[1] / "docs"
TRAINING = ("warm_start", "train", "ablation")
_HEAD = """\
# Settings{of}

Every setting{which}, as a preset's TOML names it and as `--set KEY=VALUE` takes it. `elastic presets` lists the
presets; `elastic run FLOW --preset NAME --dry-run` prints all that apply. {other}. This page is
written by `python -m tests.settings_pages --write` from the docstrings in the code.
"""


def models_of(annotation: Any) -> list[type[BaseModel]]:
    """The settings sections within a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_of(part)]


def shown(annotation: Any) -> str:
    """A type in a reader's words."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{json.dumps(value)}`" for value in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(shown(part) for part in parts if part is not type(None))
    if origin in (list, tuple):
        return f"list of {shown(parts[0])}"
    if origin is dict:
        return f"table of {shown(parts[1])}"
    if hasattr(annotation, "__metadata__"):
        return shown(annotation.__origin__)
    names = {int: "integer", float: "number", str: "text", bool: "true or false", Any: "anything"}
    path = isinstance(annotation, type) and issubclass(annotation, PurePath)
    return names.get(annotation) or ("path" if path else getattr(annotation, "__name__", str(annotation)))


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "none" if value is None else f"`{json.dumps(value, default=list)}`"


def sections(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, str, list[str]]]:
    """Path, docstring and table rows of each section that has settings."""
    rows, below = [], []
    for name, field in model.model_fields.items():
        about = " ".join((field.description or "").split()).replace("|", "\\|")
        inner = models_of(field.annotation)
        if inner and get_origin(field.annotation) is not list:
            key = f"{path}{name}." + ("NAME." if get_origin(field.annotation) is dict else "")
            below.append((key, about, inner[0]))
        else:
            rows.append(f"| `{path}{name}` | {shown(field.annotation)} | {default(field)} | {about} |")
    yield path.removesuffix("."), (model.__doc__ or "").strip().partition("\n\n")[0], rows
    for key, about, inner_model in below:
        first, *rest = sections(inner_model, key)
        yield first[0], about or first[1], first[2]
        yield from rest


def pages() -> dict[Path, str]:
    """The text of both pages."""
    main, training = [], []
    for path, about, rows in sections(Settings):
        heading = [f"## {path}", ""] if path else []
        heading += [" ".join(about.split()), ""] if about and path else []
        text = "\n".join([*heading, "| setting | type | default | meaning |", "|---|---|---|---|", *rows, ""])
        (training if path.partition(".")[0] in TRAINING else main).append(text)
    heads = (
        _HEAD.format(of="", which="", other="Those of a training are on [another page](settings-train.md)"),
        _HEAD.format(of=" of a training", which=" that a training has", other="The others: [settings](settings.md)"),
    )
    files = (DOCS / "settings.md", DOCS / "settings-train.md")
    return {file: "\n".join([head, *parts]) for file, head, parts in zip(files, heads, (main, training), strict=True)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="Write the pages instead of printing them.")
    options = parser.parse_args()
    for file, text in pages().items():
        if options.write:
            file.write_text(text, encoding="utf-8")
        else:
            print(text)
