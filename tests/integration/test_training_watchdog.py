"""A training some of whose processes died ends at once, with a word about which."""

import pytest

from elastic_core.system.ray_cluster import RayCluster
from tests.processes import python

TRAINER = """
import sys, time
from threading import Timer
from types import SimpleNamespace
import ray
from elastic_core.training import requirements

ray.init(address=sys.argv[1], log_to_driver=False)

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

def send_first_weights(server):
    from elastic_core.training.grpo.trainer import ElasticTrainer

    trainer = object.__new__(ElasticTrainer)
    trainer.global_steps, trainer.llm_server_manager = 0, SimpleNamespace(server_handles=[server])
    trainer.checkpoint_manager = SimpleNamespace(update_weights=lambda step: time.sleep(300))
    Timer(2, ray.kill, [server]).start()
    trainer.on_init_end()
    print("sent", flush=True)

def train(victim):
    requirements._POLL_SECONDS = 60 if "rollouts" in victim else 0.5
    worker, server = Worker.remote(), Server.remote()
    ray.get([worker.__ray_ready__.remote(), server.__ray_ready__.remote()])
    if victim == "receiver of weights":
        send_first_weights(server)
    with requirements.watching([worker], [server]):
        time.sleep(2)
        print("alive", flush=True)
        if victim == "worker":
            ray.kill(worker)
        if "engine" in victim:
            ray.get(server.lose_engine.remote())
        if "rollouts" in victim:
            raise RuntimeError("rollouts failed")
        time.sleep(2 if victim == "nobody" else 300)

for victim in sys.argv[2:]:
    try:
        train(victim)
        print(victim, "done", flush=True)
    except Exception as error:
        print(victim, type(error).__name__, error, flush=True)
"""


def trained(cluster: RayCluster, *victims: str, status: int) -> str:
    """What is said of a training for each, in one process."""
    ended = python(TRAINER, cluster.gcs, *victims, status=status)
    return ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("victim", "reason"), [("worker", "class_name: Worker"), ("engine", "EngineCore encountered an issue")]
)
def test_a_dead_process_ends_the_training_and_is_named(victim: str, reason: str, cluster: RayCluster) -> None:
    said = trained(cluster, victim, status=1)
    assert "alive" in said and reason in said


@pytest.mark.slow
def test_a_server_that_dies_before_the_first_weights_arrive_ends_the_training_too(cluster: RayCluster) -> None:
    said = trained(cluster, "receiver of weights", status=1)
    assert "class_name: Server" in said and "sent" not in said


@pytest.mark.slow
def test_a_dead_process_is_the_reason_of_what_failed_with_it_and_nothing_else_is(cluster: RayCluster) -> None:
    lines = trained(cluster, "nobody", "rollouts", "rollouts and engine", status=0).splitlines()
    assert lines.count("alive") == 3 and {"nobody done", "rollouts RuntimeError rollouts failed"} <= set(lines)
    lost = "rollouts and engine ProcessLost a process of the training died: "
    assert any(line.startswith(lost) for line in lines), lines
