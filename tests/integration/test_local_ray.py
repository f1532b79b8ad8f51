"""What another user of the machine can do to a Ray cluster that a flow starts."""

import json
import multiprocessing
import os
import secrets
import socket
import stat
import time
from pathlib import Path

import httpx
import psutil
import pytest

from elastic_core.system.ray_cluster import RayCluster
from elastic_core.training import launch
from tests.command_lines import watched_command_lines
from tests.listening import listening

NOBODY = 65534


@pytest.fixture
def directory(cluster: RayCluster) -> Path:
    """Ray's own."""
    (option,) = [part for part in psutil.Process(cluster.head).cmdline() if part.startswith("--temp-dir=")]
    return Path(option.partition("=")[2])


def test_ray_opens_its_directory_and_ours_around_it_stays_shut(directory: Path) -> None:
    assert stat.S_IMODE(directory.stat().st_mode) == 0o777, "why this test is here: Ray widens it"
    assert stat.S_IMODE(directory.parent.stat().st_mode) == 0o700
    assert directory.parent.stat().st_uid == os.geteuid()


def test_paths_of_sockets_leave_room(directory: Path) -> None:
    """Of 107 characters, below the private directory of the longest number that a user may have."""
    private = Path(f"/tmp/elastic-{2**32 - 2}")
    sockets = [private / path.relative_to(directory.parents[1]) for path in directory.rglob("*") if path.is_socket()]
    assert sockets and max(len(str(path)) for path in sockets) <= 107


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_plants_renames_reads_and_calls_nothing(directory: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=attack, args=(directory,))
    process.start()
    process.join()
    assert process.exitcode == 0


def attack(directory: Path) -> None:
    """As nobody: fails with the first thing that works."""
    session = (directory / "session_latest").resolve()
    sockets = [path for path in session.rglob("*") if path.is_socket()]
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    tries = {
        "plant a file": lambda: (directory / "planted").touch(),
        "rename the session": lambda: session.rename(session.with_name("moved")),
        "read a log": lambda: (session / "logs" / "dashboard.log").read_text(),
        "link a log to come": lambda: (session / "logs" / "job-driver-train.log").symlink_to("/etc/passwd"),
        "list": lambda: list(directory.iterdir()),
        **{f"call {path.name}": lambda path=path: socket.socket(socket.AF_UNIX).connect(str(path)) for path in sockets},
    }
    for what, act in tries.items():
        try:
            act()
        except PermissionError:
            continue
        raise SystemExit(f"another user can {what}")


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer guessed"}])
def test_a_job_without_the_token_is_refused(cluster: RayCluster, headers: dict[str, str]) -> None:
    job = {"entrypoint": "true"}
    answer = httpx.post(f"{cluster.dashboard}/api/jobs/", json=job, headers=headers, trust_env=False)
    assert answer.status_code in (401, 403)


JOB = """
import os, ray
from elastic_core.system.private_stores import protected
from elastic_core.training.launch import private_variables
ray.init(runtime_env=protected({"env_vars": {"ORDINARY": "1"}}, private_variables()))
names = ("ORDINARY", "MLFLOW_TRACKING_PASSWORD", "ELASTIC_QUEUE_KEY")
found = ray.get(ray.remote(lambda: [os.environ[name] for name in names]).remote())
print("found", *found)
"""


def test_a_job_gets_its_secrets_shows_none_and_everything_listens_on_loopback(
    cluster: RayCluster, tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(JOB)
    password = secrets.token_hex(16)
    client = cluster.client()
    seen = set()
    private = json.dumps({"MLFLOW_TRACKING_PASSWORD": password})
    with watched_command_lines() as shown:
        entrypoint = f"python {tmp_path / 'job.py'} ordinary"
        job = client.submit_job(entrypoint=entrypoint, metadata={launch.PRIVATE: private})
        while not client.get_job_status(job).is_terminal():
            seen |= listening(psutil.Process(cluster.head))
            time.sleep(0.02)
    log = client.get_job_logs(job)
    assert client.get_job_status(job) == "SUCCEEDED", log[-2000:]
    (found,) = [line.split() for line in log.splitlines() if line.startswith("found ")]
    assert found[:3] == ["found", "1", password] and len(found[3]) == 64
    assert not [line for line in shown if password in line or found[3] in line]
    # Ray shows what is in `env_vars` for a third of a second, in a worker that it sets up; its entrypoint all the time.
    assert [line for line in shown if "job.py ordinary" in line], "command lines were read"
    assert len(seen) >= 10
    assert not [place for place in seen if not place.is_loopback]
