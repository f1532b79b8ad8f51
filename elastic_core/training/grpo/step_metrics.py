"""Metrics of training steps: each step once in the job's MLflow run, and warnings of a training that goes wrong.

verl's logger drops a step after three failures, without a word, and sends one again when a resumed run repeats it.
What MLflow has of a repeated step stays: on a CPU it is the same, on a GPU another draw (`seeds.rollout_seed`).
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from elastic_core.errors import UserError
from elastic_core.training.checkpoints import Validation

if TYPE_CHECKING:
    from mlflow import MlflowClient

STEP = "training/global_step"
GENERATED = "training/generated_tokens"
"""Sampled in training rollouts since the first step."""
EVERY_STEP = (
    *(STEP, "critic/score/mean", "response_length/mean"),
    *("rollout/forced", "rollout/think_tokens", "rollout/solution_tokens"),
)
"""Metrics of Elastic Reasoning's Figure 3, in addition to the accuracy of validation."""
_ACCURACY = re.compile(r"val-core/.+/acc/mean(@|_at_)(?P<samples>\d+)")
"""verl's avg@k of a validation set; MLflow takes no @."""
WARNING = "training warning: "
"""How the line begins, for readers of the log."""
IDLE_STEPS = 5
"""Steps without a gradient that have to pass in a row: one or two happen to any small batch."""
AGREEMENT = "training/rollout_actor_probs_pearson_corr"
"""verl's name of the correlation; not there where the sampler's log-probabilities are taken as the trainer's."""
LEAST_AGREEMENT = 0.9
"""Our own threshold: far below what rounding in bfloat16 leaves, far above what other weights leave."""


class StepMetrics:
    """Replaces verl's MLflow logger. `rename` turns verl's name of a metric into one that MLflow takes; MLflow
    may be away for `patience_seconds`."""

    def __init__(
        self, client: "MlflowClient", run_id: str, rename: Callable[[str], str], patience_seconds: float = 600
    ) -> None:
        self._client, self._run_id, self._rename = client, run_id, rename
        self._patience_seconds = patience_seconds
        self._recorded = set(_steps(client, run_id, STEP))

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Send the metrics of one step, unless MLflow has them. Raises UserError when it stayed away."""
        import tenacity
        from mlflow.entities import Metric
        from mlflow.exceptions import MlflowException

        if step in self._recorded:
            return
        # With one time stamp for all attempts, metrics that arrived although the answer was lost are stored once.
        now = int(time.time() * 1000)
        # verl gives the validation before the first step no number.
        values = {STEP: step, **data}
        metrics = [Metric(self._rename(name), float(value), now, step) for name, value in values.items()]
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((MlflowException, OSError)),
            stop=tenacity.stop_after_delay(self._patience_seconds),
            wait=tenacity.wait_fixed(1),
            reraise=True,
        )
        try:
            retrying(self._client.log_batch, self._run_id, metrics=metrics)
        except (MlflowException, OSError) as error:
            raise UserError(
                f"MLflow took no metrics for {self._patience_seconds:g} s ({error}); start it and run the "
                "same command, which goes on from the last checkpoint"
            ) from error
        self._recorded.add(step)

    def finish(self) -> None:
        """verl calls it at the end. The caller that began the run ends it."""


def validation_of(metrics: Mapping[str, Any]) -> Validation | None:
    """Accuracy over validation sets among verl's metrics of a step; None when the step was not validated."""
    found = [match for name in metrics if (match := _ACCURACY.fullmatch(name))]
    if not found:
        return None
    accuracies = [float(metrics[match[0]]) for match in found]
    return Validation(sum(accuracies) / len(found), max(int(match["samples"]) for match in found))


def check_metrics(
    client: "MlflowClient", run_id: str, steps: int, validate_every: int, validate_first: bool = False
) -> None:
    """Raises RuntimeError, with the metric and the steps, when MLflow lacks a step or has one twice. `validate_first`:
    the initial model was validated too, as step 0."""
    expected = list(range(1, steps + 1))
    before = [0] if validate_every and validate_first else []
    for name in EVERY_STEP:
        _check_steps(client, run_id, name, before + expected if name == STEP else expected)
    if validate_every:
        validated = before + [step for step in expected if step % validate_every == 0 or step == steps]
        names = [name for name in client.get_run(run_id).data.metrics if _ACCURACY.fullmatch(name)]
        for name in names or ["val-core"]:
            _check_steps(client, run_id, name, validated)


def _check_steps(client: "MlflowClient", run_id: str, name: str, expected: list[int]) -> None:
    found = _steps(client, run_id, name)
    if found != expected:
        missing = sorted(set(expected) - set(found))
        twice = sorted({step for step in found if found.count(step) > 1})
        raise RuntimeError(f"MLflow run {run_id}: {name} lacks steps {missing}, has steps {twice} twice")


def _steps(client: "MlflowClient", run_id: str, name: str) -> list[int]:
    return sorted(metric.step for metric in client.get_metric_history(run_id, name))


class NothingLearned:
    """Warns of steps with equal rewards in every group: their advantages are 0, and teach nothing."""

    def __init__(self) -> None:
        self._idle = 0

    def update(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """The warning, at the last of `IDLE_STEPS` idle steps in a row; else None. `metrics` are the step's, with
        verl's `critic/score/mean` and all of `rollout/…`."""
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
    stop = "Stop it unless that changes: the problems are"
    if answered == 0 and closed > 0:
        return (
            "Stop it: fine-tune the model first to end with its answer (warm_start.sft), or give solutions more tokens"
        )
    if answered == 0:
        return (
            "Stop it: the model neither ends its thoughts nor answers; fine-tune it first (warm_start.sft), or give "
            "both phases more tokens (train.budget)"
        )
    if accuracy == 0:
        return f"{stop} too hard for this model; take easier ones, or a better base"
    if accuracy == 1:
        return f"{stop} too easy for this model; take harder ones"
    return "Take more rollouts of each problem (train.group_size), or draw them at a higher train.temperature"


class EndUnlearned:
    """Correctness alone does not pay for ending a solution: SmolLM2-135M ended none any more after 36 steps under
    96+32, and without a budget went on to other answers."""

    def __init__(self) -> None:
        self._warned = False

    def update(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """The warning, at the first step with answers in its rollouts and solutions that the budget cut; else None."""
        cut, answered = metrics["rollout/solution_cut"], metrics["rollout/answered"]
        if self._warned or cut < 0.5 or answered < 0.9:
            return None
        self._warned = True
        return (
            f"{WARNING}in step {step} the budget cut {cut:.0%} of the solutions, though {answered:.0%} of the rollouts "
            "hold an answer: the model unlearns to stop after it. Stop the training and pay only for solutions that "
            "the model ends (train.reward = finished), or give solutions more tokens if their answers come last"
        )


class SamplerAgreement:
    """At every step verl correlates the sampler's probability of each token with the trainer's. Different rounding
    leaves a correlation near 1. An engine that woke with stale or broken weights (sleeping at level 2 discards them:
    verl #7904) samples tokens that the trainer finds unlikely."""

    def __init__(self) -> None:
        self._disagreed = False

    def update(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """The warning, at the first of several steps in a row with too low a correlation; else None."""
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
    """Whether a step's correlation is too low, or NaN."""
    return not correlation >= LEAST_AGREEMENT
