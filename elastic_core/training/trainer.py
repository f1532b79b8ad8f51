"""verl's synchronous GRPO trainer, made to fail loudly and to report what elastic reasoning is about."""

import time
from typing import Any

import numpy as np
import ray
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from elastic_core.training.export import checkpoint_steps, prune_checkpoints


class StrictReplayBuffer(ReplayBuffer):
    """Refuses groups with a failed rollout; verl would pad the batch and train on what is left."""

    def _sampleable_terminal_keys(self, partition_id: str, eviction_reasons: Any) -> set[str]:
        failed = self.failure_keys[partition_id]
        if failed:
            raise RuntimeError(
                f"rollouts of {len(failed)} problems failed in partition {partition_id}; "
                'the first reason is above, after "Error in _run_prompt"'
            )
        return super()._sampleable_terminal_keys(partition_id, eviction_reasons)


class ElasticTrainer(PPOTrainerSync):
    """PPOTrainerSync with checks, and the rollouts' measures among the metrics of every step."""

    def _build_replay_buffer(self) -> ReplayBuffer:
        sampler = self.config.trainer.v1.sampler
        return StrictReplayBuffer(
            trainer_mode=self.trainer_mode,
            trainer_config=self.config.trainer.v1.sync,
            max_off_policy_threshold=sampler.max_off_policy_threshold,
            max_off_policy_strategy=sampler.max_off_policy_strategy,
            sampler_kwargs=sampler.sampler_kwargs,
            # verl looks every two seconds, longer than a whole step of a small model.
            poll_interval=0.05,
        )

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        # verl starts from scratch when its tracker file or the folder it names is missing.
        directory = self.config.trainer.default_local_dir
        steps = checkpoint_steps(directory)
        if steps and self.global_steps == 0:
            raise RuntimeError(f"{directory} holds checkpoints of steps {steps}, but verl resumed from none of them")

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        # verl's own rotation deletes before it has saved, keeps the folders, and forgets what it saved before a resume.
        prune_checkpoints(self.config.trainer.default_local_dir, self.config.elastic.keep_checkpoints)

    def on_train_begin(self) -> None:
        super().on_train_begin()
        # verl goes on without MLflow after three failures.
        missing = set(self.config.trainer.logger) - set(self.logger.logger)
        if missing:
            raise RuntimeError(f"verl could not attach to {', '.join(sorted(missing))}; its reasons are above")

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        metrics.update(rollout_metrics(self._measures(batch)))

    def _measures(self, batch: Any) -> list[dict[str, float]]:
        import transfer_queue

        keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        data = transfer_queue.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        return [fields["reward_extra_info"] for fields in data["extra_fields"]]


def rollout_metrics(measures: list[dict[str, float]]) -> dict[str, float]:
    """Means over the rollouts of a step, as `rollout/<measure>`."""
    return {f"rollout/{name}": float(np.mean([row[name] for row in measures])) for name in measures[0]}


class ElasticTaskRunner:
    """A Ray actor, the counterpart of verl's TaskRunnerV1 that builds an ElasticTrainer."""

    def run(self, config: DictConfig) -> None:
        """Train to the end of the configured steps."""
        import transfer_queue
        from verl.utils.logging_utils import configure_verl_logging

        from elastic_core.training.plugin_check import require_plugin
        from elastic_core.training.rollout_workers import RolloutManager

        require_plugin()
        configure_verl_logging()
        OmegaConf.resolve(config)
        _wait_for_exclusive_cluster()
        transfer_queue.init(config.transfer_queue)
        try:
            trainer = ElasticTrainer(config=config)
            trainer.init()
            loops = RolloutManager.create(
                config=config,
                llm_client=trainer.get_llm_client(),
                teacher_client=trainer.get_teacher_client(),
                reward_loop_worker_handles=trainer.get_reward_handles(),
            )
            trainer.fit(loops)
            trainer.logger.finish()
        finally:
            transfer_queue.close()


def _wait_for_exclusive_cluster(seconds: float = 60) -> None:
    """TransferQueue has one name per cluster: a second training would attach to the first one's and mix their rollouts.
    That of a job just stopped takes a moment to go.

    Raises:
        RuntimeError: when it is still there after `seconds`.
    """
    until = time.monotonic() + seconds
    while any(actor["name"] == "TransferQueueController" for actor in ray.util.list_named_actors(all_namespaces=True)):
        if time.monotonic() > until:
            raise RuntimeError("another verl training runs on this Ray cluster; one at a time, or use another cluster")
        time.sleep(1)
