"""Facts of model families, a TOML file each in this directory. `[thought]` says how a thought begins and ends;
what else is there makes a twin of a model (elastic_core.models.twins)."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elastic_core.errors import UserError, first_fault, nearest
from elastic_core.system.files import read_toml, replacing_directory
from elastic_core.system.fingerprint import hash_value

DIRECTORY = Path(__file__).parent
OWN_FILE = "thought.toml"
"""In a checkpoint's directory: the marks of a model that no family has."""
THINK = "think"
"""The family of `<think>` and `</think>`, a token each."""


class Thought(BaseModel):
    """A family's marks, as text."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    open: str = Field(min_length=1)
    """What opens a thought."""
    ends: tuple[str, ...] = Field(min_length=1)
    """What ends one; the first end to come does."""
    close: str = ""
    """What we write to end a thought that is cut; the first of `ends` when it is left out."""
    answer: str = ""
    """What we write where there is to be no thought; `close` when it is left out."""
    calls: tuple[str, ...] = ()
    """What begins a tool call, where a call inside a thought ends it by the parser; a tokenizer may lack some."""
    shows: tuple[str, ...] = ()
    """What the chat template shows of a family whose marks others have too, or hide."""
    text: bool = False
    """Whether the marks are plain text, which becomes other tokens after other text."""
    parser: str | None = None
    """vLLM's reasoning parser."""
    template: dict[str, bool | int | str] = {}
    """Settings of the chat template by which the model thinks, such as `enable_thinking`."""
    efforts: dict[str, dict[str, bool | int | str]] = {}
    """Settings of the chat template by the name of an effort. A template that does not read them all has none."""
    effort: str | None = None
    """The effort that the template takes without any."""

    def of(self, tokens: Iterable[str]) -> Thought:
        """The marks in a vocabulary with these tokens: {suffix} becomes that of a Hunyuan checkpoint, or nothing."""
        if "{suffix}" not in self.open:
            return self
        suffix = next((found[1] for token in tokens if (found := _SUFFIX.fullmatch(token))), "")
        ends = tuple(end.replace("{suffix}", suffix) for end in self.ends)
        return self.model_copy(update={"open": self.open.replace("{suffix}", suffix), "ends": ends})


_SUFFIX = re.compile(r"<think(:[^\s>]+)>")


@lru_cache
def thoughts() -> dict[str, Thought]:
    """The families' marks, by name."""
    files = {file.stem: tomllib.loads(file.read_text()) for file in sorted(DIRECTORY.glob("*.toml"))}
    return {name: Thought(**table["thought"]) for name, table in files.items() if "thought" in table}


def read_thought(family: str | Path) -> tuple[str, Thought]:
    """The name and the marks of a family: of its name, or of a TOML file, in which `family` names another one or
    `[thought]` says the marks. Raises UserError: no such family, or the key of the file that is wrong."""
    file = Path(family)
    if not file.is_file():
        return _named_thought(str(family))
    try:
        table = read_toml(file)
        return _named_thought(table["family"]) if "family" in table else (file.name, Thought(**table["thought"]))
    except KeyError:
        raise UserError(f"{file}: no table [thought]; expected one with the keys open and ends") from None
    except ValidationError as error:
        raise UserError(f"{file}: {first_fault(error, 'thought')}") from None


def _named_thought(family: str) -> tuple[str, Thought]:
    known = thoughts()
    if family not in known:
        raise UserError(f'no family "{family}"{nearest(family, known)}; expected {", ".join(known)}, or a TOML file')
    return family, known[family]


def split_thought(text: str) -> tuple[str, str]:
    """Thought and solution of a response in text, without marks: those of the family that it begins with, else those of
    `<think>`, which a chat template may have opened."""
    known = thoughts()
    begun = [family for family in known.values() if text.startswith(family.open)]
    family = max(begun, key=lambda family: len(family.open), default=known[THINK])
    thought = text.removeprefix(family.open)
    ends = [(at, end) for end in family.ends if (at := thought.find(end)) >= 0]
    if not ends:
        return (thought, "") if begun else ("", text)
    at, end = min(ends)
    opening = family.close.partition(end)[2]  # Of the answer, which the model may write too.
    return thought[:at], thought[at + len(end) :].removeprefix(opening)


def copy_own(model: Path, to: Path) -> None:
    """Copy a model's file of marks, if it has one, to a model made of it."""
    if (own := model / OWN_FILE).is_file():
        shutil.copy(own, to)


def with_family(checkpoint: Path, family: str, views: Path) -> Path:
    """A directory below `views` with links to a checkpoint's files, which says that its marks are those of `family`, as
    `read_thought` takes it and raises."""
    read_thought(family)
    own = Path(family).read_text() if Path(family).is_file() else f'family = "{family}"\n'
    names = {file.name: file.resolve() for file in checkpoint.iterdir() if file.is_file() and file.name != OWN_FILE}
    key = hash_value([{name: str(file) for name, file in names.items()}, own])[:16]
    view = views / f"{checkpoint.name}-{key}"
    if not view.is_dir():
        with replacing_directory(view) as directory:
            for name, file in names.items():
                (directory / name).symlink_to(file)
            (directory / OWN_FILE).write_text(own)
    return view
