"""How a local Ray cluster is started."""

from types import SimpleNamespace
from typing import Any

import pytest

from elastic_core.system import ray_cluster


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
