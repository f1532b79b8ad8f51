"""Which presets are listed as usable."""

from pathlib import Path

import pytest

from flows import presets, rehearsal


@pytest.fixture(autouse=True)
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "rehearsed.json"
    monkeypatch.setattr(rehearsal, "SHIPPED", file)
    return file


def test_a_preset_is_usable_once_it_has_passed_here(tmp_path: Path) -> None:
    settings, directory = presets.resolve("e1-math-1.5b"), tmp_path / "e1-math-1.5b"
    assert rehearsal.interrupted(directory, settings) is None
    rehearsal.note(directory, settings, [("train", 100.0, "")])
    assert not rehearsal.is_usable(settings, tmp_path)
    assert rehearsal.interrupted(directory, settings) == [("train", 100.0, "")]
    assert rehearsal.interrupted(directory, presets.resolve("e1-math-7b")) is None
    rehearsal.note(directory, settings, [("train", 100.0, "")], passed=True)
    assert rehearsal.is_usable(settings, tmp_path)
    assert rehearsal.interrupted(directory, settings) is None  # The next begins anew.


def test_a_preset_is_usable_if_it_has_passed_where_it_was_made(tmp_path: Path) -> None:
    settings = presets.resolve("e1-math-1.5b")
    rehearsal.ship(settings)
    assert rehearsal.is_usable(settings, tmp_path)
    assert not rehearsal.is_usable(presets.resolve("e1-math-7b"), tmp_path)


def test_another_setting_is_another_rehearsal(tmp_path: Path) -> None:
    rehearsal.ship(presets.resolve("e1-math-1.5b"))
    assert not rehearsal.is_usable(presets.resolve("e1-math-1.5b", {"train.kl_coefficient": 0.0}), tmp_path)
    # Where it runs and where its files lie makes no other preset.
    elsewhere = {"data.mirror": str(tmp_path), "mlflow.tracking_uri": "http://localhost:5000"}
    assert rehearsal.is_usable(presets.resolve("e1-math-1.5b", elsewhere), tmp_path)
