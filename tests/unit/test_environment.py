"""What a command sets for the libraries it runs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from aiohttp.helpers import get_env_proxy_for_url
from requests.utils import get_environ_proxies
from yarl import URL

from elastic_core.errors import UserError
from elastic_core.system.network import bypass_proxies
from flows.commands.doctor.machine import check_closed
from flows.runtime.environment import make_runs_directory, prepare
from tests.elastic_command import elastic_here

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
    own = passwords(tmp_path, PREFECT_HOME=str(tmp_path))
    assert own[0] == own[1] != "None", "settings of the user without a server are no reason to be open"
    assert passwords(tmp_path, PREFECT_API_AUTH_STRING="me:mine") == ["me:mine", "me:mine"], "the user's is kept"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://me:p%40ss@host:5000/mlflow", ("https://host:5000/mlflow", "me", "p@ss")),
        ("http://host:5000", ("http://host:5000", None, None)),
        ("postgresql://me:mine@host/mlflow", ("postgresql://me:mine@host/mlflow", None, None)),
    ],
)
def test_links_to_mlflow_hold_no_password(tmp_path: Path, given: str, expected: tuple[str | None, ...]) -> None:
    names = ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    with patch.dict(os.environ, clean | {"ELASTIC_RUNS": str(tmp_path), names[0]: given}, clear=True):
        prepare()
        assert tuple(map(os.environ.get, names)) == expected


def test_prefect_keeps_its_files_with_the_results(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    with patch.dict(os.environ, clean | {"ELASTIC_RUNS": str(tmp_path)}, clear=True):
        prepare()
        shown = "from prefect.settings import get_current_settings as now; print(now().results.local_storage_path)"
        assert (
            Path(subprocess.check_output([sys.executable, "-c", shown], text=True).strip())
            == tmp_path / "prefect/storage"
        )


def test_the_variable_of_a_directory_that_may_not_be_made_is_named(tmp_path: Path) -> None:
    refused = patch.object(Path, "mkdir", side_effect=PermissionError(13, "Permission denied"))
    with refused, pytest.raises(UserError, match=r"\(Permission denied\); set ELASTIC_RUNS"):
        make_runs_directory()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_results_go_into_no_file(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with patch.dict(os.environ, ELASTIC_RUNS=str(tmp_path / place)), pytest.raises(UserError, match="set ELASTIC_RUNS"):
        make_runs_directory()


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


def proxies(url: str) -> list[bool]:
    """Whether aiohttp, httpx and requests call a URL through a proxy."""
    by_aiohttp = True
    try:
        get_env_proxy_for_url(URL(url))
    except LookupError:
        by_aiohttp = False
    with httpx.Client(verify=False) as client:  # Certificates take long to read.
        pool: Any = client._transport_for_url(httpx.URL(url))._pool  # type: ignore[attr-defined]
    return [by_aiohttp, getattr(pool, "_proxy_url", None) is not None, "http" in get_environ_proxies(url)]


@pytest.mark.parametrize("proxy", ["http_proxy", "HTTP_PROXY", "all_proxy"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"no_proxy": "in.house"},
        {"NO_PROXY": " in.house, "},
        {"no_proxy": "", "NO_PROXY": "in.house"},
        {"no_proxy": "*"},
    ],
)
def test_loopback_is_never_called_through_a_proxy_and_other_hosts_are_as_before(
    proxy: str, given: dict[str, str]
) -> None:
    outside = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    with patch.dict(os.environ, outside | {proxy: "http://127.0.0.1:9"} | given, clear=True):
        bypass_proxies("10.0.0.9")
        bypass_proxies()
        ours = [proxies(f"http://{host}:4200/api") for host in ("127.0.0.1", "localhost", "[::1]", "10.0.0.9")]
        house, other = proxies("http://in.house/"), proxies("http://example.org/")
    assert not any(map(any, ours))
    assert any(house) is not bool(given)
    assert any(other) is (given != {"no_proxy": "*"})


@pytest.mark.parametrize("made", [False, True])
def test_results_are_this_users_alone_unless_the_directory_was_there(made: bool, tmp_path: Path) -> None:
    template = {"template_name": "n", "description": "d", "reason_flow": ["s"], "chapter": "c", "section": "s"}
    (file := tmp_path / "templates.json").write_text(json.dumps([template]))
    (rows := tmp_path / "rows.jsonl").write_text('{"q": "1 + 1?", "a": "2"}\n')
    for what in ("runs", "templates", "data"):
        runs = tmp_path / what
        if made:
            runs.mkdir()
            runs.chmod(0o755)
        if what == "runs":
            passwords(tmp_path)
        else:
            added = file if what == "templates" else rows
            options = () if what == "templates" else ("--question", "q", "--answer", "a")
            done = elastic_here(what, "add", str(added), *options, runs=runs)
            assert done.returncode == 0, done.stdout
        assert runs.stat().st_mode & 0o777 == (0o755 if made else 0o700)
        assert check_closed(runs).level == ("warning" if made else "ok")
