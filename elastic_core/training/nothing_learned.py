"""Says it when training has nothing to learn from, while there are still steps to save.

A rollout's advantage is how its reward differs from those of the same problem. Where all are equal it is 0, and so is
the step's policy gradient.
"""

from collections.abc import Mapping

STEPS = 5
"""That have to pass in a row: one or two happen to any small batch."""
WARNING = "training warning: "
"""How the line begins, for whoever follows the log."""


class NothingLearned:
    """Looks at the metrics of one step after the other."""

    def __init__(self, steps: int = STEPS) -> None:
        self._steps = steps
        self._idle = 0

    def look(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """The warning, once for as many idle steps in a row; else None.

        Args:
            metrics: of the step, with verl's `critic/score/mean` and all of `rollout/…`.
        """
        idle = metrics["rollout/groups_without_variance"] == metrics["rollout/groups"]
        self._idle = self._idle + 1 if idle else 0
        if self._idle != self._steps:
            return None
        closed, answered = 1 - metrics["rollout/forced"], metrics["rollout/answered"]
        reward = metrics["critic/score/mean"]
        return (
            f"{WARNING}nothing was learned in steps {step - self._steps + 1} to {step}: all rollouts of every problem "
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
