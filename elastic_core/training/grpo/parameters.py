"""Settings of training under a budget, or at several."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from elastic_core.budget import Budget, TrainingBudget
from elastic_core.training.algorithms import (
    CREDITS,
    Credit,
    Divisor,
    Weighting,
    check_cuts,
    even_cuts,
    halved_cuts,
    shares,
)
from elastic_core.training.grpo.reward import REWARDS, L1Parameters
from elastic_core.training.grpo.rollout_correction import RolloutCorrection

DEADLINES = {"start_timeout_seconds", "step_timeout_seconds"}
"""Settings of how a training is observed; they do not change its result."""

RESOURCES = DEADLINES | {
    *("nodes", "gpus_per_node", "tensor_parallel", "rollout_workers", "max_sequences"),
    *("memory_fraction", "tokens_per_device", "offload", "attention", "keep_checkpoints"),
}
"""What a training runs on, and how fast. What it learns is the same, up to rounding, unless it is `as_published`."""

PUBLISHED: dict[str, tuple[Any, ...]] = {
    "reward": (None, "correctness"), "norm_adv_by_std": (None, "group"), "loss_agg_mode": ("token-mean",),
    "loss_mode": ("vanilla",), "filter_groups": (False,), "mask_truncated_samples": (False,), "lora_rank": (0,),
}  # fmt: skip
"""What `as_published` leaves no choice of; the last is how a message names it."""

DEFAULT_ANSWERS = 4
"""From each cut of a thought, as AnytimeReasoner has them."""

PROMPT_TOKENS = 32
"""Room in the context for L1's sentence, in tokens."""


Aggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


def _newer(default: Any, description: str, **limits: Any) -> Any:
    """A field that keys leave out at its default, because older trainings' keys lack it."""
    return Field(default, exclude_if=lambda value: value == default, description=description, **limits)


