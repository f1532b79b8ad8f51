"""Settings of training under a budget, or at several."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from elastic_core.budget import Budget, TrainingBudget
from elastic_core.errors import UserError
from elastic_core.strategies.variants import BARE, Closing
from elastic_core.system.imported import declare, imported
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
from elastic_core.training.grpo.reward import REWARDS, L1Parameters, reward_of
from elastic_core.training.methods import METHODS
from elastic_core.training.methods.base import GroupReward

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

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
FSDP, STORAGE = f"{ACTOR}.fsdp_config", "transfer_queue.backend.SimpleStorage"
ATTENTION = "+actor_rollout_ref.model.override_config.attn_implementation"

PROMPT_TOKENS = 32
"""Room in the context for L1's sentence, in tokens."""

Aggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
_REJECTION = "(token_k[123]|seq_(sum|mean)_k[123]|seq_max_k[23])"


class Verl(str):
    """Key of verl's configuration that a setting's value is passed on to; "+" before it adds the key."""


def _newer(default: Any, **limits: Any) -> Any:
    """A field that keys leave out at its default, because older trainings' keys lack it."""
    return Field(default, exclude_if=lambda value: value == default, **limits)


class RolloutCorrection(BaseModel):
    """verl's `algorithm.rollout_correction`, in its names: the ratio of the trainer's probability to the sampler's
    weighs each token or response, up to a limit, or leaves it out. Forced tokens are not corrected.

    Sampler and trainer round differently in bfloat16, so the policy that sampled is not quite the one that is trained
    (Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training").
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    rollout_is: Literal["token", "sequence"] | None = "token"
    """Weigh every token by its own ratio, or by its response's; none weighs nothing."""
    rollout_is_threshold: float | str = 2.0
    """Largest weight; "0.5_5.0" gives weights outside of the two no part (masked, IcePop)."""
    rollout_is_batch_normalize: bool = False
    """Divide the weights by their mean in the batch."""
    rollout_rs: str | None = Field(None, pattern=f"^{_REJECTION}(,{_REJECTION})*$")
    """Reject tokens or responses whose ratio is beyond rollout_rs_threshold: token_k1, seq_mean_k3 ..."""
    rollout_rs_threshold: float | str | None = None
    """"0.5_2.0" for k1, the largest divergence for k2 and k3."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.rollout_rs is None) != (self.rollout_rs_threshold is None):
            raise ValueError("rejection needs both rollout_rs and rollout_rs_threshold")
        if self.rollout_is is None and self.rollout_rs is None:
            raise ValueError("rollout_correction corrects nothing; give rollout_is or rollout_rs, or leave it out")
        return self


class GrpoParameters(BaseModel):
    """Settings of training. Defaults are those of E1-Math-1.5B (Elastic Reasoning, Appendix B)."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    algorithm: str = _newer("grpo")
    """grpo: one answer to each rollout, under one budget. anytime: thoughts cut at several budgets, answers from each,
    and each segment of a thought rewarded for the cuts after it. reo: as anytime, with one reward for the thought. Or
    rollouts of grpo with your own advantages: a function by import path, "mine:advantages", called as
    `algorithms.group_advantages` is."""
    cuts: tuple[int, ...] | None = _newer(None)
    """Thinking tokens that anytime and reo cut a thought at, ascending to the budget's; by default its quarters, or for
    reo its eighth, quarter, half and all of it."""
    cut_weights: Weighting | tuple[float, ...] | None = _newer(None)
    """How much each cut counts: "uniform" (anytime's default), "linear" in its tokens, "log-uniform" (the mean over
    log t), "width" (the mean over t, reo's default), or a number for each."""
    credit: Literal["segment", "whole"] | None = _newer(None)
    """Reward a segment of a thought that is cut for the cuts after it (anytime's default), or all of them (reo's)."""
    own_baseline: bool | None = _newer(None)
    """Compare a segment with the thought's own earlier cuts too, the more, the later it is (anytime's default), or with
    the problem's other thoughts alone (reo's)."""
    norm_adv_by_std: Divisor | None = _newer(None)
    """Divide advantages by the deviation of rewards within a problem (group: the default of grpo, and of reo's
    thoughts), by nothing (none: Dr. GRPO, and anytime's default), or less their mean by the deviation in the whole
    batch (batch: REINFORCE++-baseline, DLER)."""
    filter_groups: bool = _newer(False)
    """Dynamic sampling: replace problems whose rollouts all have the same reward by further ones (DAPO)."""
    max_num_gen_batches: int = _newer(10, ge=1)
    """Batches that filter_groups samples for a step; then it trains on what there is."""
    answers: int | None = _newer(None, ge=2)
    """Answers from each cut of anytime and reo; 4 by default, as AnytimeReasoner has them."""
    strategy: Literal["separate", "vanilla"] = "separate"
    """How rollouts are decoded; vanilla trains under plain truncation at t + s."""
    one_pass: bool = _newer(False)
    """Ask for a rollout in one request, in which the engine closes the thought and ends the solution, instead of two:
    half the requests and no second prefill, the same distribution, other samples."""
    closing: str = _newer("bare")
    """How a cut thought is closed: "bare", a sentence before think-end (`docs/closings.md`), whose tokens are masked as
    think-end is, or "soft", which needs one_pass."""
    budget: Annotated[str, Verl("+elastic.budget")] = "1k+1k"
    """Thinking and solution tokens of a rollout, "t+s"; "512..3k+1k" draws t per problem and step."""
    l1: L1Parameters | None = None
    """Ask for a length in the prompt and reward it, as L1 does; needs strategy vanilla."""
    reward: str | None = _newer(None)
    """Reward of a rollout: correctness, finished (correct, and ended by the model), l1_exact, l1_max; a method that
    compares the rollouts of a problem: dler, shorterbetter, hapo, alp, laser_d, effort, linear; or a function of a
    graded rollout, or a GroupReward, by import path, "mine:brief". By default correctness, or with l1 the one of its
    form."""
    reward_settings: dict[str, Any] = _newer({})
    """Settings of a method, like { beta = 0.001 } (elastic_core/training/methods)."""
    steps: int = Field(200, ge=1)
    """Training steps: rollouts of one batch, then updates on it."""
    max_generated_tokens: Annotated[int | None, Verl("+elastic.max_generated_tokens")] = _newer(None, ge=1)
    """End after the step that brings the tokens sampled in training rollouts to this number, if `steps` have not ended
    before: trainings of different algorithms are compared at equal tokens."""
    batch_size: Annotated[int, Verl("data.train_batch_size")] = Field(128, ge=1)
    """Problems per step."""
    group_size: int = Field(8, ge=2)
    """Rollouts, or thoughts, per problem: their rewards are compared."""
    mini_batch_size: Annotated[int, Verl(f"{ACTOR}.ppo_mini_batch_size")] = Field(64, ge=1)
    """Problems per optimiser update; divides batch_size."""
    learning_rate: Annotated[float, Verl(f"{ACTOR}.optim.lr")] = Field(1e-6, gt=0)
    """AdamW's, constant after the warm-up."""
    warmup_steps: int = Field(0, ge=0)
    """Steps of linear warm-up: all updates of a step have one rate, and the first step's is 0."""
    weight_decay: Annotated[float, Verl(f"{ACTOR}.optim.weight_decay")] = Field(0.01, ge=0)
    """AdamW's."""
    clip_grad: Annotated[float, Verl(f"{ACTOR}.optim.clip_grad")] = Field(1.0, gt=0)
    """Largest gradient norm."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """PPO clips the probability ratio below 1 - clip_low."""
    clip_high: float = Field(0.2, gt=0)
    """PPO clips the probability ratio above 1 + clip_high."""
    loss_agg_mode: Annotated[Aggregation, Verl(f"{ACTOR}.loss_agg_mode")] = _newer("token-mean")
    """How verl adds up the loss of the tokens that are trained on: their mean in the mini-batch, or of each response
    its sum or mean; seq-mean-token-sum-norm divides the sum by the longest response (Dr. GRPO)."""
    loss_mode: Annotated[Literal["vanilla", "gspo"], Verl(f"{ACTOR}.policy_loss.loss_mode")] = _newer("vanilla")
    """verl's policy loss: a ratio for each token, or for each response (gspo; it takes clip_low = 3e-4, clip_high =
    4e-4 and loss_agg_mode = seq-mean-token-mean)."""
    rollout_correction: RolloutCorrection | None = _newer(None)
    """Correct for the difference of sampler and trainer, which round differently in bfloat16; not in float32."""
    kl_coefficient: Annotated[float, Verl(f"{ACTOR}.kl_loss_coef")] = Field(0.001, ge=0)
    """Weight of the low-variance KL estimate to the initial model; 0 loads no reference."""
    entropy_coefficient: Annotated[float, Verl(f"{ACTOR}.entropy_coeff")] = Field(0.001, ge=0)
    """Weight of the entropy bonus."""
    temperature: Annotated[float, Verl(f"{ROLLOUT}.temperature")] = Field(0.6, gt=0)
    """Temperature of training rollouts; log-probabilities are taken at it too."""
    reuse_rollout_logprobs: Annotated[bool, Verl("algorithm.rollout_correction.bypass_mode")] = False
    """Take the sampler's log-probabilities as those of the old policy instead of computing them again: faster, exact
    only where sampler and trainer agree (float32)."""
    mask_truncated_samples: Annotated[bool, Verl("+elastic.mask_truncated_samples")] = _newer(False)
    """Leave rollouts that a limit ended out of the loss, as DeepCoder does; their rewards still count in their group's
    mean and deviation. A mini-batch of such rollouts alone makes no update."""
    train_on_forced_end: bool = _newer(False)
    """Train on a forced think-end as if the policy had sampled it, as the published script of Elastic Reasoning does.
    The sampler gives it no probability, so the agreement of sampler and trainer is not watched."""
    as_published: Annotated[bool, Verl("+elastic.as_published")] = _newer(False)
    """Take the loss of the published script of Elastic Reasoning: train_on_forced_end, an end-of-text after every
    solution that was cut, means by micro-batch, a first step at rate 0, one step fewer, and neither clipping nor
    rollout_correction."""
    prompt_tokens: Annotated[int, Verl("data.max_prompt_length")] = Field(1024, ge=1)
    """Longest prompt in tokens; longer problems are left out."""
    save_every: Annotated[int, Verl("trainer.save_freq")] = Field(10, ge=1)
    """Steps between checkpoints: what a crash can cost."""
    keep_checkpoints: Annotated[int, Verl("+elastic.keep_checkpoints")] = Field(2, ge=1)
    """Checkpoints kept; older ones are deleted."""
    validate_every: int = Field(10, ge=0)
    """Steps between validations; 0 for none."""
    validate_first: bool = True
    """Validate before the first step too, which is where curves begin; not without validate_every."""
    validation_problems: int | None = Field(None, gt=0)
    """Problems to validate on, drawn by the seed from all sets together; all by default."""
    validation_samples: Annotated[int, Verl(f"{ROLLOUT}.val_kwargs.n")] = Field(8, ge=1)
    """Rollouts per validation problem."""
    validation_temperature: Annotated[float, Verl(f"{ROLLOUT}.val_kwargs.temperature")] = Field(0.6, ge=0)
    """Temperature of validation rollouts; 0 is greedy."""
    validation_top_p: Annotated[float, Verl(f"{ROLLOUT}.val_kwargs.top_p")] = Field(0.95, gt=0, le=1)
    """Nucleus of validation rollouts."""
    seed: Annotated[int, Verl("data.seed"), Verl(f"{ROLLOUT}.seed"), Verl("+elastic.seed")] = Field(0, ge=0, lt=2**31)
    """Seed of data order and rollouts."""
    rollout_seeds: Annotated[Literal["request", "engine"], Verl("+elastic.rollout_seeds")] = _newer("request")
    """Where rollouts take their random numbers from. request: a seed for each, so that a training which is repeated or
    resumed asks for the same samples. engine: vLLM's own generator, which its V1 sampler calls once a step for all
    requests, not once for each; the samples of a rollout then depend on the others under way."""
    device: Literal["gpu", "cpu"] = "gpu"
    """What trains and generates."""
    nodes: Annotated[int, Verl("trainer.nnodes"), Verl(f"{STORAGE}.num_data_storage_units")] = Field(1, ge=1)
    """Machines."""
    gpus_per_node: Annotated[int, Verl("trainer.n_gpus_per_node")] = Field(8, ge=1)
    """Accelerators of each; on a CPU, processes that share its cores."""
    tensor_parallel: Annotated[int, Verl(f"{ROLLOUT}.tensor_model_parallel_size")] = Field(1, ge=1)
    """Accelerators per vLLM replica; divides their total."""
    max_sequences: Annotated[int, Verl(f"{ROLLOUT}.max_num_seqs")] = Field(256, ge=1)
    """Sequences a vLLM replica generates at a time."""
    memory_fraction: Annotated[float, Verl(f"{ROLLOUT}.gpu_memory_utilization")] = Field(0.6, gt=0, lt=1)
    """Share of a GPU's memory for vLLM; not used on a CPU."""
    tokens_per_device: Annotated[int, Verl(f"{ACTOR}.ppo_max_token_len_per_gpu")] = Field(16384, ge=1)
    """Most tokens of a forward pass, padded; more are split."""
    offload: Annotated[bool, Verl(f"{FSDP}.param_offload"), Verl(f"{FSDP}.optimizer_offload")] = False
    """Keep the trainer's parameters and optimiser state in the host's memory while vLLM generates: it frees 12 bytes a
    parameter, shared by a node's accelerators, and costs moving them several times a step."""
    rollout_workers: Annotated[int, Verl(f"{ROLLOUT}.agent.num_workers")] = Field(8, ge=1)
    """Processes that drive and grade rollouts."""
    rollout_dtype: Literal["float32", "bfloat16", "float16"] | None = _newer(None)
    """Number format of the sampler's weights; by default bfloat16 on a GPU, float32 on a CPU."""
    precision: Literal["bf16", "fp32"] | None = _newer(None)
    """Number format of the trainer's passes; by default bf16 on a GPU, and fp32 on a CPU, where bf16 pays if it has
    AMX. Master weights are always fp32."""
    lora_rank: int = _newer(0, ge=0)
    """Train adapters of this rank on all linear layers, with the model as it is; 0 trains the model."""
    lora_alpha: int | None = _newer(None, ge=1)
    """Scale of the adapters, times their rank; by default twice the rank."""
    verl: dict[str, Any] = _newer({})
    """Further settings of verl by dotted name, like { actor_rollout_ref.actor.ppo_epochs = 2 }; none that is set
    here."""
    attention: Annotated[Literal["sdpa", "flash_attention_2"], Verl(ATTENTION)] = "sdpa"
    """Kernel of the trainer's attention; flash_attention_2 also removes padding, and must be installed."""
    start_timeout_seconds: float = Field(1800, gt=0)
    """How long a job may take to load its models and end its first step or validation."""
    step_timeout_seconds: float = Field(3600, gt=0)
    """How long a job may take for every further step."""

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

    @field_validator("reward", "algorithm")
    @classmethod
    def _known(cls, name: str | None, info: ValidationInfo) -> str | None:
        known = (*REWARDS, *METHODS) if info.field_name == "reward" else ("grpo", *CREDITS)
        if name is not None and name not in known:
            if ":" not in name:
                raise ValueError(
                    f'no {info.field_name} "{name}"; expected one of {", ".join(known)}, or module:function'
                )
            try:
                imported(declare(name))
            except UserError as error:
                raise ValueError(str(error)) from None
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
        if isinstance(reward_of(self.reward_name, **self.reward_settings), GroupReward) and self.cuts_thoughts:
            raise ValueError(f"reward = {self.reward} compares rollouts of one answer: algorithm = {self.algorithm}")
        for name in ("one_pass", "train_on_forced_end", "as_published"):
            if getattr(self, name) and (self.strategy != "separate" or self.cuts_thoughts):
                found = f"strategy = {self.strategy}, algorithm = {self.algorithm}"
                raise ValueError(f"{name} is of one answer under separate budgets: {found}, expected separate, grpo")
        self._check_closing()
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
        if ":" in self.algorithm and self.norm_adv_by_std is not None:
            raise ValueError(f"norm_adv_by_std has no effect: algorithm = {self.algorithm} divides as it likes")
        if not self.cuts_thoughts:
            for name in ("cuts", "cut_weights", "answers", "credit", "own_baseline"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} has no effect: algorithm = {self.algorithm}, expected anytime or reo")
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
    def cuts_thoughts(self) -> bool:
        """Whether thoughts are cut at several budgets; else a rollout has one answer."""
        return self.algorithm in CREDITS

    @property
    def cuts_at(self) -> tuple[int, ...]:
        """Budgets of thinking that rollouts are trained at: the cuts, given or by default."""
        think = self.budgets.think.high
        if not self.cuts_thoughts:
            return (think,)
        return self.cuts or (even_cuts(think) if self.algorithm == "anytime" else halved_cuts(think))

    @property
    def cut_weighting(self) -> Weighting | tuple[float, ...]:
        """How cuts are weighed, given or by default."""
        return self.cut_weights or ("uniform" if self.algorithm == "anytime" else "width")

    @property
    def credited(self) -> Credit:
        """Credit of a segment of a thought that is cut, given or by default."""
        default = CREDITS[self.algorithm]
        own_baseline = default.own_baseline if self.own_baseline is None else self.own_baseline
        return Credit(self.credit or default.of, own_baseline, self.divisor)

    @property
    def divisor(self) -> Divisor:
        """Divisor of advantages, given or by default."""
        return self.norm_adv_by_std or (CREDITS[self.algorithm].divisor if self.cuts_thoughts else "group")

    @property
    def reward_name(self) -> str:
        """Name in `REWARDS`, given or by default."""
        return self.reward or (f"l1_{self.l1.form}" if self.l1 else "correctness")

    def _check_closing(self) -> None:
        """Raises ValueError on a closing that is none, or that these rollouts cannot have."""
        closing = Closing.parse(self.closing)
        if self.closing != BARE and (self.strategy != "separate" or self.cuts_thoughts or self.as_published):
            raise ValueError(f'closing = "{self.closing}" is of one answer under separate budgets, not as published')
        if closing.soft and not self.one_pass:
            raise ValueError(f'closing = "{self.closing}" looks at each token as it is drawn: expected one_pass = true')
        if expected := closing.expected_budget(Budget(self.budgets.think.low, self.budgets.solution)):
            raise ValueError(f'closing = "{self.closing}" under {self.budget}; expected {expected}')

    @property
    def response_tokens(self) -> int:
        """Longest response: t sampled, one forced think-end, s sampled; as published, and an end-of-text."""
        words = len(Closing.parse(self.closing).text.encode())  # A token has a byte at least.
        return self.budgets.largest.limited + 1 + words + self.as_published

    @property
    def context_tokens(self) -> int:
        """Longest sequence: the prompt, with L1's request in it, and the response."""
        return self.prompt_tokens + (PROMPT_TOKENS if self.l1 else 0) + self.response_tokens

    @property
    def fixed_budget(self) -> Budget | None:
        """The one (t*, s*) of training; None where there were several, it was drawn, or l1 took its place."""
        return None if self.l1 or self.cuts_thoughts else self.budgets.fixed
