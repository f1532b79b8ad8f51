"""The programs under examples/ run as their READMEs say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.served import NAME, Shared

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*/*.py")), ids=lambda file: file.parent.name)
def test_an_example_is_short_and_has_a_readme(example: Path) -> None:
    assert len(example.read_text().splitlines()) <= 60
    assert example.name in example.with_name("README.md").read_text()


def test_a_client_asks_at_several_budgets(shared: Shared) -> None:
    command = [sys.executable, EXAMPLES / "serve-client" / "budgets.py", f"{shared.address}/v1", NAME, "36+6-4+8=?"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    budgets = re.findall(r"budget (\d+)\+(\d+)", done.stdout)
    spent = re.findall(r"thought: (\d+) tokens, [^;]+; solution: (\d+) tokens", done.stdout)
    assert len(budgets) == len(spent) == 4
    assert [int(budgets[0][0]), budgets[2], budgets[3]] == [0, ("12", "24"), ("16", "8")]
    for (t, s), (thinking, solution) in zip(budgets, spent, strict=True):
        assert int(thinking) <= int(t) and 0 < int(solution) <= int(s)
