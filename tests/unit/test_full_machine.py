"""A full disk and full memory are sentences, in whatever process they were met."""

import errno
import sqlite3
from pathlib import Path
from unittest.mock import Mock

import pytest

from elastic_core.errors import no_memory, no_space
from elastic_core.training.launch import TrainingLost
from flows.commands import cli


def test_the_command_says_that_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "cli", lambda **_: Path("/dev/full").write_text("a row"))
    with pytest.raises(SystemExit, match="2"):
        cli.command()
    said = "error: [Errno 28] No space left on device: free some space; the same command then goes on\n"
    assert capsys.readouterr().err == said
    monkeypatch.setattr(cli, "cli", lambda **_: Path("/nowhere").read_text())
    with pytest.raises(FileNotFoundError):  # Any other error stays what it is.
        cli.command()


def test_the_command_says_what_it_may_not_write(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "cli", Mock(side_effect=OSError(errno.EROFS, "Read-only file system", "/runs")))
    with pytest.raises(SystemExit, match="2"):
        cli.command()
    said = "error: [Errno 30] Read-only file system: '/runs': get access to it, or name another place; "
    assert capsys.readouterr().err == said + "the same command then goes on\n"


def test_a_database_that_met_it_is_found_behind_what_a_library_makes_of_it() -> None:
    with sqlite3.connect(":memory:") as database:
        database.execute("pragma max_page_count = 2")
        with pytest.raises(RuntimeError) as met:
            try:
                database.execute("create table metrics as select zeroblob(100000)")
            except sqlite3.OperationalError as error:
                raise RuntimeError("the run cannot be recorded") from error
    assert no_space(met.value) == "database or disk is full"


def test_the_command_says_that_memory_was_full_and_of_what(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Ray 2.60 writes it into a job's log, once in the job's message and once in its tail."""
    log = (
        "Top 10 memory users: PID\tMEM(GB)\tCOMMAND\n"
        "6075\t0.80\t/usr/bin/python -m elastic_core.serving.server serve twins0/gpt-oss-20b --dt...\n"
        "\x1b[36m(ElasticTaskRunner pid=37)\x1b[0m 3139\t3.09\tVLLM::EngineCore\n"
        "2803\t7.39\tray::WorkerDict.actor_rollout_update_actor\n4752\t2.02\tVLLM::EngineCore\n"
        "Refer to the documentation on how to address the out of memory issue: https://docs.ray.io\n"
    )

    def train(**_: object) -> None:
        try:
            raise TrainingLost(f"job train-1 is FAILED: exit code 1\n{log}{log}lost: see above")
        except TrainingLost as error:
            raise RuntimeError("the flow ended") from error

    monkeypatch.setattr(cli, "cli", train)
    with pytest.raises(SystemExit, match="2"):
        cli.command()
    assert capsys.readouterr().err == (
        "error: memory was full and Ray killed processes; the largest were ray::WorkerDict.actor_rollout_update_actor "
        "(7.39 GB), VLLM::EngineCore (3.09 GB), VLLM::EngineCore (2.02 GB): free some memory, or take smaller batches; "
        "the same command then goes on\n"
    )


def test_two_ranks_of_the_same_size_are_two_and_a_log_that_names_no_process_has_none() -> None:
    log = "11\t7.39\tray::WorkerDict\n12\t7.39\tray::WorkerDict\n" * 2 + "how to address the out of memory issue"
    assert (no_memory(RuntimeError(log)) or "").count("ray::WorkerDict (7.39 GB)") == 2
    cut = "Refer to the documentation on how to address the out of memory issue: https://docs.ray.io"
    assert no_memory(TrainingLost(cut)) == "memory was full and Ray killed processes"
