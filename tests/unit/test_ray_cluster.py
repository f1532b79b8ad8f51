"""How a local Ray cluster is started."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_core.system import ray_cluster
from elastic_core.system.network import free_ports
from flows.commands.doctor.resources import ray_nodes


@pytest.mark.parametrize(
    ("gpus_here", "given", "expected"), [(0, None, "1073741824"), (8, None, None), (8, 100 << 20, "104857600")]
)
def test_only_a_machine_with_gpus_gets_the_object_store_that_ray_would_give_it(
    gpus_here: int, given: int | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A validation on programs, which verl sends at once, does not fit 1 GiB."""
    commands: list[list[str]] = []

    def popen(command: list[str], **_: Any) -> Any:
        commands.append(command)
        return SimpleNamespace(pid=0, wait=lambda: None)

    monkeypatch.setattr(ray_cluster, "count_gpus", lambda: gpus_here)
    monkeypatch.setattr(ray_cluster.subprocess, "Popen", popen)
    monkeypatch.setattr(ray_cluster, "_wait", lambda *_: None)
    monkeypatch.setattr(ray_cluster, "kill_tree", lambda pid: None)
    with ray_cluster.local_cluster(gpus=8, object_store_bytes=given):
        pass
    ((*command,),) = commands
    found = [part.partition("=")[2] for part in command if part.startswith("--object-store-memory")]
    assert found == ([] if expected is None else [expected])


def test_a_dashboard_that_just_starts_and_hangs_up_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray has an error of its own for it, which is none of a connection."""
    silent = ray_cluster.RayCluster(f"http://127.0.0.1:{free_ports(1)[0]}", token="")
    with pytest.raises(ConnectionError, match="Failed to make request"):
        silent.nodes()
    assert ray_nodes(silent) is None
    monkeypatch.setattr(ray_cluster, "_START_SECONDS", 0)
    monkeypatch.setattr(ray_cluster.RayCluster, "client", lambda self: SimpleNamespace(list_jobs=list))
    (tmp_path / "log").touch()
    with pytest.raises(TimeoutError, match="for node 1 to join"):
        ray_cluster._wait(SimpleNamespace(poll=lambda: None), silent, 1, tmp_path / "log")  # type: ignore[arg-type]
