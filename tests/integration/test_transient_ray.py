"""What Ray raises for a killed process is told apart from what its own code raised, however many tasks handed it on."""

import subprocess
import sys

import pytest

from elastic_core.system.ray_cluster import RayCluster

DRIVER = """
import os, signal, sys
import ray
from elastic_core.system.retry import ProcessLost, is_transient

ray.init(address=sys.argv[1], log_to_driver=False)

@ray.remote
class Worker:
    def __init__(self, fails=False):
        if fails:
            raise ValueError("no tokenizer")

    def work(self, how):
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "lost":
            raise ProcessLost("an engine died")
        raise AssertionError("an embedding does not fit")

@ray.remote
class Trainer:
    def run(self, how):
        ray.get(Worker.remote(how == "refuses to start").work.remote(how))

for how in ("killed", "lost", "assertion", "refuses to start"):
    try:
        ray.get(Trainer.remote().run.remote(how))
    except Exception as error:
        print(how, is_transient(error), flush=True)
"""


@pytest.mark.timeout(300)
def test_a_killed_actor_is_worth_another_attempt_and_its_errors_are_not(cluster: RayCluster) -> None:
    command = [sys.executable, "-c", DRIVER, str(cluster.gcs)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    said = ended.stdout.splitlines()[-4:]
    assert said == ["killed True", "lost True", "assertion False", "refuses to start False"], ended.stderr
