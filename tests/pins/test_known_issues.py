"""What the table of known issues in docs/cluster.md rests on in verl, Ray and torchdata, as installed."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray
import torch
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.utils.debug.metrics import calculate_debug_metrics

from elastic_core.engines.parameters import AliasFinder
from elastic_core.training.grpo.step_metrics import AGREEMENT, disagrees
from flows import presets
from tests.training_rollouts import composed

ON_GPUS = [
    name for name in presets.names() if (settings := presets.resolve(name)).train and settings.training.device == "gpu"
]


@pytest.fixture(scope="module", params=ON_GPUS)
def config(request: pytest.FixtureRequest) -> Any:
    return composed(presets.resolve(request.param).training)


def test_log_probabilities_of_rollouts_are_at_the_temperature_of_the_trainers(config: Any) -> None:
    """vLLM's are those after temperature and nucleus, the trainer's those after temperature."""
    rollout = config.actor_rollout_ref.rollout
    assert rollout.logprobs_mode == "processed_logprobs" and rollout.calculate_log_probs
    assert (rollout.top_p, rollout.top_k) == (1, -1)


def test_the_trainer_and_the_sampler_are_compared_at_every_step(config: Any) -> None:
    assert not config.algorithm.rollout_correction.bypass_mode


@pytest.mark.parametrize(("sampled_with", "other"), [("the trainer's weights", False), ("other weights", True)])
def test_weights_that_went_wrong_on_their_way_lower_the_correlation(sampled_with: str, other: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    trained, foreign = torch.rand((2, 4, 64), generator=generator)
    rounded = trained * (1 + 1e-2 * torch.randn(trained.shape, generator=generator))
    batch = {
        "old_log_probs": trained.log(),
        "rollout_log_probs": (foreign if other else rounded).log(),
        "response_mask": torch.ones_like(trained),
        "responses": torch.zeros_like(trained),
    }
    assert disagrees(calculate_debug_metrics(SimpleNamespace(batch=batch))[AGREEMENT]) is other


def test_gradients_are_reduced_with_every_micro_batch_and_held_in_shards(config: Any) -> None:
    assert not config.actor_rollout_ref.actor.fsdp_config.use_no_sync_for_gradient_accumulation


def test_the_fused_output_layer_is_verls_own_whatever_else_is_installed(config: Any) -> None:
    assert config.actor_rollout_ref.model.fused_kernel_options.impl_backend == "torch"


def test_new_weights_leave_no_cached_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and values of the old weights would be read as those of the new ones."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, AliasFinder()])  # verl looks for vLLM under its GPU name.
    from verl.workers.rollout.vllm_rollout import vllm_rollout
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

    events: list[str] = []

    def recorded(event: str) -> Any:
        async def method(*args: Any, **kwargs: Any) -> None:
            events.append(event)

        return method

    class Sender:
        def __init__(self, **kwargs: Any) -> None: ...

        async_send_weights = recorded("weights")

    engine = SimpleNamespace(
        **{name: recorded(name) for name in ("reset_prefix_cache", "reset_mm_cache", "reset_encoder_cache")}
    )
    server = SimpleNamespace(node_rank=0, engine=engine)
    clear = SimpleNamespace(remote=lambda: vLLMHttpServer.clear_kv_cache(server))
    adapter = SimpleNamespace(
        config=OmegaConf.create({"checkpoint_engine": {"update_weights_bucket_megabytes": 1}}),
        use_shm=True, zmq_handle="", replica_rank=1, rollout_rank=0, _has_server=True,
        _execute_method=recorded("receive"), server_handle=SimpleNamespace(clear_kv_cache=clear),
    )  # fmt: skip
    monkeypatch.setattr(vllm_rollout, "BucketedWeightSender", Sender)
    asyncio.run(vllm_rollout.ServerAdapter.update_weights(adapter, iter(())))
    assert events.index("weights") < events.index("reset_prefix_cache")


@pytest.mark.parametrize("partition", ["train", "val"])
def test_a_failed_rollout_ends_the_training_instead_of_leaving_its_group(partition: str) -> None:
    """verl itself trains on what is left of the group."""
    from elastic_core.training.grpo.trainer import StrictReplayBuffer

    nothing: tuple[Any, ...] = (set(), set(), set(), {})
    buffer: Any = StrictReplayBuffer.__new__(StrictReplayBuffer)
    buffer.finished_keys, buffer.failure_keys = {partition: {"1", "2"}}, {partition: set()}
    assert buffer._sampleable_terminal_keys(partition, nothing) == {"1", "2"}
    buffer.failure_keys[partition].add("3")
    with pytest.raises(RuntimeError, match="rollouts of 1 problems failed"):
        buffer._sampleable_terminal_keys(partition, nothing)


def batches(steps: int, state: dict[str, Any] | None = None) -> tuple[list[list[int]], dict[str, Any]]:
    """As verl's trainer draws them, and the state that its checkpoints keep."""
    from verl.trainer.ppo.utils import create_rl_sampler

    rows = list(range(8))
    sampler = create_rl_sampler(OmegaConf.create({"shuffle": True, "seed": 1}), rows)
    loader: Any = StatefulDataLoader(rows, batch_size=2, drop_last=True, sampler=sampler, num_workers=0)
    if state is not None:
        loader.load_state_dict(state)
    iterator, drawn = iter(loader), []
    while len(drawn) < steps:
        try:
            drawn.append(next(iterator).tolist())
        except StopIteration:
            iterator = iter(loader)
    return drawn, loader.state_dict()


@pytest.mark.parametrize("stop", range(1, 12))
def test_a_resumed_training_draws_the_problems_that_the_whole_one_would_have(stop: int) -> None:
    """Three passes over the problems, stopped anywhere: also where one ends."""
    whole, _ = batches(12)
    first, state = batches(stop)
    rest, _ = batches(12 - stop, state)
    assert first + rest == whole


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=1, num_gpus=0, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_what_a_killed_actor_started_ends_with_it(cluster: None) -> None:
    """vLLM's engine core does not notice when its parent is killed, and would keep the GPU."""

    @ray.remote(num_cpus=0)
    class Parent:
        def start(self) -> tuple[int, int]:
            import multiprocessing

            child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(6000,))
            child.start()
            assert child.pid is not None
            return os.getpid(), child.pid

    parent, child = ray.get(Parent.remote().start.remote())
    process = psutil.Process(child)
    os.kill(parent, signal.SIGKILL)
    psutil.wait_procs([process], timeout=600)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
