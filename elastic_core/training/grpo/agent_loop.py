"""Rollouts of training: verl's agent loop drives the same strategy coroutine as the sweeps do, in Ray actors.

GRPO's rollouts are one answer each. Where thoughts are cut (algorithms.py) a rollout is all thoughts of a
problem with all their answers, and leaves rows of tokens with their advantages. Sampled tokens get mask 1, forced
ones mask 0 and log-probability 0. Validation runs through the same loop, one answer each.

Where a reward compares the rollouts of a problem, each waits for the others. verl runs them in one process.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import ray
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, DictConfigWrap
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils.profiler import simple_timer

from elastic_core.budget import Budget, TrainingBudget
from elastic_core.engines.base import drive
from elastic_core.models.special_tokens import load_markers, render
from elastic_core.rewards import Grade, grade
from elastic_core.rewards.response import response_text
from elastic_core.seeds import group_seed, rollout_seed
from elastic_core.strategies import STRATEGIES, Sampling
from elastic_core.strategies.variants import Closing
from elastic_core.training.algorithms import Answered, Credit, Cuts, num_distinct, rows, think_and_answer
from elastic_core.training.grpo.reward import (
    L1Parameters,
    LengthRequest,
    Rollout,
    configured_reward,
    correctness,
    measures,
    thought_measures,
)
from elastic_core.training.grpo.rollout_group import RolloutGroup
from elastic_core.training.grpo.server import ServerEngine, server_class
from elastic_core.training.methods.base import GroupReward
from elastic_core.trajectory import Trajectory


@dataclass(frozen=True)
class RolloutPlan:
    """Inputs of a rollout, a function of its problem, step and number: a resumed training plans the same. Each
    request's seed is derived from `seed`; the prompt contains L1's `request`."""

    prompt: tuple[int, ...]
    budget: Budget
    seed: int
    request: LengthRequest | None = None


_GROUPS: dict[str, RolloutGroup] = {}
"""Of this process, by verl's `uid`: verl's own worker makes an agent loop for every rollout."""


class RowOutput(AgentLoopOutput):  # type: ignore[misc]
    """A row with the advantage of each response token in the place of its reward, where `trainer.given_advantages`
    finds it. A reward would not arrive: verl 0.9.1 gives all rows of a rollout that of the last one."""

    advantages: list[float]

    def as_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().as_dict()
        fields["rm_scores"] = torch.tensor(fields.pop("advantages"), dtype=torch.float32)
        return fields


class ElasticAgentLoop(AgentLoopBase):
    """Settings are those of the section `elastic` that `config.compose` adds to verl's configuration."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # For "qwen2" verl expects Qwen's conversation format and refuses tokenizers without it, such as those of models
        # distilled from R1 (verl #7637). Our loop holds no conversation: verl's default is enough.
        super().__init__(*args, **kwargs | {"hf_model_type": None})
        settings = self.config.elastic
        self._budget = TrainingBudget.parse(settings.budget)
        self._l1 = L1Parameters(**settings.l1) if settings.l1 else None
        reward = configured_reward(settings)
        self._method = reward if isinstance(reward, GroupReward) else None
        # Of a method, validation has the grade: its groups may be of one.
        self._reward = correctness if isinstance(reward, GroupReward) else reward
        if self._method and self.rollout_config.n < 2:
            raise ValueError(f"{settings.reward} compares the rollouts of a problem: rollout.n = 1, expected 2 or more")
        self._strategy = STRATEGIES[settings.strategy]
        self._as_published = bool(settings.as_published)
        self._on_truncated = not settings.mask_truncated_samples
        self._on_forced_end = bool(settings.train_on_forced_end)
        self._seed = int(settings.seed)
        self._seeded = settings.rollout_seeds == "request"
        self._cuts: Cuts | None = None
        if settings.cuts:
            at, weights = tuple(settings.cuts.at), tuple(settings.cuts.weights)
            self._cuts = Cuts(at, weights, int(settings.cuts.answers), self._budget.solution)
        self._tokenizer, self._markers = load_markers(self.config.actor_rollout_ref.model.path)
        if closing := settings.get("closing"):
            self._markers = Closing.parse(closing).of(self._tokenizer, self._markers)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """One rollout, graded. `row` has the parquet row's columns and verl's `global_steps`, `index`, `session_id` and
        `uid`. Raises ValueError when prompt or response do not fit the lengths that verl was configured for."""
        group = self._group(row)
        with group or nullcontext():
            output = await self._run(sampling_params, row, group)
        _GROUPS.pop(row.get("uid", ""), None)
        return output

    async def _run(
        self, sampling_params: dict[str, Any], row: Mapping[str, Any], group: RolloutGroup | None
    ) -> AgentLoopOutput:
        (plan,) = self._plans(row, [int(row["session_id"])])
        sampling, engine = self._sampler(sampling_params)
        metrics: dict[str, Any] = {}
        with simple_timer("generate_sequences", metrics):
            decoding = self._strategy.decode(plan.prompt, plan.budget, self._markers, sampling)
            trajectory = await drive(decoding, {"policy": engine}, plan.seed)
        if self._as_published:
            trajectory = trajectory.as_published(self._tokenizer.eos_token_id)
        self._fits("response", len(trajectory.response_ids), self.rollout_config.response_length)
        with simple_timer("compute_score", metrics):
            rollout = await self._graded(trajectory, row, plan.request)
        measured, extra = measures(rollout), {}
        if group:
            reward = await group.reward(int(row["session_id"]), rollout.outcome)
            extra["outcome"] = asdict(rollout.outcome)
        else:
            reward = self._reward(rollout)
        return AgentLoopOutput(
            prompt_ids=list(plan.prompt),
            response_ids=list(trajectory.response_ids),
            response_mask=trajectory.loss_mask(forced_end=self._on_forced_end, truncated=self._on_truncated),
            response_logprobs=None if trajectory.logprobs is None else list(trajectory.logprobs),
            reward_score=reward,
            num_turns=2,
            metrics=metrics,
            extra_fields=engine.extra_fields | of_row(measured, reward, engine.generated, measured) | extra,
        )

    def _group(self, row: Mapping[str, Any]) -> RolloutGroup | None:
        """The rollouts that a rollout of training is rewarded with; None where its reward is its own."""
        method = self._method
        if method is None or row["extra_info"]["split"] != "train":
            return None
        if method.memory_of != "nothing" and "reward_memory" not in row:
            raise ValueError(
                f"reward {self.config.elastic.reward} has a memory, which verl's own trainer does not keep; expected "
                "`elastic run train`, or a reward without one"
            )
        group = _GROUPS.get(row["uid"])
        if group is None:
            memory = json.loads(row.get("reward_memory", "null"))
            group = _GROUPS[row["uid"]] = RolloutGroup(self.rollout_config.n, lambda seen: method.rewards(seen, memory))
        return group

    async def run_training(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput | list[RowOutput]:
        """One rollout; where thoughts are cut, all thoughts of a problem with all their answers."""
        if self._cuts is None:
            return await self.run(sampling_params, **row)
        plans = self._plans(row, range(int(self.config.elastic.cuts.thoughts)))
        samplers = [self._sampler(sampling_params) for _ in plans]
        metrics: dict[str, Any] = {}
        thinking = [
            think_and_answer(plan.prompt, self._cuts, self._markers, sampling, engine, plan.seed)
            for plan, (sampling, engine) in zip(plans, samplers, strict=True)
        ]
        with simple_timer("generate_sequences", metrics):
            thoughts = await asyncio.gather(*thinking)
        with simple_timer("compute_score", metrics):
            graded = await asyncio.gather(*(self._graded_answers(answered, row) for answered in thoughts))
        return self._rows(thoughts, graded, self._cuts, [engine for _, engine in samplers], metrics)

    def _plans(self, row: Mapping[str, Any], sessions: Iterable[int]) -> list[RolloutPlan]:
        """Plans of one problem's rollouts, by number. Their rewards are compared, so budget and length are the same."""
        step, place = int(row["global_steps"]), {"source": row["data_source"], "index": int(row["index"])}
        # A validation problem keeps its draw, so that validations of different steps compare.
        group = group_seed(self._seed, step=step if row["extra_info"]["split"] == "train" else 0, **place)
        seeds = [rollout_seed(self._seed, step=step, session=session, **place) for session in sessions]
        request = LengthRequest.drawn(self._l1, group) if self._l1 else None
        *before, question = row["raw_prompt"]
        if request:
            question = {**question, "content": request.prompt(question["content"])}
        messages = [*before, question]
        prompt = render(self._tokenizer, messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        self._fits("prompt", len(prompt), self.rollout_config.prompt_length)
        budget = self._budget.draw(group)
        return [RolloutPlan(tuple(prompt), budget, seed, request) for seed in seeds]

    def _sampler(self, sampling_params: Mapping[str, Any]) -> tuple[Sampling, ServerEngine]:
        """The sampling parameters of verl that a `Generate` carries, and an engine of one rollout with the others."""
        others = dict(sampling_params)
        sampling = Sampling(others.pop("temperature"), others.pop("top_p"), bool(others.pop("logprobs")))
        return sampling, ServerEngine(self.server_manager, others, seeded=self._seeded)

    async def _graded(
        self, trajectory: Trajectory, row: Mapping[str, Any], request: LengthRequest | None = None
    ) -> Rollout:
        def graded() -> Grade:
            text = response_text(self._tokenizer, self._markers, trajectory).graded(trajectory.think_finish)
            return grade(row["extra_info"]["grader"], text, row["reward_model"]["ground_truth"])

        # Parsing mathematics and running code block; other rollouts must go on.
        return Rollout(trajectory, await asyncio.to_thread(graded), request)

    async def _graded_answers(self, answered: Answered, row: Mapping[str, Any]) -> list[list[Rollout]]:
        """Rollouts by cut and answer; each answer is graded once, for all cuts that have it."""
        own, number = num_distinct(answered), len(answered[0])
        found = await asyncio.gather(*(self._graded(each, row) for of_cut in answered[:own] for each in of_cut))
        by_cut = [found[start : start + number] for start in range(0, len(found), number)]
        return by_cut + [by_cut[-1]] * (len(answered) - own)

    def _rows(
        self,
        thoughts: Sequence[Answered],
        graded: Sequence[Sequence[Sequence[Rollout]]],
        cuts: Cuts,
        engines: Sequence[ServerEngine],
        metrics: dict[str, Any],
    ) -> list[RowOutput]:
        """Rows of one problem: each thought and each of its answers, with their advantages."""
        rewards = np.array(
            [[[self._reward(each) for each in of_cut] for of_cut in of_thought] for of_thought in graded]
        )
        credit = Credit(**self.config.elastic.cuts.credit)
        of_problem = rows(thoughts, rewards, cuts, credit=credit, truncated=self._on_truncated)
        found = []
        for of_thought, answers, engine in zip(of_problem, graded, engines, strict=True):
            measured, generated = thought_measures(answers, cuts.at, cuts.weights), engine.generated
            for row in of_thought:
                found.append(
                    RowOutput(
                        prompt_ids=list(row.prompt_ids),
                        response_ids=list(row.response_ids),
                        response_mask=row.mask,
                        response_logprobs=None if row.logprobs is None else list(row.logprobs),
                        advantages=row.advantages,
                        reward_score=0.0,  # Without one verl asks reward workers, of which there are none.
                        num_turns=2,
                        metrics=metrics,
                        extra_fields=engines[0].extra_fields | of_row(measured, row.score, generated),
                    )
                )
                measured, generated = {}, 0  # A thought's first row has its numbers.
        return found

    def _fits(self, what: str, length: int, limit: int) -> None:
        if length > limit:
            raise ValueError(f"a {what} of {length} tokens; verl was configured for at most {limit}")


def of_row(
    measured: Mapping[str, float], score: float | None, generated: int, validation: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Extra fields of a row: the trainer's, and those that verl requires.

    Args:
        measured: of its rollout; empty in all rows of a rollout but one. So is `generated`, the tokens sampled for it.
        score: None in rows without one.
        validation: numbers that verl averages in validation.
    """
    of_verl: dict[str, Any] = {"reward_extra_info": dict(validation or {}), "turn_scores": [], "tool_rewards": []}
    return of_verl | {"measured": dict(measured), "score": score, "generated_tokens": generated}


class RolloutWorker(AgentLoopWorkerTQ.__ray_actor_class__):  # type: ignore[misc]
    """verl's, with one agent loop per worker instead of one per rollout: making one takes 6 ms in verl 0.9.1, most of
    it in hydra, seconds per step when a step is short. Agent loops must keep no state between rollouts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A handle of the servers imports their class, and vLLM with it. No other process waits for this one yet.
        server_class()

    def connect(self, llm_client: Any, reward_handles: Any) -> None:
        self.llm_client, self.reward_loop_worker_handles = llm_client, reward_handles

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: dict[str, Any], *, agent_name: str, trace: bool, **row: Any
    ) -> None:
        run = self._agent_loop.run if trajectory["validate"] else self._agent_loop.run_training
        output = await run(sampling_params, **row)
        # verl stores the problem with each of its rollouts. They are graded, and a program's tests can be 189 MB.
        graded = row | {"reward_model": row["reward_model"] | {"ground_truth": None}}
        await self._agent_loop_postprocess(output, trajectory["validate"], **graded)

    @cached_property
    def _agent_loop(self) -> ElasticAgentLoop:
        return ElasticAgentLoop(
            trainer_config=DictConfigWrap(self.config),
            server_manager=self.llm_client,
            tokenizer=self.tokenizer,
            processor=self.processor,
            dataset_cls=self.dataset_cls,
            data_config=DictConfigWrap(self.config.data),
        )


class RolloutManager(AgentLoopManagerTQ):
    """Starts `RolloutWorker`s, which roll out once they are connected."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(RolloutWorker)

    def connect(self, llm_client: Any, reward_handles: Any) -> None:
        ray.get([worker.connect.remote(llm_client, reward_handles) for worker in self.agent_loop_workers])
