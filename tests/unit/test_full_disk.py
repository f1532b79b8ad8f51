"""A full disk is a sentence, whoever met it."""

import sqlite3
from pathlib import Path

import pytest

from elastic_core.errors import no_space
from flows.commands import cli


def test_the_command_says_that_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "cli", lambda standalone_mode: Path("/dev/full").write_text("a row"))
    with pytest.raises(SystemExit, match="2"):
        cli.command()
    said = "error: [Errno 28] No space left on device: free some space; the same command then goes on\n"
    assert capsys.readouterr().err == said


def test_a_database_that_met_it_is_found_behind_what_a_library_makes_of_it() -> None:
    with sqlite3.connect(":memory:") as database:
        database.execute("pragma max_page_count = 2")
        with pytest.raises(RuntimeError) as met:
            try:
                database.execute("create table metrics as select zeroblob(100000)")
            except sqlite3.OperationalError as error:
                raise RuntimeError("the run cannot be recorded") from error
    assert no_space(met.value) == "database or disk is full"


def test_any_other_error_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "cli", lambda standalone_mode: Path("/nowhere").read_text())
    with pytest.raises(FileNotFoundError):
        cli.command()
