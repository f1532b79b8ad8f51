"""Which library: the published one, the miniature's, or a file; and one's own templates, which join the first two."""

from __future__ import annotations

import json
from pathlib import Path

from filelock import FileLock

from elastic_core.data.fetch import fetch
from elastic_core.data.registry import REGISTRY
from elastic_core.errors import UserError, nearest
from elastic_core.reasonflux.library import MINIATURE_FILE, Template, entry, read_library, stable_id
from elastic_core.system.files import write_text

PUBLISHED = "reasonflux"
MINIATURE = "miniature"
DATASET = "reasonflux-templates"
"""What the published library is called among the data sets."""


def load_library(name: str, *, own: Path, sources: Path, mirror: Path | None = None) -> dict[str, Template]:
    """Templates by id.

    Args:
        name: "reasonflux" (fetched if need be), "miniature", or a file, which is read as it is.
        own: the file of `add_own`; its templates join a library by name, and replace those of the same id.
        sources, mirror: as `elastic_core.data.fetch.fetch` takes them.

    Raises:
        UserError: when there is no such library, or it is broken, or cannot be fetched.
    """
    if name == PUBLISHED:
        published = fetch([REGISTRY[DATASET]], sources=sources, mirror=mirror)[DATASET]
        return read_library(published.files[0].path) | load_own(own)
    if name == MINIATURE:
        return read_library(MINIATURE_FILE) | load_own(own)
    file = Path(name)
    if not file.is_file():
        hint = nearest(name, (PUBLISHED, MINIATURE))
        raise UserError(f'no library "{name}"{hint}; expected {PUBLISHED}, {MINIATURE} or a JSON or JSONL file')
    return read_library(file)


def load_own(own: Path) -> dict[str, Template]:
    """What `add_own` has kept, by id; nothing where it was never called or all was deleted since."""
    return read_library(own) if own.is_file() and own.read_bytes().strip() else {}


def add_own(file: Path, own: Path) -> tuple[int, int]:
    """Keep the templates of a file among one's own, in JSONL; those of the same id are replaced.

    Returns:
        How many were added, and how many replaced.

    Raises:
        UserError: when the file is broken, or two of its templates share chapter, section and name.
    """
    new = read_library(file)
    for template in new.values():
        if template.id != stable_id(template.chapter, template.section, template.name):
            place = f'chapter "{template.chapter}", section "{template.section}"'
            raise UserError(f'{file}: {place}: two templates named "{template.name}"; expected names of their own')
    own.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(own.with_name(f".{own.name}.lock")):
        before = load_own(own)
        lines = (json.dumps(entry(template), ensure_ascii=False) for template in (before | new).values())
        write_text(own, "".join(f"{line}\n" for line in lines))
    replaced = len(before.keys() & new.keys())
    return len(new) - replaced, replaced
