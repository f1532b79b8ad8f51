"""What Ray raises for a killed process is told apart from what its own code raised, however many tasks handed it on."""

import json
from pathlib import Path

from elastic_core.system.ray_cluster import RayCluster
from tests.processes import python

DRIVER = """
import json, os, signal, sys
from pathlib import Path
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

transient = {}
for how in ("killed", "lost", "assertion", "refuses to start"):
    try:
        ray.get(Trainer.remote().run.remote(how))
    except Exception as error:
        transient[how] = is_transient(error)
# A thread of Ray's writes to stdout whenever a worker dies, also in the middle of a line of ours.
Path(sys.argv[2]).write_text(json.dumps(transient))
"""


def test_a_killed_actor_is_worth_another_attempt_and_its_errors_are_not(cluster: RayCluster, tmp_path: Path) -> None:
    found = tmp_path / "transient.json"
    python(DRIVER, cluster.gcs, found)
    transient = json.loads(found.read_text())
    assert transient == {"killed": True, "lost": True, "assertion": False, "refuses to start": False}
