"""Rollouts of training: verl's agent loop drives the same strategy coroutine as the sweeps do, in Ray actors.

GRPO's rollouts are one answer each. Where thoughts are cut (algorithms/anytime.py) a rollout is all thoughts of a
problem with all their answers, and leaves rows whose tokens have their advantages. Sampled tokens get mask 1
(masks.py), forced ones log-probability 0. Validation runs through the same loop, one answer each.
"""

import asyncio
from typing import Any
from uuid import uuid4

import ray
from hydra.utils import get_class
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopOutput,
    DictConfigWrap,
    _agent_loop_registry,
    register,
)
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils.profiler import simple_timer

from elastic_core.budget import TrainingBudget
from elastic_core.engines.base import drive
from elastic_core.engines.budgets.processor import SOLUTION, THINK
from elastic_core.models.special_tokens import load_markers
from elastic_core.rewards import Grade
from elastic_core.seeds import group_seed, request_seed, rollout_seed
from elastic_core.strategies import STRATEGIES, Completion, Finish, Generate, Sampling
from elastic_core.training.algorithms.anytime import Answered, Cuts, num_distinct, think_and_answer
from elastic_core.training.grpo.masks import loss_mask
from elastic_core.training.grpo.parameters import L1Parameters
from elastic_core.training.grpo.reward import LengthRequest, grade_trajectory, length, measures
from elastic_core.training.grpo.rows import THINKING_ADVANTAGES, RowOutput, of_rollout, outputs
from elastic_core.training.grpo.server import server_class
from elastic_core.trajectory import Trajectory


class ServerEngine:
    """verl's LLM server as an engine of one rollout.

    Args:
        server: verl's server client.
        base: sampling parameters a `Generate` does not carry, such as top_k.
        seeded: whether each request has a seed of its own; else it draws what the server's generator is at.

    `extra_fields` holds verl's bookkeeping over all requests (the range of weight versions that answered), `generated`
    counts their tokens, those that one pass forced included.
    """

    def __init__(self, server: Any, base: dict[str, Any], *, seeded: bool) -> None:
        self._server = server
        self._base = base
        self._seeded = seeded
        # One id per rollout keeps its requests on one replica, whose prefix cache holds the thought.
        self._rollout = uuid4().hex
        self.extra_fields: dict[str, Any] = {}
        self.generated = 0

    async def generate(self, request: Generate, seed: int) -> Completion:
        """Raises:
        RuntimeError: when the server aborted the request.
        """
        sampling, budget = request.sampling, request.budget
        output = await self._server.generate(
            request_id=self._rollout,
            prompt_ids=list(request.prefix),
            sampling_params=self._base
            | {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "logprobs": sampling.logprobs,
                "max_tokens": request.max_tokens,
                "stop_token_ids": list(request.stop),
                "seed": request_seed(seed, request) if self._seeded else None,
                "detokenize": False,
                **({"extra_args": {THINK: budget.think, SOLUTION: budget.solution}} if budget else {}),
            },
        )
        if output.stop_reason == "aborted":
            raise RuntimeError(f"the rollout server aborted a request after {len(output.token_ids)} tokens")
        first = self.extra_fields.get("min_global_steps")
        self.extra_fields |= output.extra_fields
        if first is not None:
            self.extra_fields["min_global_steps"] = first
        tokens = tuple(output.token_ids)
        self.generated += len(tokens)
        # verl reports both a stop token and exhausted tokens as "completed".
        stopped = bool(tokens) and tokens[-1] in request.stop
        logprobs = tuple(output.log_probs) if sampling.logprobs else None
        return Completion(tokens, Finish.STOP if stopped else Finish.LENGTH, logprobs)


