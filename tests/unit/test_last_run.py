"""A look at the last run needs none of its settings again."""

import os
from pathlib import Path
from unittest.mock import patch

import pytest

from elastic_core.errors import UserError
from flows.commands.options import table_of_last_run
from flows.presets import given_or_last, last_run, remember


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_settings_are_the_last_run_s_unless_a_preset_is_given() -> None:
    assert given_or_last(None, {}) == ("embedded", {})
    remember("smoke", {"sweep.samples": 4, "sweep.budgets": ["8+8"]})
    assert given_or_last(None, {}) == ("smoke", {"sweep.samples": 4, "sweep.budgets": ["8+8"]})
    assert given_or_last(None, {"sweep.samples": 2}) == ("smoke", {"sweep.samples": 2, "sweep.budgets": ["8+8"]})
    assert given_or_last("embedded", {}) == ("embedded", {})


def test_a_preset_that_is_a_file_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text('extends = "smoke"\n')
    monkeypatch.chdir(tmp_path)
    remember("mine.toml", {})
    last = last_run()
    assert last is not None and last.preset == str(tmp_path / "mine.toml")


def test_without_a_run_or_its_table_the_next_step_is_said(runs: Path) -> None:
    with pytest.raises(UserError, match="--from TABLE"):
        table_of_last_run()
    runs.mkdir()
    (runs / "last-run.json").write_text("no JSON")
    assert last_run() is None
    remember("smoke", {})
    refused = pytest.raises(UserError, match=r"last run has no table: no data .*; or give RUN_B$")
    with patch.dict(os.environ), refused:
        table_of_last_run("RUN_B")
