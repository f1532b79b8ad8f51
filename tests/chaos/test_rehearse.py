"""Every preset passes its rehearsal. Some minutes each."""

from pathlib import Path

import pytest

from flows import presets
from flows.commands.checks.shortened import models_of
from tests.elastic_command import elastic


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("preset", presets.names())
def test_a_preset_passes_its_rehearsal(preset: str, tmp_path: Path) -> None:
    for model in models_of(presets.resolve(preset)):
        if model.count("/") > 1 and not Path(model).is_dir():
            pytest.skip(f"{model} is not here: docs/own-model.md makes it")
    done = elastic("rehearse", "--preset", preset, runs=tmp_path, timeout=3500)
    assert done.returncode == 0, done.stdout[-6000:]
    print(done.stdout)
