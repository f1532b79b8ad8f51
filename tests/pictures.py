"""Pictures that name the numbers they show: a PNG has their hash in a text chunk, so that a test finds a stale one."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

KEY = "Data SHA-256"


def digest(data: Path) -> str:
    """The hash of the file that a picture is drawn from."""
    return hashlib.sha256(data.read_bytes()).hexdigest()


def stamp(drawn: Path, data: Path, shown: Path) -> None:
    """Save a drawn picture as the shown one, with the hash of its data."""
    text = PngInfo()
    text.add_text(KEY, digest(data))
    with Image.open(drawn) as picture:
        picture.save(shown, pnginfo=text, optimize=True)


def redraw(draw: Callable[[Path], None], data: Path, shown: Path) -> None:
    """Draw a picture of the data anew, and save it as the shown one."""
    with tempfile.TemporaryDirectory() as directory:
        drawn = Path(directory) / shown.name
        draw(drawn)
        stamp(drawn, data, shown)


def stamp_of(shown: Path) -> str | None:
    """The hash in a shown picture; None without one."""
    with Image.open(shown) as picture:
        return getattr(picture, "text", {}).get(KEY)
