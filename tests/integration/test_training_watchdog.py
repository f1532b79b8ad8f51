"""A training some of whose processes died ends at once, with a word about which."""

import subprocess
import sys

import pytest

from elastic_core.ray_cluster import RayCluster

TRAINER = """
import sys, time
import ray
from elastic_core.training import requirements

requirements._SECONDS_BETWEEN_LOOKS = 0.5 if sys.argv[1] in ("nobody", "worker", "engine") else 60
ray.init(address=sys.argv[2], log_to_driver=False)

@ray.remote
class Worker:
    async def work(self):
        pass

class Engine:
    errored = False
    dead_error = RuntimeError("EngineCore encountered an issue")

@ray.remote
class Server:
    def __init__(self):
        self.engine = Engine()

    async def lose_engine(self):
        self.engine.errored = True

worker, server = Worker.remote(), Server.remote()
ray.get([worker.__ray_ready__.remote(), server.__ray_ready__.remote()])
with requirements.watching([worker], [server]):
    time.sleep(2)
    print("alive", flush=True)
    if sys.argv[1] == "worker":
        ray.kill(worker)
    if sys.argv[1] == "engine":
        ray.get(server.lose_engine.remote())
    if sys.argv[1] == "rollouts of a dead engine":
        ray.get(server.lose_engine.remote())
        raise RuntimeError("rollouts failed")
    if sys.argv[1] == "rollouts alone":
        raise RuntimeError("rollouts failed")
    time.sleep(20 if sys.argv[1] != "nobody" else 2)
print("done", flush=True)
"""


@pytest.mark.parametrize(
    ("victim", "status", "words"),
    [
        ("nobody", 0, "done"),
        ("worker", 1, "class_name: Worker"),
        ("engine", 1, "EngineCore encountered an issue"),
        ("rollouts of a dead engine", 1, "ProcessLost: a process of the training died"),
        ("rollouts alone", 1, "\nRuntimeError: rollouts failed\n"),
    ],
)
def test_a_dead_process_ends_the_training_and_is_the_reason_of_what_failed_with_it(
    victim: str, status: int, words: str, cluster: RayCluster
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", TRAINER, victim, str(cluster.gcs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        check=False,
    )
    assert ended.returncode == status and words in ended.stdout and "alive" in ended.stdout, ended.stdout
