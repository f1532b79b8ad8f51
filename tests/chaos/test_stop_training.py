"""A training job on real Ray, verl and vLLM: refused where it cannot be placed, found again after its follower died,
stopped when it is cancelled, lost when Ray's head is restarted; resumed at the very next step."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import NamedTuple

import pytest
from omegaconf import DictConfig

from elastic_core.miniature.problems import TRAIN, VALIDATION, MiniatureParameters
from elastic_core.system import ray_cluster
from elastic_core.system.ray_cluster import local_cluster
from elastic_core.training import checkpoints, launch
from elastic_core.training.grpo import main
from elastic_core.training.grpo.parameters import GrpoParameters
from elastic_core.training.requirements import InsufficientResources, Resources, check_nodes, required_resources
from tests.miniature_data import build_miniature
from tests.training_rollouts import composed

PARAMETERS = GrpoParameters(
    budget="16+16",
    steps=12,
    batch_size=8,
    mini_batch_size=8,
    group_size=4,
    learning_rate=1e-4,
    kl_coefficient=0,
    entropy_coefficient=0,
    temperature=1.0,
    reuse_rollout_logprobs=True,
    prompt_tokens=32,
    save_every=1,
    validate_every=0,
    device="cpu",
    gpus_per_node=1,
    tokens_per_device=4096,
    rollout_workers=1,
)


class Died(Exception):
    """The follower's own error: the job goes on."""


def die(step: int) -> None:
    raise Died


def cancel(step: int) -> None:
    raise KeyboardInterrupt


class Job(NamedTuple):
    config: DictConfig
    file: Path
    checkpoints: Path
    log: Path
    environment: dict[str, str]


@pytest.fixture
def training(tmp_path: Path) -> Job:
    data, out_dir = tmp_path / "data", tmp_path / "checkpoints"
    sizes = MiniatureParameters(num_train=24, hard_fraction=0, evaluation_seed=0, problems_per_benchmark=1)
    build_miniature(sizes, data)
    files = {"train_files": [data / f"{TRAIN}.parquet"], "validation_files": [data / f"{VALIDATION}.parquet"]}
    config = composed(PARAMETERS, **files, out_dir=out_dir)
    return Job(config, tmp_path / "verl.yaml", out_dir, tmp_path / "train.log", launch.job_environment(config))


def test_a_training_is_found_again_stopped_and_resumed(training: Job) -> None:
    config, file, out_dir, log, environment = training
    # The fewest logical CPUs that training can be placed on.
    required = required_resources(config)
    with local_cluster(cpus=required.cpus + required.shared_cpus) as own:
        cluster = own._replace(head=None)  # With one of its own a job ends anyway.
        with pytest.raises(InsufficientResources):
            check_nodes(cluster.nodes(), Resources(2, 1, 3, 3))
        job = launch.submit(cluster, config, file, environment)
        with pytest.raises(Died):
            launch.follow(cluster, job, log_file=log, on_step=die)
        # What a flow that was started again does.
        assert launch.submit(cluster, config, file, environment) == job
        with pytest.raises(KeyboardInterrupt):
            launch.follow(cluster, job, log_file=log, on_step=cancel)
        with pytest.raises(launch.TrainingFailed, match="STOPPED"):
            launch.follow(cluster, job, log_file=log)
        reached = (checkpoints.checkpoint_steps(out_dir) or [0])[-1]
        assert reached < PARAMETERS.steps

        steps: list[int] = []
        job = launch.submit(cluster, config, file, environment)
        launch.follow(cluster, job, log_file=log, on_step=steps.append)
    assert steps == list(range(reached + 1, PARAMETERS.steps + 1)), log.read_text()
    assert checkpoints.checkpoint_steps(out_dir) == [PARAMETERS.steps - 1, PARAMETERS.steps]
    main.main(str(file))  # Finished: it returns at once.


def test_a_head_that_is_restarted_has_lost_the_job_and_the_next_one_resumes_it(
    training: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, file, out_dir, log, environment = training
    ports = ray_cluster.free_ports(len(ray_cluster._PORTS))
    monkeypatch.setattr(ray_cluster, "free_ports", lambda count: ports)
    begun = Event()
    with ThreadPoolExecutor(1) as follower:
        with local_cluster() as first:
            # A cluster of one's own is known to have ended; another may come back.
            remote = first._replace(head=None)
            job = launch.submit(remote, config, file, environment)
            following = follower.submit(
                launch.follow, remote, job, log_file=log, on_step=lambda step: begun.set() if step == 2 else None
            )
            assert begun.wait(900), log.read_text()
        assert not following.done(), "the head is away, and waited for"
        reached = (checkpoints.checkpoint_steps(out_dir) or [0])[-1]
        with local_cluster() as second:
            assert second.dashboard == first.dashboard
            with pytest.raises(launch.TrainingFailed, match="unknown to the cluster"):
                following.result(600)
            steps: list[int] = []
            job = launch.submit(remote, config, file, environment)
            launch.follow(remote, job, log_file=log, on_step=steps.append)
    assert steps == list(range(reached + 1, PARAMETERS.steps + 1)), log.read_text()
