"""Generated passwords, in files that only their owner may read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from elastic_core.atomic import replacing

USER = "elastic"
"""Who logs in to the servers."""


def new_password() -> str:
    """256 bits, in letters that need no quoting in a shell, a URL or SQL."""
    return secrets.token_hex(32)


def read_variables(file: Path) -> dict[str, str]:
    """NAME=value lines; {} without the file."""
    return dict(line.split("=", 1) for line in file.read_text().splitlines()) if file.exists() else {}


def write_variables(file: Path, variables: Mapping[str, str]) -> None:
    """As lines that `read_variables` and a shell read."""
    write_private(file, "".join(f"{name}={value}\n" for name, value in variables.items()))


def write_private(file: Path, text: str) -> None:
    """Mode 0600 from the first byte on."""
    with replacing(file) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