@register("elastic")
class ElasticAgentLoop(AgentLoopBase):
    """Settings come from the section `elastic` that `config.compose` adds to verl's configuration."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = self.config.elastic
        self._budget = TrainingBudget.parse(settings.budget)
        self._l1 = L1Parameters(**settings.l1) if settings.l1 else None
        self._strategy = STRATEGIES[settings.strategy]
        self._masks_truncated = bool(settings.mask_truncated_samples)
        self._trains_on_forced_end = bool(settings.train_on_forced_end)
        self._seed = int(settings.seed)
        self._seeded = settings.rollout_seeds == "request"
        self._cuts: Cuts | None = None
        if settings.cuts:
            at, weights = tuple(settings.cuts.at), tuple(settings.cuts.weights)
            self._cuts = Cuts(at, weights, int(settings.cuts.answers), self._budget.solution)
        self._tokenizer, self._markers = load_markers(self.config.actor_rollout_ref.model.path)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """One rollout, graded.

        Args:
            sampling_params: verl's, for training or validation.
            row: the parquet row's columns and verl's `global_steps`, `index` and `session_id`.

        Raises:
            ValueError: when prompt or response do not fit the lengths verl was configured for.
            BudgetExceeded: when the budget was.
        """
        group = self._group_seed(row)
        budget = self._budget.draw(group)
        request = LengthRequest.drawn(self._l1, group) if self._l1 else None
        prompt = self._prompt(row, request)
        sampling, base = _sampling(sampling_params)
        engine = ServerEngine(self.server_manager, base, seeded=self._seeded)
        metrics: dict[str, Any] = {}
        with simple_timer("generate_sequences", metrics):
            rollout = self._strategy.decode(prompt, budget, self._markers, sampling)
            trajectory = await drive(rollout, {"policy": engine}, self._rollout_seed(row, int(row["session_id"])))
        self._fits("response", len(trajectory.response_ids), self.rollout_config.response_length)
        with simple_timer("compute_score", metrics):
            graded = await self._grade(trajectory, row)
        reward = request.reward(graded.score, length(trajectory)) if request else graded.score
        measured = measures(trajectory, graded, request)
        return AgentLoopOutput(
            prompt_ids=list(prompt),
            response_ids=list(trajectory.response_ids),
            response_mask=loss_mask(
                trajectory, forced_end=self._trains_on_forced_end, truncated=not self._masks_truncated
            ),
            response_logprobs=None if trajectory.logprobs is None else list(trajectory.logprobs),
            reward_score=reward,
            num_turns=2,
            metrics=metrics,
            extra_fields={
                **engine.extra_fields,
                **of_rollout(measured, reward, engine.generated),
                "reward_extra_info": measured,
                "turn_scores": [],
                "tool_rewards": [],
            },
        )

    async def run_training(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput | list[RowOutput]:
        """As `run`; where thoughts are cut all thoughts of a problem, with all their answers."""
        if self._cuts is None:
            return await self.run(sampling_params, **row)
        prompt = self._prompt(row)
        sampling, base = _sampling(sampling_params)
        numbers = range(int(self.config.elastic.cuts.thoughts))
        engines = [ServerEngine(self.server_manager, base, seeded=self._seeded) for _ in numbers]
        metrics: dict[str, Any] = {}
        with simple_timer("generate_sequences", metrics):
            thoughts = await asyncio.gather(
                *(
                    think_and_answer(
                        prompt, self._cuts, self._markers, sampling, engine, self._rollout_seed(row, number)
                    )
                    for number, engine in enumerate(engines)
                )
            )
        with simple_timer("compute_score", metrics):
            grades = await asyncio.gather(*(self._grade_answers(answered, row) for answered in thoughts))
        return outputs(
            thoughts,
            grades,
            self._cuts,
            thinking=THINKING_ADVANTAGES[self.config.elastic.cuts.algorithm],
            truncated=not self._masks_truncated,
            generated=[engine.generated for engine in engines],
            shared={"num_turns": 2, "metrics": metrics},
            versions=engines[0].extra_fields,
        )

    async def _grade_answers(self, answered: Answered, row: dict[str, Any]) -> list[list[Grade]]:
        """By cut and answer; each answer is graded once, for all cuts that have it."""
        own = num_distinct(answered)
        flat = [trajectory for trajectories in answered[:own] for trajectory in trajectories]
        found = await asyncio.gather(*(self._grade(trajectory, row) for trajectory in flat))
        number = len(answered[0])
        by_cut = [found[start : start + number] for start in range(0, len(found), number)]
        return by_cut + [by_cut[-1]] * (len(answered) - own)

    async def _grade(self, trajectory: Trajectory, row: dict[str, Any]) -> Grade:
        # Parsing mathematics and running code block; other rollouts must go on meanwhile.
        return await asyncio.to_thread(
            grade_trajectory,
            trajectory,
            self._tokenizer,
            self._markers,
            kind=row["extra_info"]["grader"],
            truth=row["reward_model"]["ground_truth"],
        )

    def _prompt(self, row: dict[str, Any], request: LengthRequest | None = None) -> tuple[int, ...]:
        *before, question = row["raw_prompt"]
        if request:
            question = {**question, "content": request.prompt(question["content"])}
        prompt = tuple(
            self._tokenizer.apply_chat_template(
                [*before, question], add_generation_prompt=True, tokenize=True, return_dict=False
            )
        )
        self._fits("prompt", len(prompt), self.rollout_config.prompt_length)
        return prompt

    def _rollout_seed(self, row: dict[str, Any], session: int) -> int:
        return rollout_seed(
            self._seed,
            step=int(row["global_steps"]),
            source=row["data_source"],
            index=int(row["index"]),
            session=session,
        )

    def _group_seed(self, row: dict[str, Any]) -> int:
        # A validation problem keeps its draw, so that validations of different steps compare.
        step = int(row["global_steps"]) if row["extra_info"]["split"] == "train" else 0
        return group_seed(self._seed, step=step, source=row["data_source"], index=int(row["index"]))

    def _fits(self, what: str, length: int, limit: int) -> None:
        if length > limit:
            raise ValueError(f"a {what} of {length} tokens; verl was configured for at most {limit}")


def _sampling(sampling_params: dict[str, Any]) -> tuple[Sampling, dict[str, Any]]:
    """What a `Generate` carries of verl's sampling parameters, and the others."""
    base = dict(sampling_params)
    return Sampling(base.pop("temperature"), base.pop("top_p"), bool(base.pop("logprobs"))), base


