"""What a command sets for the libraries it runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PREPARE = """
import os
from flows.runtime import environment
environment.prepare()
print(os.environ.get("PREFECT_API_AUTH_STRING"), os.environ.get("PREFECT_SERVER_API_AUTH_STRING"))
"""


def passwords(directory: Path, **variables: str) -> list[str]:
    """Which the client of Prefect and its temporary server are told, in a process of their own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = clean | {"ELASTIC_RUNS": str(directory / "runs"), "PYTHONPATH": str(Path.cwd())} | variables
    command = [sys.executable, "-c", PREPARE]
    return subprocess.check_output(command, env=environment, cwd=directory, text=True).split()


def test_the_temporary_server_asks_for_a_password_that_is_new_in_every_process(tmp_path: Path) -> None:
    first, second = (passwords(tmp_path) for _ in range(2))
    assert first[0] == first[1] and len(first[0]) == len("elastic:") + 64
    assert first[0] != second[0]


PROFILE = 'active = "mine"\n[profiles.mine]\nPREFECT_API_URL = "http://a.example"\n'


@pytest.mark.parametrize(
    ("file", "text", "variable", "value"),
    [
        ("none", "", "PREFECT_API_URL", "http://prefect.example/api"),
        ("profiles.toml", PROFILE, "PREFECT_HOME", "."),
        ("prefect.toml", '[api]\nurl = "http://a.example"\n', "ANY", ""),
    ],
    ids=["a variable", "a profile", "a file"],
)
def test_a_server_of_the_user_is_not_sent_our_password(
    file: str, text: str, variable: str, value: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(text)
    assert passwords(tmp_path, **{variable: value}) == ["None", "None"]


def test_settings_of_the_user_without_a_server_are_no_reason_to_be_open(tmp_path: Path) -> None:
    own = passwords(tmp_path, PREFECT_HOME=str(tmp_path))
    assert own[0] == own[1] != "None"


def test_a_password_of_the_user_is_kept(tmp_path: Path) -> None:
    assert passwords(tmp_path, PREFECT_API_AUTH_STRING="me:mine") == ["me:mine", "me:mine"]
