"""What the documents show to be typed."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DOCUMENTS = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def page(name: str) -> Path:
    """A page of docs/."""
    return REPOSITORY / "docs" / f"{name}.md"


def shown(document: Path) -> list[str]:
    """The lines of a document's indented blocks, in order: a line that ends in a backslash goes on, and what follows a
    space and a # is a remark."""
    joined = re.sub(r"\\\n\s+", "", document.read_text())
    lines = re.findall(r"^ {4}(\S.*)$", joined, flags=re.MULTILINE)
    return [re.sub(r" +# .*$", "", line).rstrip() for line in lines]


def commands(document: Path, program: str = "elastic") -> list[str]:
    """Those lines that run a program."""
    return [line for line in shown(document) if line.split()[0] == program]
