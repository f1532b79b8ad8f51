"""Every preset passes its rehearsal. Some minutes each."""

from pathlib import Path

import pytest

from flows import presets
from tests.elastic_command import elastic


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("preset", presets.names())
def test_a_preset_passes_its_rehearsal(preset: str, tmp_path: Path) -> None:
    done = elastic("rehearse", "--preset", preset, runs=tmp_path, timeout=3500)
    assert done.returncode == 0, done.stdout[-6000:]
    print(done.stdout)
