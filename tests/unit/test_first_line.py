"""Commands that only look something up begin to answer at once: they have imported nothing heavy until then.

How long a first line takes is measured by `make bench`; with results to look at: tests/e2e/test_tour.py.
"""

from pathlib import Path

import pytest

from tests.first_line import heavy_before


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("--help", "Usage:"),
        ("run --help", "Usage:"),
        ("evaluate --help", "Usage:"),
        ("presets", "ablation-anytime: "),
        ("doctor", "ok "),
        ("plan sweep --preset smoke", "error: no data was built"),
        ("status --preset smoke", "error: no data was built"),
        ("report --preset smoke", "error: no data was built"),
    ],
)
def test_nothing_heavy_is_imported_before_the_first_line(command: str, said: str, tmp_path: Path) -> None:
    line, heavy = heavy_before(command, tmp_path)
    assert line.startswith(said)
    assert heavy == set()
