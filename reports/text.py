"""Tables as plain text for a terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType


def render(*parts: RenderableType) -> str:
    """As wide as they need: a folded figure is misread."""
    out = StringIO()
    console = Console(file=out, width=10_000, color_system=None, markup=False, emoji=False, highlight=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
