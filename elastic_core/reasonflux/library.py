"""Libraries of thought templates: the published one or the miniature's, joined by the user's, or a file.

Two forms are read: the published one, JSON of {chapter: {section: [template]}}, and a flat one, a JSON list or JSONL of
templates that name their chapter and section. In the published file a text may be a list of texts, an example an
object; names repeat within a section, and some texts were escaped too often or not at all.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from elastic_core.errors import UserError, kind_of, nearest
from elastic_core.system.files import write_text

MINIATURE_FILE = Path(__file__).with_name("miniature.json")
PUBLISHED, MINIATURE = "reasonflux", "miniature"
DATASET = "reasonflux-templates"  # the published library's name among the data sets
SLUG_LENGTH = 48

FIELDS = {
    "chapter": "chapter",
    "section": "section",
    "template_name": "name",
    "template_type": "type",
    "knowledge_tag": "knowledge_tags",
    "description": "description",
    "application_scenario": "application_scenario",
    "reason_flow": "reason_flow",
    "example_application": "example",
}
"""Fields of a template in a file, each with its attribute of `Template`."""

# "\frac" written into JSON as it is is a form feed and "rac". A backslash and an "n" that begin no LaTeX command are a
# line break that was escaped twice. Half of a surrogate pair could not be written again.
_MISWRITTEN = re.compile(r"[\a\b\f\ud800-\udfff]|\t(?=imes|heta|herefore|ext\{)|\\[nt](?![a-z])")
_MEANT = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\t": "\\t", "\\n": "\n", "\\t": "\t"}


@dataclass(frozen=True, order=True)
class Template:
    """One template. Texts that its author left out are empty."""

    id: str  # see `stable_id`
    chapter: str
    section: str
    name: str
    type: str  # for example "Problem Solving Method"; the published library has no fixed set of them
    knowledge_tags: tuple[str, ...]
    description: str
    application_scenario: str  # which problems it is for, one a line
    reason_flow: tuple[str, ...]  # the steps, at least one; leading blanks make a step part of the one before
    example: str  # a problem solved with it


def stable_id(chapter: str, section: str, name: str) -> str:
    """A template's id, its name and a hash: independent of its place in a file and of its other texts."""
    slug = re.sub(r"[\W_]+", "-", name.lower())[:SLUG_LENGTH].strip("-")
    digest = hashlib.sha256("\0".join((chapter, section, name)).encode()).hexdigest()[:8]
    return f"{slug}-{digest}" if slug else digest


def entry(template: Template) -> dict[str, Any]:
    """A template in the fields of the published file, with its chapter and section."""
    return {field: getattr(template, attribute) for field, attribute in FIELDS.items()}


def load_library(name: str, *, own: Path, published: Callable[[], Path]) -> dict[str, Template]:
    """Templates by id, of "reasonflux" (`published` fetches its file), "miniature", or a file, which is read as it is.
    Those of `own`, the file of `add_own`, join a library by name, and replace those of the same id. UserError when
    the library does not exist, or is broken."""
    if name in (PUBLISHED, MINIATURE):
        return read_library(published() if name == PUBLISHED else MINIATURE_FILE) | load_own(own)
    file = Path(name)
    if not file.is_file():
        hint = nearest(name, (PUBLISHED, MINIATURE))
        raise UserError(f'no library "{name}"{hint}; expected {PUBLISHED}, {MINIATURE} or a JSON or JSONL file')
    return read_library(file)


def load_own(own: Path) -> dict[str, Template]:
    """The templates that `add_own` has kept, by id."""
    return read_library(own) if own.is_file() and own.read_bytes().strip() else {}


def add_own(file: Path, own: Path) -> tuple[int, int]:
    """Keep the templates of a file among the user's, in JSONL, and count those that were added and replaced. UserError
    when the file is broken, or two of its templates share chapter, section and name."""
    new = read_library(file)
    for template in new.values():
        if template.id != stable_id(template.chapter, template.section, template.name):
            place = f'chapter "{template.chapter}", section "{template.section}"'
            raise UserError(f'{file}: {place}: two templates named "{template.name}"; expected different names')
    own.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(own.with_name(f".{own.name}.lock")):
        before = load_own(own)
        lines = (json.dumps(entry(template), ensure_ascii=False) for template in (before | new).values())
        write_text(own, "".join(f"{line}\n" for line in lines))
    replaced = len(before.keys() & new.keys())
    return len(new) - replaced, replaced


def read_library(file: Path) -> dict[str, Template]:
    """Templates of a file by id, in the file's order, those of one name together. UserError for the first broken entry.

    A name that repeats within a section gets an ordinal behind its id, by content. An exact copy is dropped.
    """
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    same: dict[str, set[Template]] = defaultdict(set)
    for where, fields in _lines(file) if file.suffix.lower() == ".jsonl" else _document(file):
        draft = _Entry(file, where, fields).template()
        same[draft.id].add(draft)
    if not same:
        raise UserError(f"{file}: no template in it; expected at least one")
    found = {}
    for first_id, namesakes in same.items():
        for ordinal, draft in enumerate(sorted(namesakes), 1):
            unique = first_id if ordinal == 1 else f"{first_id}-{ordinal}"
            found[unique] = replace(draft, id=unique)
    return found


