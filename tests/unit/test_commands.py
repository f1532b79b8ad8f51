"""`elastic` as a whole: its sections, and spellings of earlier versions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pytest
from click.testing import CliRunner

from flows.commands.cli import RENAMED, Commands, cli
from flows.commands.cli import command as main_command
from tests.documents import DOCUMENTS, commands


def all_commands(group: Commands = cli, path: str = "") -> list[tuple[str, click.Command]]:
    found = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        found.append((f"{path}{name}", command))
        if isinstance(command, Commands):
            found += all_commands(command, f"{path}{name} ")
    return found


def test_help_has_a_line_for_each_command_in_six_sections() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).output
    titles = ["Run", "Look", "Serve", "Models", "Data", "Services"]
    assert [line[:-1] for line in shown.splitlines() if line.endswith(":") and line != "Options:"] == titles
    assert len(cli.list_commands(click.Context(cli))) <= 16
    assert not [old for old in RENAMED if f"\n  {old} " in shown]


@pytest.mark.parametrize(("path", "command"), all_commands(), ids=lambda given: given if isinstance(given, str) else "")
def test_the_line_in_the_list_is_the_first_of_the_command(path: str, command: click.Command) -> None:
    *group, name = path.split()
    listed = " ".join(CliRunner().invoke(cli, [*group, "--help"], terminal_width=200).output.split())
    first = (command.help or "").partition("\n")[0]
    assert first.endswith(".") and f" {name} {first}" in listed


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_spelling_works_with_a_line_of_warning(old: str) -> None:
    before, after = (CliRunner().invoke(cli, [*words.split(), "--help"]) for words in (old, RENAMED[old]))
    assert after.exit_code == 0 == before.exit_code
    assert before.stdout == after.stdout
    assert before.stderr.count("\n") == 1 and f"`elastic {RENAMED[old]}`" in before.stderr and not after.stderr


def test_the_report_of_a_preset_has_one_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path))
    started: list[tuple[str, str, dict[str, Any]]] = []
    for module in ("run", "report"):
        monkeypatch.setattr(f"flows.commands.{module}.start", lambda *given, **_: started.append(given))
    given = "report --preset smoke --set sweep.samples=2"
    old, new = (CliRunner().invoke(cli, words.split(), catch_exceptions=False) for words in (f"run {given}", given))
    assert started == [("report", "smoke", {"sweep.samples": 2})] * 2
    assert "`elastic report --preset PRESET`" in old.stderr and not new.stderr
    refused = CliRunner().invoke(cli, ["report", "--preset", "smoke", "--from", str(tmp_path)])
    assert "--preset and --set take none of TABLE" in refused.stderr


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ask 1+1? --budget 1000", 'thinking + solution, like "1000+512"'),
        ("plan budgets --risk lots", "'lots' is not a number"),
        ("plan rules --price", "'--price' requires 3 arguments; it needs INPUT CACHED OUTPUT per million tokens"),
        ("plan rules --price 1 2 --rho", "'--rho' is not a number; it needs INPUT CACHED OUTPUT per million tokens"),
        ("run sweep --set samples=3 --dry-run", 'unknown key, did you mean "sweep.samples"?'),
        ("report --from runs/embedded", "embedded is not a trajectory table; its table is runs/embedded/sweep/k/table"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_one(
    line: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs/embedded/sweep/k/table").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["elastic", *line.split()])
    with pytest.raises(SystemExit):
        main_command()
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (
            ModuleNotFoundError(name="vllm.sampling"),
            2,
            "vllm is not installed: pip install 'elastic-reasoning[cpu]', or",
        ),
        (ModuleNotFoundError(name="nowhere"), None, ""),
    ],
)
def test_what_stops_a_command_is_a_line_unless_it_is_a_mistake_of_ours(
    error: BaseException, status: int | None, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("flows.commands.cli.cli", Mock(side_effect=error))
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    with pytest.raises(type(error) if status is None else SystemExit) as raised:
        main_command()
    assert getattr(raised.value, "code", None) == status and said in capsys.readouterr().err


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_documents_have_the_new_spellings(document: Path) -> None:
    old = tuple(f"elastic {each} " for each in (*RENAMED, "run report"))
    assert not [command for command in commands(document) if f"{command} ".startswith(old)]
