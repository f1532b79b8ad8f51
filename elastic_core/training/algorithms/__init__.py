"""Algorithms of training, one per file: how rollouts of a problem are made, and what advantage each token gets."""

from collections.abc import Callable, Sequence

import numpy as np

from elastic_core.training.algorithms import anytime, reo

THINKING_ADVANTAGES: dict[str, Callable[[np.ndarray, Sequence[float]], np.ndarray]] = {
    "anytime": anytime.thinking_advantages,
    "reo": reo.thinking_advantages,
}
"""By `train.algorithm`, where thoughts are cut: advantages (thoughts, segments) from scores (thoughts, cuts) and the
cuts' weights."""
