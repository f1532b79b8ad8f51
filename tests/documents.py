"""What the documents show to be typed, and the strategy that they show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elastic_core.strategies import Strategy

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


def table(text: str) -> Iterator[tuple[str, *tuple[list[str], ...]]]:
    """Of each line of a table, what its first cell has in bold, and what each other one has in backticks."""
    for name, cells in re.findall(r"^\| \*\*(.*?)\*\*.*?(?<!\\)\| (.*) \|$", text, re.MULTILINE):
        parts = (re.findall("`(.*?)`", cell) for cell in re.split(r" (?<!\\)\| ", cells))
        yield name, *([code.replace(r"\|", "|") for code in part] for part in parts)


def strategy_shown() -> Strategy:
    """The strategy of examples/strategy, which docs/strategies.md shows."""
    (text,) = re.findall(r"```python\n(.*?)```", page("strategies").read_text(), re.DOTALL)
    assert text == (REPOSITORY / "examples/strategy/mine.py").read_text()
    module: dict[str, Any] = {}
    exec(compile(text, "docs/strategies.md", "exec"), module)
    assert isinstance(module["no_thinking"], Strategy)
    return module["no_thinking"]
