"""What a trajectory table says, with 95 % intervals that know samples of one problem are not independent.

A problem is a cluster, and counts once however often it was sampled (`problems`). Functions that take `rows` see those
of one cell, or of one curve, on one benchmark; those that take `problems` see one cell's `problem_table`, so that a
whole table is grouped once. Every estimate says on how many problems and trajectories it rests.

- `accuracy`: avg@k with Wilson's interval at the effective sample size, paired differences by MOVER;
- `at_k`: unbiased pass@k, maj@k;
- `responses`: lengths in tokens, closed thoughts, whether there are answers at all;
- `curves`: area under accuracy over log tokens, the log-linear law;
- `budgets`: what the next tokens buy; the cheapest budget that gives up hardly any accuracy;
- `thinking`: what each problem needs, and the thinking that went past it or could not help;
- `intervals`: where the intervals come from.
"""

from elastic_core.statistics.accuracy import (
    avg_at_k,
    mean_score,
    paired_difference,
    paired_differences,
    score_difference,
)
from elastic_core.statistics.at_k import mean_rate, problem_maj_at_k, problem_pass_at_k
from elastic_core.statistics.budgets import MARGIN, budget_advice, marginal_accuracy
from elastic_core.statistics.curves import (
    MIN_LAW_CELLS,
    Curve,
    LogLaw,
    area,
    area_difference,
    budget_law,
    log_law,
    overlap,
    read_curve,
)
from elastic_core.statistics.intervals import Z95, Estimate, bootstrap, mean_interval, t95, wilson
from elastic_core.statistics.problems import FREE, check_scores, common_problems, problem_table
from elastic_core.statistics.responses import (
    Readable,
    forced_close,
    length_error,
    mean_tokens,
    paired_ratio,
    readable,
    sampled_tokens,
    unreadable,
)
from elastic_core.statistics.thinking import SUFFICIENT, thinking_spent

__all__ = [
    "FREE",
    "MARGIN",
    "MIN_LAW_CELLS",
    "SUFFICIENT",
    "Z95",
    "Curve",
    "Estimate",
    "LogLaw",
    "Readable",
    "area",
    "area_difference",
    "avg_at_k",
    "bootstrap",
    "budget_advice",
    "budget_law",
    "check_scores",
    "common_problems",
    "forced_close",
    "length_error",
    "log_law",
    "marginal_accuracy",
    "mean_interval",
    "mean_rate",
    "mean_score",
    "mean_tokens",
    "overlap",
    "paired_difference",
    "paired_differences",
    "paired_ratio",
    "problem_maj_at_k",
    "problem_pass_at_k",
    "problem_table",
    "read_curve",
    "readable",
    "sampled_tokens",
    "score_difference",
    "t95",
    "thinking_spent",
    "unreadable",
    "wilson",
]