class RolloutWorker(AgentLoopWorkerTQ.__ray_actor_class__):  # type: ignore[misc]
    """verl's, with one agent loop per worker instead of one per rollout: making one takes 6 ms in verl 0.9.1, most of
    it in hydra, seconds per step when a step is short. Agent loops must keep no state between rollouts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loops: dict[str, ElasticAgentLoop] = {}
        # A handle of the servers imports their class, and vLLM with it. No other process waits for this one yet.
        server_class()

    def connect(self, llm_client: Any, reward_handles: Any) -> None:
        self.llm_client, self.reward_loop_worker_handles = llm_client, reward_handles

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: dict[str, Any], *, agent_name: str, trace: bool, **row: Any
    ) -> None:
        loop = self._agent_loop(agent_name)
        run = loop.run if trajectory["validate"] else loop.run_training
        output = await run(sampling_params, **row)
        # verl stores the whole problem with each of its rollouts. They are graded, and a program's tests can be 189 MB.
        graded = row | {"reward_model": row["reward_model"] | {"ground_truth": None}}
        await self._agent_loop_postprocess(output, trajectory["validate"], **graded)

    def _agent_loop(self, name: str) -> ElasticAgentLoop:
        if name not in self._loops:
            self._loops[name] = get_class(_agent_loop_registry[name]["_target_"])(
                trainer_config=DictConfigWrap(self.config),
                server_manager=self.llm_client,
                tokenizer=self.tokenizer,
                processor=self.processor,
                dataset_cls=self.dataset_cls,
                data_config=DictConfigWrap(self.config.data),
                # Of "qwen2" verl concludes Qwen's conversation format, and refuses tokenizers without it, such as those
                # of models distilled from R1 (verl #7637). Our loop holds no conversation: verl's default is enough.
                hf_model_type=None,
            )
        return self._loops[name]


class RolloutManager(AgentLoopManagerTQ):
    """Starts `RolloutWorker`s, which roll out once they are connected."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(RolloutWorker)

    def connect(self, llm_client: Any, reward_handles: Any) -> None:
        """Tell the workers whom they ask for tokens and, besides grading themselves, for rewards."""
        ray.get([worker.connect.remote(llm_client, reward_handles) for worker in self.agent_loop_workers])