class GrpoParameters(BaseModel):
    """Defaults are those of E1-Math-1.5B (Elastic Reasoning, Appendix B)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    algorithm: Literal["grpo", "anytime", "reo"] = _newer(
        "grpo",
        "grpo: one answer to each rollout, under one budget. anytime: thoughts cut at several budgets, answers from "
        "each, and each segment of a thought rewarded for the cuts after it (AnytimeReasoner). reo: as anytime, with "
        "one reward for the whole thought (REO-RL).",
    )
    cuts: tuple[int, ...] | None = _newer(
        None,
        "Thinking tokens that anytime and reo cut a thought at, ascending to the budget's; by default its quarters, or "
        "for reo its eighth, quarter, half and all of it.",
    )
    cut_weights: Weighting | tuple[float, ...] | None = _newer(
        None,
        'How much each cut counts: "uniform" (anytime\'s default), "linear" in its tokens, "log-uniform" (the mean '
        'over log t), "width" (the mean over t, reo\'s default), or a number for each.',
    )
    credit: Literal["segment", "whole"] | None = _newer(
        None,
        "What a segment of a thought that is cut is rewarded for: the cuts after it (anytime's default), or all of "
        "them (reo's).",
    )
    own_baseline: bool | None = _newer(
        None,
        "Compare a segment with the thought's own earlier cuts too, the more, the later it is (anytime's default), or "
        "with the problem's other thoughts alone (reo's).",
    )
    norm_adv_by_std: Divisor | None = _newer(
        None,
        "Divide advantages by the deviation of rewards within a problem (group: the default of grpo, and of reo's "
        "thoughts), by nothing (none: Dr. GRPO, and anytime's default), or less their mean by the deviation in the "
        "whole batch (batch: REINFORCE++-baseline, DLER).",
    )
    filter_groups: bool = _newer(
        False,
        "Dynamic sampling: sample further problems in place of those whose rollouts all have the same reward, until a "
        "step has its batch (DAPO).",
    )
    max_num_gen_batches: int = _newer(
        10, "Batches that filter_groups samples for a step; then it trains on what there is.", ge=1
    )
    answers: int | None = _newer(None, f"Answers from each cut of anytime and reo; {DEFAULT_ANSWERS} by default.", ge=2)
    strategy: Literal["separate", "vanilla"] = Field(
        "separate", description="How rollouts are decoded; vanilla trains under plain truncation at t + s."
    )
    one_pass: bool = _newer(
        False,
        "Ask for a rollout in one request, in which the engine closes the thought and ends the solution, instead of "
        "two: half the requests and no second prefill, the same distribution, other draws.",
    )
    budget: str = Field(
        "1k+1k",
        description='Thinking and solution tokens of a rollout, "t+s"; "512..3k+1k" draws t per problem and step, the '
        "same for all rollouts of the problem.",
    )
    l1: L1Parameters | None = Field(
        None, description="Ask for a length in the prompt and reward it, as L1 does; needs strategy vanilla."
    )
    reward: str | None = _newer(
        None,
        "Reward of a rollout: correctness, finished (correct, and ended by the model), l1_exact, l1_max, or a function "
        "that you register in elastic_core/training/grpo/reward.py; by default correctness, or with l1 the one of its "
        "form.",
    )
    steps: int = Field(200, ge=1, description="Training steps: rollouts of one batch, then updates on it.")
    max_generated_tokens: int | None = _newer(
        None,
        "End after the step that brings the tokens sampled in training rollouts to so many, if `steps` have not ended "
        "before: trainings of different algorithms are compared at equal tokens.",
        ge=1,
    )
    batch_size: int = Field(128, ge=1, description="Problems per step.")
    group_size: int = Field(8, ge=2, description="Rollouts, or thoughts, per problem: their rewards are compared.")
    mini_batch_size: int = Field(64, ge=1, description="Problems per optimiser update; divides batch_size.")
    learning_rate: float = Field(1e-6, gt=0, description="AdamW's, constant after the warm-up.")
    warmup_steps: int = Field(
        0, ge=0, description="Steps of linear warm-up: all updates of a step have one rate, and the first step's is 0."
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW's.")
    clip_grad: float = Field(1.0, gt=0, description="Largest gradient norm.")
    clip_low: float = Field(0.2, gt=0, lt=1, description="PPO clips the probability ratio below 1 - clip_low.")
    clip_high: float = Field(0.2, gt=0, description="PPO clips the probability ratio above 1 + clip_high.")
    loss_agg_mode: Aggregation = _newer(
        "token-mean",
        "How verl adds up the loss of tokens: their mean in the mini-batch, or of each response its sum or mean; "
        "seq-mean-token-sum-norm divides the sum by the longest response (Dr. GRPO).",
    )
    loss_mode: Literal["vanilla", "gspo"] = _newer(
        "vanilla",
        "verl's policy loss: a ratio for each token, or for each response (gspo; it takes clip_low = 3e-4, clip_high = "
        "4e-4 and loss_agg_mode = seq-mean-token-mean).",
    )
    rollout_correction: RolloutCorrection | None = _newer(
        None,
        "Correct for the difference of sampler and trainer, which round differently in bfloat16; not in float32.",
    )
    kl_coefficient: float = Field(
        0.001, ge=0, description="Weight of the low-variance KL estimate to the initial model; 0 loads no reference."
    )
    entropy_coefficient: float = Field(0.001, ge=0, description="Weight of the entropy bonus.")
    temperature: float = Field(0.6, gt=0, description="Of training rollouts; log-probabilities are taken at it too.")
    reuse_rollout_logprobs: bool = Field(
        False,
        description="Take the sampler's log-probabilities as those of the old policy instead of computing them again: "
        "faster, exact only where sampler and trainer agree (float32).",
    )
    mask_truncated_samples: bool = _newer(
        False,
        "Leave rollouts that a limit ended out of the loss, as DeepCoder does; their rewards still count in their "
        "group's mean and deviation. A mini-batch of such rollouts alone makes no update.",
    )
    train_on_forced_end: bool = _newer(
        False,
        "Train on a forced think-end as if the policy had sampled it, as the published script of Elastic Reasoning "
        "does. The sampler gives it no probability, so the agreement of sampler and trainer is not watched.",
    )
    as_published: bool = _newer(
        False,
        "Take the loss of the published script of Elastic Reasoning: train_on_forced_end, an end-of-text after every "
        "solution that was cut, means by micro-batch, a first step at rate 0, one step fewer, and neither clipping nor "
        "rollout_correction.",
    )
    prompt_tokens: int = Field(1024, ge=1, description="Longest prompt in tokens; longer problems are left out.")
    save_every: int = Field(10, ge=1, description="Steps between checkpoints: what a crash can cost.")
    keep_checkpoints: int = Field(2, ge=1, description="Checkpoints kept; older ones are deleted.")
    validate_every: int = Field(10, ge=0, description="Steps between validations; 0 for none.")
    validate_first: bool = Field(
        True, description="Validate before the first step too, which is where curves begin; not without validate_every."
    )
    validation_problems: int | None = Field(
        None, gt=0, description="Problems to validate on, drawn by the seed from all sets together; all by default."
    )
    validation_samples: int = Field(8, ge=1, description="Rollouts per validation problem.")
    validation_temperature: float = Field(0.6, ge=0, description="Of validation rollouts; 0 is greedy.")
    validation_top_p: float = Field(0.95, gt=0, le=1, description="Nucleus of validation rollouts.")
    seed: int = Field(0, ge=0, lt=2**31, description="Of data order and rollouts.")
    rollout_seeds: Literal["request", "engine"] = _newer(
        "request",
        "Where rollouts take their random numbers from. request: a seed for each, so that a training which is repeated "
        "or resumed asks for the same draws. engine: vLLM's own generator, which its V1 sampler calls once a step for "
        "all requests, not once for each; the draws of a rollout then depend on the others under way.",
    )
    device: Literal["gpu", "cpu"] = Field("gpu", description="What trains and generates.")
    nodes: int = Field(1, ge=1, description="Machines.")
    gpus_per_node: int = Field(8, ge=1, description="Accelerators of each; on a CPU, processes that share its cores.")
    tensor_parallel: int = Field(1, ge=1, description="Accelerators per vLLM replica; divides their total.")
    max_sequences: int = Field(256, ge=1, description="Sequences a vLLM replica generates at a time.")
    memory_fraction: float = Field(0.6, gt=0, lt=1, description="Share of a GPU's memory for vLLM; not used on a CPU.")
    tokens_per_device: int = Field(16384, ge=1, description="Most tokens of a forward pass, padded; more are split.")
    offload: bool = Field(
        False,
        description="Keep the trainer's parameters and optimiser state in the host's memory while vLLM generates: it "
        "frees 12 bytes a parameter, shared by a node's accelerators, and costs moving them several times a step.",
    )
    rollout_workers: int = Field(8, ge=1, description="Processes that drive and grade rollouts.")
    rollout_dtype: Literal["float32", "bfloat16", "float16"] | None = _newer(
        None, "Number format of the sampler's weights; by default bfloat16 on a GPU, float32 on a CPU."
    )
    precision: Literal["bf16", "fp32"] | None = _newer(
        None,
        "Of the trainer's passes; by default bf16 on a GPU, and fp32 on a CPU, where bf16 pays if it has AMX. Master "
        "weights are always fp32.",
    )
    lora_rank: int = _newer(
        0, "Train adapters of this rank on all linear layers, with the model as it is; 0 trains the model.", ge=0
    )
    lora_alpha: int | None = _newer(None, "Scale of the adapters, times their rank; by default twice the rank.", ge=1)
    verl: dict[str, Any] = _newer(
        {},
        "Further settings of verl by their dotted names, like { actor_rollout_ref.actor.ppo_epochs = 2 }. What this "
        "section sets already is refused.",
    )
    attention: Literal["sdpa", "flash_attention_2"] = Field(
        "sdpa", description="The trainer's attention; flash_attention_2 also removes padding, and must be installed."
    )
    start_timeout_seconds: float = Field(
        1800, gt=0, description="How long a job may take to load its models and end its first step or validation."
    )
    step_timeout_seconds: float = Field(3600, gt=0, description="How long a job may take for every further step.")

    @model_validator(mode="before")
    @classmethod
    def _uncorrected(cls, given: dict[str, Any]) -> dict[str, Any]:
        # Presets for GPUs have it, and a table of a preset cannot be taken out by another setting.
        return given | {"rollout_correction": None} if given.get("as_published") else given

    @field_validator("budget")
    @classmethod
    def _limited(cls, text: str) -> str:
        TrainingBudget.parse(text)
        return text

    @field_validator("reward")
    @classmethod
    def _registered(cls, name: str | None) -> str | None:
        if name is not None and name not in REWARDS:
            raise ValueError(f'no reward "{name}"; expected one of {", ".join(REWARDS)}')
        return name

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        devices, rollouts = self.nodes * self.gpus_per_node, self.mini_batch_size * self.group_size
        for larger, total, smaller, divisor in (
            ("batch_size", self.batch_size, "mini_batch_size", self.mini_batch_size),
            ("mini_batch_size * group_size", rollouts, "nodes * gpus_per_node", devices),
            ("nodes * gpus_per_node", devices, "tensor_parallel", self.tensor_parallel),
        ):
            if total % divisor:
                raise ValueError(f"{larger} = {total} is not a multiple of {smaller} = {divisor}")
        if self.device == "cpu" and self.tensor_parallel > 1:
            raise ValueError(f"tensor_parallel = {self.tensor_parallel} on a CPU; expected 1")
        if self.l1 and self.strategy != "vanilla":
            raise ValueError(f"l1 leaves the length to the model: strategy = {self.strategy}, expected vanilla")
        if self.reward_name.startswith("l1_") and not self.l1:
            raise ValueError(f"reward = {self.reward} needs the length that l1 asks for; give train.l1")
        for name in ("one_pass", "train_on_forced_end", "as_published"):
            if getattr(self, name) and (self.strategy, self.algorithm) != ("separate", "grpo"):
                found = f"strategy = {self.strategy}, algorithm = {self.algorithm}"
                raise ValueError(f"{name} is of one answer under separate budgets: {found}, expected separate, grpo")
        if self.tokens_per_device < self.context_tokens:
            longest = f"one sequence of {self.context_tokens} tokens (prompt, budget and a forced think-end)"
            raise ValueError(f"tokens_per_device = {self.tokens_per_device} cannot hold {longest}")
        for name in ("rollout_correction", "lora_rank", "rollout_dtype", "train_on_forced_end", "as_published"):
            if getattr(self, name) and self.reuse_rollout_logprobs:
                raise ValueError(f"{name} needs the trainer's probabilities: expected reuse_rollout_logprobs = false")
        if self.rollout_correction and self.train_on_forced_end:
            raise ValueError("rollout_correction has no ratio for train_on_forced_end: no sampler gave its probability")
        if self.lora_alpha and not self.lora_rank:
            raise ValueError("lora_alpha has no effect without lora_rank")
        if "max_num_gen_batches" in self.model_fields_set and not self.filter_groups:
            raise ValueError("max_num_gen_batches has no effect without filter_groups")
        for name, values in PUBLISHED.items() if self.as_published else ():
            if (found := getattr(self, name)) not in values:
                raise ValueError(f"as_published trains with {name} = {values[-1]}, found {found}")
        if self.updated_steps < 1:
            raise ValueError("as_published makes one step fewer than steps = 1; expected 2 or more")
        return self

    @model_validator(mode="after")
    def _cut(self) -> Self:
        if self.algorithm == "grpo":
            for name in ("cuts", "cut_weights", "answers", "credit", "own_baseline"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} has no effect: algorithm = grpo, expected anytime or reo")
            return self
        if self.strategy != "separate":
            raise ValueError(f"{self.algorithm} cuts thoughts: strategy = {self.strategy}, expected separate")
        if self.budgets.fixed is None:
            raise ValueError(f"{self.algorithm} draws no budgets: budget = {self.budget}, expected one, and train.cuts")
        check_cuts(self.cuts_at, self.budgets.think.high)
        shares(self.cut_weighting, self.cuts_at)
        return self

    @property
    def updated_steps(self) -> int:
        """Steps that are trained. The published script ends when its counter, which begins at 1, reaches `steps`."""
        return self.steps - self.as_published

    @property
    def resources(self) -> set[str]:
        """Settings that results do not depend on; a mean by micro-batch depends on how many of them there are."""
        return RESOURCES - ({"nodes", "gpus_per_node", "tokens_per_device"} if self.as_published else set())

    @property
    def budgets(self) -> TrainingBudget:
        return TrainingBudget.parse(self.budget)

    @property
    def cuts_at(self) -> tuple[int, ...]:
        """Budgets of thinking that rollouts are trained at: the cuts, given or by default."""
        think = self.budgets.think.high
        if self.algorithm == "grpo":
            return (think,)
        return self.cuts or (even_cuts(think) if self.algorithm == "anytime" else halved_cuts(think))

    @property
    def cut_weighting(self) -> Weighting | tuple[float, ...]:
        """How cuts are weighed, given or by default."""
        return self.cut_weights or ("uniform" if self.algorithm == "anytime" else "width")

    @property
    def credited(self) -> Credit:
        """What a segment of a thought that is cut is rewarded for, given or by default."""
        default = CREDITS[self.algorithm]
        own_baseline = default.own_baseline if self.own_baseline is None else self.own_baseline
        return Credit(self.credit or default.of, own_baseline, self.divisor)

    @property
    def divisor(self) -> Divisor:
        """What advantages are divided by, given or by default."""
        return self.norm_adv_by_std or ("group" if self.algorithm == "grpo" else CREDITS[self.algorithm].divisor)

    @property
    def reward_name(self) -> str:
        """In `REWARDS`, given or by default."""
        return self.reward or (f"l1_{self.l1.form}" if self.l1 else "correctness")

    @property
    def response_tokens(self) -> int:
        """Longest response: t sampled, one forced think-end, s sampled; as published, and an end-of-text."""
        return self.budgets.largest.limited + 1 + self.as_published

    @property
    def context_tokens(self) -> int:
        """Longest sequence: the prompt, with L1's request in it, and the response."""
        return self.prompt_tokens + (PROMPT_TOKENS if self.l1 else 0) + self.response_tokens

    @property
    def fixed_budget(self) -> Budget | None:
        """The one (t*, s*) of training; None where there were several, it was drawn, or l1 took its place."""
        return None if self.l1 or self.algorithm != "grpo" else self.budgets.fixed
