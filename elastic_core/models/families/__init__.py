"""What is known of families of models, a TOML each beside this file. `[thought]` says how a thought begins and ends;
what else is there makes a twin of a model (elastic_core.models.twins)."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elastic_core.errors import UserError

DIRECTORY = Path(__file__).parent
OWN_FILE = "thought.toml"
"""In a checkpoint's directory: the marks of a model that no family has."""
THINK = "think"
"""The family of `<think>` and `</think>`, a token each."""


class Thought(BaseModel):
    """A family's marks, as text. A response that is cut before its thought has an end gets `close`; one that is to have
    no thought begins with `answer`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    open: str = Field(min_length=1)
    """What opens a thought."""
    ends: tuple[str, ...] = Field(min_length=1)
    """What ends one; the first end to come does."""
    close: str = ""
    """What we write to end a thought that is cut; the first of `ends` when it is left out."""
    answer: str = ""
    """What we write where there is to be no thought; `close` when it is left out."""
    text: bool = False
    """Whether the marks are plain text, which becomes other tokens after other text."""
    parser: str | None = None
    """vLLM's reasoning parser."""


@lru_cache
def thoughts() -> dict[str, Thought]:
    """The families' marks, by name."""
    files = {file.stem: tomllib.loads(file.read_text()) for file in sorted(DIRECTORY.glob("*.toml"))}
    return {name: Thought(**table["thought"]) for name, table in files.items() if "thought" in table}


def read_thought(file: Path) -> Thought:
    """The marks in a file of the user's own; a UserError names the key that is wrong."""
    try:
        return Thought(**tomllib.loads(file.read_text())["thought"])
    except KeyError:
        raise UserError(f"{file}: no table [thought]; expected one with the keys open and ends") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file}: {error}; expected TOML") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, ("thought", *first["loc"])))
        raise UserError(f"{file}: {key}: {first['msg']}; found {first['input']!r:.80}") from None
