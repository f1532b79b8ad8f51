"""verl's synchronous trainer with our advantages, made to fail loudly and to report what elastic reasoning is about."""

import json
import os
from collections.abc import Sequence
from functools import partial
from math import lcm
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from omegaconf import DictConfig
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.tensordict_utils import assign_non_tensor_stack

from elastic_core.system.imported import imported
from elastic_core.training import checkpoints
from elastic_core.training.algorithms import Divisor, group_advantages, whitened
from elastic_core.training.grpo.replay_buffer import Extra, StrictReplayBuffer, extra_fields, with_variance
from elastic_core.training.grpo.reward import configured_reward
from elastic_core.training.grpo.server import GroupedClient
from elastic_core.training.grpo.step_metrics import (
    GENERATED,
    STEP,
    EndUnlearned,
    NothingLearned,
    SamplerAgreement,
    StepMetrics,
    validation_of,
)
from elastic_core.training.methods.base import GroupReward, Memory, Outcome
from elastic_core.training.micro_batches import MEAN_OF_EACH
from elastic_core.training.requirements import watching


def given_advantages(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, *, divisor: Divisor, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each token's advantage as the rollout worker computed it, which has all rollouts of a problem."""
    of_tokens = token_level_rewards * response_mask
    if divisor == "batch":
        of_tokens = whitened(of_tokens, response_mask).float()
    return of_tokens, of_tokens


# "elastic_grpo_group" and so on: of rollouts with rewards to compare, and of rows that come with their advantages.
for each in get_args(Divisor):
    register_adv_est(f"elastic_grpo_{each}")(partial(group_advantages, divisor=each))
    register_adv_est(f"elastic_rows_{each}")(partial(given_advantages, divisor=each))


class ElasticTrainer(PPOTrainerSync):
    """PPOTrainerSync with checks, the rollouts' measures among the metrics of every step, and complete checkpoints."""

    _uncommitted: int | None = None  # step of a saved checkpoint; its metrics are not recorded yet
    _validation: checkpoints.Validation | None = None  # of the last step
    _training = False  # whether the first step of this process has begun
    _memory: Memory | None = None  # of a reward that has one
    _problems: dict[str, str]  # of this step, by verl's uid
    _generated = 0  # tokens sampled in training rollouts, those of earlier processes included

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._watchers: list[NothingLearned | EndUnlearned | SamplerAgreement] = [NothingLearned()]
        name, reward = self.config.elastic.reward, configured_reward(self.config.elastic)
        if isinstance(reward, GroupReward) and reward.memory_of != "nothing":
            self._memory = Memory(name, reward)
        if name == "correctness":
            self._watchers.append(EndUnlearned())
        if not self.config.elastic.train_on_forced_end:  # Else verl compares a probability that the sampler never gave.
            self._watchers.append(SamplerAgreement())

    @property
    def _out_dir(self) -> Path:
        return Path(self.config.trainer.default_local_dir)

    def _build_replay_buffer(self) -> StrictReplayBuffer:
        sampler = self.config.trainer.v1.sampler
        return StrictReplayBuffer(
            trainer_mode=self.trainer_mode,
            trainer_config=self.config.trainer.v1.sync,
            max_off_policy_threshold=sampler.max_off_policy_threshold,
            max_off_policy_strategy=sampler.max_off_policy_strategy,
            sampler_kwargs=sampler.sampler_kwargs,
            # verl polls every two seconds, longer than a step of a small model. Each poll lists all rows.
            poll_interval=0.05 if self.config.trainer.device == "cpu" else 0.5,
            refill_fn=self._add_prompts_to_generate,
            max_batches=self.config.elastic.filter_groups,
        )

    def _submit_batch_to_rollout(self, batch: Any) -> int:
        self.replay_buffer.submitted += list(batch["uid"])
        if self._memory:
            named = zip(batch["data_source"], batch["index"], strict=True)
            problems = [f"{source}/{int(index)}" for source, index in named]
            self._problems |= dict(zip(batch["uid"], problems, strict=True))
            assign_non_tensor_stack(batch, "reward_memory", [json.dumps(self._memory.of(each)) for each in problems])
        return int(super()._submit_batch_to_rollout(batch))

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        # verl starts from scratch when its tracker file or the folder it names is missing.
        checkpoints.require_resumed(self._out_dir, self.global_steps)
        self._generated = checkpoints.generated_tokens(self._out_dir)
        if self._memory and (newest := checkpoints.latest_checkpoint(self._out_dir)):
            self._memory.load(newest)

    def _save_checkpoint(self) -> None:
        # verl writes in place, and its rotation deletes before it has saved.
        out_dir = self._out_dir
        with checkpoints.saving(out_dir, self.global_steps) as temporary:
            self.config.trainer.default_local_dir = str(temporary)
            try:
                super()._save_checkpoint()
            finally:
                self.config.trainer.default_local_dir = str(out_dir)
            checkpoints.note_generated(temporary, self.global_steps, self._generated)
            if self._memory and (saved := checkpoints.latest_checkpoint(temporary)):
                self._memory.save(saved)
        self._uncommitted = self.global_steps

    def commit(self) -> None:
        """Make the saved checkpoint, if there is one, where training resumes. This comes after the metrics of its step
        are recorded: a training that is killed before would never record them."""
        if self._uncommitted is not None:
            keep = self.config.elastic.keep_checkpoints
            checkpoints.commit(self._out_dir, self._uncommitted, self._validation, keep)
            self._uncommitted = None

    def on_init_end(self) -> None:
        # Ranks send their first weights to the servers, and would wait for a dead one.
        with watching([], self.llm_server_manager.server_handles):
            super().on_init_end()

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

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        self.replay_buffer.submitted, self.replay_buffer.discarded, self._problems = [], [], {}
        batch = super().step(metrics, timing_raw)
        # Also of rollouts that are not trained on: they were sampled, and belong to how good the policy is.
        extras = [*_extra_fields(batch), *self.replay_buffer.discarded]
        self._generated += sum(extra["generated_tokens"] for _, extra in extras)
        if self._memory:
            outcomes: dict[str, list[Outcome]] = {problem: [] for problem in self._problems}
            for problem, extra in extras:
                outcomes[problem].append(Outcome(**extra["outcome"]))
            self._memory.update((self._problems[problem], group) for problem, group in outcomes.items())
        metrics |= rollout_metrics(extras) | {GENERATED: float(self._generated)}
        limit = self.config.elastic.max_generated_tokens
        if limit is not None and self._generated >= limit:
            # verl decides after this whether to save and to validate, and then whether there is another step.
            self.total_training_steps = self.global_steps
            self.config.trainer.save_freq = 1
            self.config.trainer.test_freq = min(1, self.config.trainer.test_freq)
        return batch

    @property
    def _updates(self) -> int:
        return int(self.config.data.train_batch_size // self.config.actor_rollout_ref.actor.ppo_mini_batch_size)

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        # verl takes a mini-batch of a fixed number of rows. A problem may leave many or few; the updates are fixed.
        return self._updates * lcm(dp_size, int(self.config.actor_rollout_ref.rollout.n))

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch.extra_info[MEAN_OF_EACH] = bool(self.config.elastic.as_published)
        actor = self.config.actor_rollout_ref.actor
        problems, rollouts = actor.ppo_mini_batch_size, self.config.actor_rollout_ref.rollout.n
        actor.ppo_mini_batch_size = len(batch) // (self._updates * rollouts)
        try:
            return super()._update_actor(batch, metrics)
        finally:
            actor.ppo_mini_batch_size = problems

    def _validate(self) -> Any:
        # verl validates at every start; the step that it resumed from was validated and recorded before.
        if self.global_steps and not self._training:
            return {STEP: float(self.global_steps)}
        return super()._validate()

    def _require_loggers(self) -> None:
        """verl goes on without MLflow after three failures: check before the first validation or step is recorded."""
        missing = set(self.config.trainer.logger) - set(self.logger.logger)
        if missing:
            raise RuntimeError(f"verl could not attach to {', '.join(sorted(missing))}; its reasons are above")
        if "mlflow" in self.logger.logger and not isinstance(self.logger.logger["mlflow"], StepMetrics):
            from mlflow import MlflowClient

            rename = self.logger.logger["mlflow"]._sanitize_key
            self.logger.logger["mlflow"] = StepMetrics(MlflowClient(), os.environ["MLFLOW_RUN_ID"], rename)

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._compute_metrics(batch, metrics, *args, **kwargs)
        if "rollout/anytime_acc" in metrics:  # verl takes the rows' advantages for rewards.
            metrics["critic/score/mean"] = metrics["critic/rewards/mean"] = metrics["rollout/anytime_acc"]
        for watcher in self._watchers:
            if warning := watcher.update(self.global_steps, metrics):
                print(warning, flush=True)
        self._validation = validation_of(metrics)


def _extra_fields(batch: Any) -> list[Extra]:
    keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
    return list(extra_fields(batch.partition_id, keys).values())


def rollout_metrics(rows: Sequence[Extra]) -> dict[str, float]:
    """Means of the rollouts' measures, how many groups there are, the rollouts of one problem, and in how many of them
    all rewards are equal: their advantages are 0, so nothing is learned from them."""
    measured = [row["measured"] for _, row in rows if row["measured"]]
    means = {f"rollout/{name}": float(np.mean([of_rollout[name] for of_rollout in measured])) for name in measured[0]}
    groups = len({problem for problem, _ in rows})
    equal = groups - len(with_variance(rows))
    return means | {"rollout/groups": float(groups), "rollout/groups_without_variance": float(equal)}


def train(config: DictConfig) -> None:
    """Train to the end of the configured steps, in a process of the cluster that has started the TransferQueue."""
    from verl.utils.logging_utils import configure_verl_logging

    from elastic_core.training.cpu import start_no_load_balancer
    from elastic_core.training.grpo.agent_loop import RolloutManager

    configure_verl_logging()
    if ":" in (estimator := config.algorithm.adv_estimator):
        register_adv_est(estimator)(imported(estimator))
    if config.trainer.device == "cpu":
        start_no_load_balancer()
    # Rollout workers take as long to start as the trainer's, and need nothing of them until the first rollout.
    loops = RolloutManager.create(config=config, llm_client=None)
    trainer = ElasticTrainer(config=config)
    trainer.init()
    manager = trainer.llm_server_manager
    if config.trainer.device == "cpu":  # There models are small, and requests travel in groups.
        client = manager.get_client(GroupedClient, servers=manager.server_handles)
    else:
        client = trainer.get_llm_client()
    loops.connect(client, trainer.get_reward_handles())
    with watching(loops.agent_loop_workers, manager.server_handles):
        trainer.fit(loops)
    trainer.commit()
    trainer.logger.finish()
