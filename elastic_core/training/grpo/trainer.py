"""verl's synchronous GRPO trainer with our group advantage, made to fail loudly and to report what elastic reasoning is
about."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from elastic_core.retry import wait_until
from elastic_core.training import checkpoints
from elastic_core.training.grpo.step_metrics import STEP, NothingLearned, SamplerAgreement, StepMetrics, validation_of

ESTIMATOR = "elastic_grpo"
_EPSILON = 1e-6


@register_adv_est(ESTIMATOR)
def group_advantages(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """GRPO's group advantage (Elastic Reasoning, section 3.3): rewards less their group's mean, over its deviation.

    A_i = (r_i - mean(r)) / (std(r) + 1e-6) on every token of rollout i that is trained on (masks.py), 0 on others.

    verl's own "grpo" takes mean and deviation in single precision, where equal rewards that are no whole numbers, like
    those of L1's responses that are all cut, have a mean that differs from them: it is off by 1e-7, and divided by
    1e-6. In double precision the mean of equal rewards is exact, so a group without variance has advantage 0.

    Args:
        token_level_rewards: (rollouts, tokens), the reward on the last token.
        response_mask: (rollouts, tokens), 0 where not trained on or padding.
        index: (rollouts,) which group each is of.

    Returns:
        Advantages and returns, (rollouts, tokens), the same: there is no critic.
    """
    rewards = token_level_rewards.sum(dim=-1).double()
    advantages = torch.empty_like(rewards)
    for group in set(index):
        rows = torch.from_numpy(index == group)
        mean, deviation = rewards[rows].mean(), rewards[rows].std()
        advantages[rows] = (rewards[rows] - mean) / (deviation + _EPSILON)
    of_tokens = advantages.float().unsqueeze(-1) * response_mask
    return of_tokens, of_tokens


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
    """PPOTrainerSync with checks, the rollouts' measures among the metrics of every step, and whole checkpoints."""

    _uncommitted: int | None = None
    """The step whose checkpoint was saved, and waits for its metrics to be recorded."""
    _validation: checkpoints.Validation | None = None
    """Of the last step."""
    _training = False
    """Whether the first step of this process has begun."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._watchers: list[NothingLearned | SamplerAgreement] = [NothingLearned()]
        if not self.config.elastic.train_on_forced_end:  # Else verl compares what the sampler never gave.
            self._watchers.append(SamplerAgreement())

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
        checkpoints.require_resumed(Path(self.config.trainer.default_local_dir), self.global_steps)

    def _save_checkpoint(self) -> None:
        # verl writes in place, and its own rotation deletes before it has saved.
        out_dir = self.config.trainer.default_local_dir
        with checkpoints.saving(Path(out_dir), self.global_steps) as temporary:
            self.config.trainer.default_local_dir = str(temporary)
            try:
                super()._save_checkpoint()
            finally:
                self.config.trainer.default_local_dir = out_dir
        self._uncommitted = self.global_steps

    def commit(self) -> None:
        """Make the saved checkpoint, if there is one, where training resumes. Before the metrics of its step were
        recorded, a training killed there would never record them."""
        if self._uncommitted is not None:
            out_dir, keep = Path(self.config.trainer.default_local_dir), self.config.elastic.keep_checkpoints
            checkpoints.commit(out_dir, self._uncommitted, self._validation, keep)
            self._uncommitted = None

    def on_step_begin(self) -> None:
        self.commit()
        super().on_step_begin()

    def on_validate_begin(self) -> None:
        super().on_validate_begin()
        self._require_loggers()

    def on_train_begin(self) -> None:
        super().on_train_begin()
        self._require_loggers()
        self._training = True

    def _validate(self) -> Any:
        # verl validates at every start. Of the step that was resumed from, what is to be known was recorded.
        if self.global_steps and not self._training:
            return {STEP: float(self.global_steps)}
        return super()._validate()

    def _require_loggers(self) -> None:
        """Before anything is recorded, which is before the first validation, if there is one."""
        # verl goes on without MLflow after three failures.
        missing = set(self.config.trainer.logger) - set(self.logger.logger)
        if missing:
            raise RuntimeError(f"verl could not attach to {', '.join(sorted(missing))}; its reasons are above")
        if "mlflow" in self.logger.logger and not isinstance(self.logger.logger["mlflow"], StepMetrics):
            from mlflow import MlflowClient

            rename = self.logger.logger["mlflow"]._sanitize_key
            self.logger.logger["mlflow"] = StepMetrics(MlflowClient(), os.environ["MLFLOW_RUN_ID"], rename)

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        metrics.update(self._rollout_metrics(batch))
        for watcher in self._watchers:
            if warning := watcher.look(self.global_steps, metrics):
                print(warning, flush=True)
        self._validation = validation_of(metrics)

    def _rollout_metrics(self, batch: Any) -> dict[str, float]:
        import transfer_queue

        keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        fields = ["uid", "rm_scores", "extra_fields"]
        data = transfer_queue.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
        rewards = [float(of_tokens.sum()) for of_tokens in data["rm_scores"].unbind()]
        measures = [extra["reward_extra_info"] for extra in data["extra_fields"]]
        means = {f"rollout/{name}": float(np.mean([row[name] for row in measures])) for name in measures[0]}
        return means | group_metrics(list(data["uid"]), rewards)


def group_metrics(problems: Sequence[str], rewards: Sequence[float]) -> dict[str, float]:
    """How many groups, the rollouts of one problem, there are, and in how many of them all rewards are equal: their
    advantages are 0, so nothing is learned from them.

    Args:
        problems: the problem of each rollout.
        rewards: of each rollout.
    """
    groups: dict[str, set[float]] = {}
    for problem, reward in zip(problems, rewards, strict=True):
        groups.setdefault(problem, set()).add(reward)
    equal = sum(len(distinct) == 1 for distinct in groups.values())
    return {"rollout/groups": float(len(groups)), "rollout/groups_without_variance": float(equal)}


def train(config: DictConfig) -> None:
    """Train to the end of the configured steps, in a process of the cluster."""
    import transfer_queue
    from verl.utils.logging_utils import configure_verl_logging

    from elastic_core.training.grpo.agent_loop import RolloutManager
    from elastic_core.training.requirements import require_plugin, watching

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
        with watching(loops.agent_loop_workers, trainer.llm_server_manager.server_handles):
            trainer.fit(loops)
        trainer.commit()
        trainer.logger.finish()
    finally:
        transfer_queue.close()


def _wait_for_exclusive_cluster() -> None:
    """TransferQueue has one name per cluster: a second training would attach to the first one's and mix their rollouts.
    That of a job just stopped takes a moment to go.

    Raises:
        RuntimeError: when it is still there after a minute.
    """

    def is_free() -> bool:
        names = {actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)}
        return "TransferQueueController" not in names

    if not wait_until(is_free, 60, every=1):
        raise RuntimeError("another verl training runs on this Ray cluster; one at a time, or use another cluster")
