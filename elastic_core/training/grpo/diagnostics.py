"""Warnings of a training that goes wrong while there are still steps to save, from the metrics of its steps."""

from collections.abc import Mapping

WARNING = "training warning: "
"""How the line begins, for whoever follows the log."""
IDLE_STEPS = 5
"""Steps without a gradient that have to pass in a row: one or two happen to any small batch."""
AGREEMENT = "training/rollout_actor_probs_pearson_corr"
"""verl's name of the correlation; not there where the sampler's log-probabilities are taken as the trainer's."""
LEAST_AGREEMENT = 0.9
"""Ours, and no published one: far below what rounding in bfloat16 does, far above what other weights leave."""


class NothingLearned:
    """A rollout's advantage is how its reward differs from those of the same problem. Where all are equal it is 0, and
    so is the step's policy gradient."""

    def __init__(self) -> None:
        self._idle = 0

    def look(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """The warning, once for as many idle steps in a row; else None.

        Args:
            metrics: of the step, with verl's `critic/score/mean` and all of `rollout/…`.
        """
        idle = metrics["rollout/groups_without_variance"] == metrics["rollout/groups"]
        self._idle = self._idle + 1 if idle else 0
        if self._idle != IDLE_STEPS:
            return None
        closed, answered = 1 - metrics["rollout/forced"], metrics["rollout/answered"]
        reward = metrics["critic/score/mean"]
        return (
            f"{WARNING}nothing was learned in steps {step - IDLE_STEPS + 1} to {step}: all rollouts of every problem "
            f"had the same reward (mean {reward:.2f}); {closed:.0%} of the thoughts were closed by the model, "
            f"{answered:.0%} of the rollouts hold an answer. {_advice(closed, answered, metrics['rollout/acc'])}"
        )


def _advice(closed: float, answered: float, accuracy: float) -> str:
    if answered == 0 and closed == 0:
        return (
            "Stop it: the model neither ends its thoughts nor answers; fine-tune it first (warm_start.sft), or give "
            "both phases more tokens (train.budget)"
        )
    if answered == 0:
        return (
            "Stop it: fine-tune the model first to end with its answer (warm_start.sft), or give solutions more tokens"
        )
    if accuracy == 0:
        return (
            "Stop it unless that changes: the problems are too hard for this model; take easier ones, or a better base"
        )
    if accuracy == 1:
        return "Stop it unless that changes: the problems are too easy for this model; take harder ones"
    return "Take more rollouts of each problem (train.group_size), or draw them at a higher train.temperature"


class SamplerAgreement:
    """At every step verl computes the probability of each sampled token once more, with the trainer's weights, and
    correlates the two over all of them. Sampler and trainer round differently, which leaves a correlation near 1. An
    engine that woke with stale or broken weights (sleeping at level 2 discards them: verl #7904) samples what the
    trainer finds unlikely."""

    def __init__(self) -> None:
        self._disagreed = False

    def look(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """The warning, at the first of several steps in a row whose correlation is too low; else None."""
        if AGREEMENT not in metrics:
            return None
        before, self._disagreed = self._disagreed, disagrees(metrics[AGREEMENT])
        if before or not self._disagreed:
            return None
        return (
            f"{WARNING}in step {step} the probabilities of sampler and trainer correlate by {metrics[AGREEMENT]:.2f}, "
            f"expected at least {LEAST_AGREEMENT}: vLLM computes with other weights than the trainer, so the rollouts "
            "are not the trained model's. Stop it, delete the checkpoints saved since, and run the same command, which "
            f"goes on from the last checkpoint with new engines; {AGREEMENT} in MLflow has every step"
        )


def disagrees(correlation: float) -> bool:
    """Whether a step's correlation is too low; one that is no number is."""
    return not correlation >= LEAST_AGREEMENT