def _lines(file: Path) -> Iterator[tuple[str, Any]]:
    """Position and content of every template."""
    for number, line in enumerate(_decoded(file).split("\n"), 1):
        if line.strip():
            yield f"line {number}", _parse(line, f"{file}: line {number}")


def _document(file: Path) -> Iterator[tuple[str, Any]]:
    document = _parse(_decoded(file), str(file))
    if isinstance(document, list):
        for position, fields in enumerate(document, 1):
            yield f"template {position}", fields
        return
    if not isinstance(document, dict):
        raise UserError(f"{file}: found {kind_of(document)}; expected chapters or a list of templates")
    for chapter, sections in document.items():
        if not isinstance(sections, dict):
            raise UserError(f'{file}: chapter "{chapter}": found {kind_of(sections)}; expected an object of sections')
        for section, templates in sections.items():
            where = f'chapter "{chapter}", section "{section}"'
            if not isinstance(templates, list):
                raise UserError(f"{file}: {where}: found {kind_of(templates)}; expected a list of templates")
            for position, fields in enumerate(templates, 1):
                place = {"chapter": chapter, "section": section}
                yield f"{where}, template {position}", fields | place if isinstance(fields, dict) else fields


def _decoded(file: Path) -> str:
    try:
        return file.read_bytes().decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 text at byte {error.start}") from None


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: {error}") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of a section that is written twice the first would otherwise be lost without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f'key "{repeated}" is there twice in one object; expected once')
    return found


@dataclass(frozen=True)
class _Entry:
    """A template as a file has it, with its position for messages."""

    file: Path
    where: str
    fields: Any

    def template(self) -> Template:
        if not isinstance(self.fields, dict):
            raise UserError(f"{self.file}: {self.where}: found {kind_of(self.fields)}; expected an object")
        for field in self.fields:
            if field not in FIELDS:
                raise self._error(field, f"is not a field of a template{nearest(field, FIELDS)}")
        chapter, section, name = (self._required(field) for field in ("chapter", "section", "template_name"))
        description = self._required("description")
        steps = self._list("reason_flow")
        if not steps:
            raise self._error("reason_flow", "is missing or empty; expected a list of steps")
        kind, tags = self._text("template_type"), tuple(tag.strip() for tag in self._list("knowledge_tag"))
        scenario = "\n".join(_filled("\n".join(self._list("application_scenario")).split("\n"))).strip()
        own_id, example = stable_id(chapter, section, name), self._example()
        return Template(own_id, chapter, section, name, kind, tags, description, scenario, steps, example)

    def _required(self, field: str) -> str:
        text = self._text(field)
        if not text:
            raise self._error(field, "is missing or empty; expected text")
        return text

    def _text(self, field: str) -> str:
        value = self.fields.get(field, "")
        if not isinstance(value, str):
            raise self._error(field, f"is {kind_of(value)}; expected text")
        return _repaired(value).strip()

    def _list(self, field: str) -> tuple[str, ...]:
        """A list of texts, or the lines of one text; blank ones are left out."""
        value = self.fields.get(field, [])
        if isinstance(value, str):
            value = _repaired(value).split("\n")
        if not isinstance(value, list):
            raise self._error(field, f"is {kind_of(value)}; expected text or a list of texts")
        for position, item in enumerate(value, 1):
            if not isinstance(item, str):
                raise self._error(field, f"holds {kind_of(item)} in place {position}; expected texts only")
        return tuple(_filled(map(_repaired, value)))

    def _example(self) -> str:
        try:
            return _rendered(self.fields.get("example_application", "")).strip()
        except TypeError as error:
            raise self._error("example_application", f"holds {error}; expected text, or an object of texts") from None

    def _error(self, field: str, reason: str) -> UserError:
        return UserError(f"{self.file}: {self.where}: {field} {reason}")


def _rendered(value: Any) -> str:
    """An example as text: an object as "Key: value" each on a line, nested values below, indented."""
    if isinstance(value, str):
        return _repaired(value)
    if isinstance(value, list):
        return "\n".join(map(_rendered, value))
    if not isinstance(value, dict):
        raise TypeError(kind_of(value))
    parts = []
    for key, part in value.items():
        title = key.replace("_", " ").strip()
        text = _rendered(part)
        body = f" {text}" if isinstance(part, str) else "".join(f"\n  {line}" for line in text.split("\n"))
        parts.append(f"{_repaired(title[:1].upper() + title[1:])}:{body}")
    return "\n".join(parts)


def _filled(texts: Iterable[str]) -> Iterator[str]:
    """Those that are not blank, without blanks at their ends."""
    return filter(None, (text.rstrip() for text in texts))


def _repaired(text: str) -> str:
    return _MISWRITTEN.sub(lambda match: _MEANT.get(match[0], "\N{REPLACEMENT CHARACTER}"), text)
