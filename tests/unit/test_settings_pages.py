"""The reference of settings is what the code says."""

from __future__ import annotations

from tests.settings_pages import pages


def test_the_pages_of_settings_are_fresh() -> None:
    for file, text in pages().items():
        assert file.read_text(encoding="utf-8") == text, "run: python -m tests.settings_pages --write"
        rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
        assert rows and all(row[-1].removesuffix(" |").strip() for row in rows), "each setting is described"
