"""Settings of verl's `algorithm.rollout_correction`, in its names.

Sampler and trainer round differently in bfloat16, so the policy that sampled is not quite the one that is trained (Yao
et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"). verl applies none of it to
positions that are not trained on, such as a forced think-end.
"""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_REJECTION = "(token_k[123]|seq_(sum|mean)_k[123]|seq_max_k[23])"
_REJECTIONS = f"^{_REJECTION}(,{_REJECTION})*$"


class RolloutCorrection(BaseModel):
    """The ratio of the trainer's probability to the sampler's weighs each token or response, at most so much, or leaves
    it out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rollout_is: Literal["token", "sequence"] | None = Field(
        "token", description="Weigh every token by its own ratio, or by its response's; none weighs nothing."
    )
    rollout_is_threshold: float | str = Field(
        2.0, description='Largest weight; "0.5_5.0" gives weights outside of the two no part (masked, IcePop).'
    )
    rollout_is_batch_normalize: bool = Field(False, description="Divide the weights by their mean in the batch.")
    rollout_rs: str | None = Field(
        None,
        pattern=_REJECTIONS,
        description="Reject tokens or responses whose ratio is beyond rollout_rs_threshold: token_k1, seq_mean_k3 ...",
    )
    rollout_rs_threshold: float | str | None = Field(
        None, description='"0.5_2.0" for k1, the largest divergence for k2 and k3.'
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.rollout_rs is None) != (self.rollout_rs_threshold is None):
            raise ValueError("rejection needs both rollout_rs and rollout_rs_threshold")
        if self.rollout_is is None and self.rollout_rs is None:
            raise ValueError("rollout_correction corrects nothing; give rollout_is or rollout_rs, or leave it out")
        return self
