"""Upstream's behaviour is checked when upstream's versions change; `make pins` takes minutes."""

import hashlib
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_the_pins_were_checked_with_the_versions_that_are_pinned() -> None:
    pinned = b"".join(file.read_bytes() for file in sorted((REPOSITORY / "infra" / "requirements").glob("*.txt")))
    passed = (REPOSITORY / "tests" / "pins" / "passed").read_text().strip()
    assert passed == hashlib.sha256(pinned).hexdigest(), "infra/requirements has changed since; run make pins"
