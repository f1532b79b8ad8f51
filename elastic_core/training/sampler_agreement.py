"""Says it when the sampler does not have the trainer's weights.

At every step verl computes the probability of each sampled token once more, with the trainer's weights, and correlates
the two over all of them. Sampler and trainer round differently, which leaves a correlation near 1. An engine that woke
with stale or broken weights (sleeping at level 2 discards them: verl #7904) samples what the trainer finds unlikely.
"""

from collections.abc import Mapping

from elastic_core.training.nothing_learned import WARNING

METRIC = "training/rollout_actor_probs_pearson_corr"
"""verl's name of the correlation; not there where the sampler's log-probabilities are taken as the trainer's."""
THRESHOLD = 0.9
"""Ours, and no published one: far below what rounding in bfloat16 does, far above what other weights leave."""


class SamplerAgreement:
    """Looks at the metrics of one step after the other."""

    def __init__(self) -> None:
        self._disagreed = False

    def look(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """The warning, at the first of several steps in a row whose correlation is too low; else None."""
        if METRIC not in metrics:
            return None
        before, self._disagreed = self._disagreed, disagrees(metrics[METRIC])
        if before or not self._disagreed:
            return None
        return (
            f"{WARNING}in step {step} the probabilities of sampler and trainer correlate by {metrics[METRIC]:.2f}, "
            f"expected at least {THRESHOLD}: vLLM computes with other weights than the trainer, so the rollouts are "
            "not the trained model's. Stop it, delete the checkpoints saved since, and run the same command, which "
            f"goes on from the last checkpoint with new engines; {METRIC} in MLflow has every step"
        )


def disagrees(correlation: float) -> bool:
    """Whether a step's correlation is too low; one that is no number is."""
    return not correlation >= THRESHOLD
