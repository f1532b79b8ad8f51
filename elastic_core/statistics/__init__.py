"""What a trajectory table says, with 95 % intervals that know samples of one problem are not independent.

A problem is a cluster, and counts once however often it was sampled (`problems`). Functions that take `rows` see those
of one cell, or of one curve, on one benchmark; those that take `problems` see one cell's `problem_table`, so that a
whole table is grouped once. Every estimate says on how many problems and trajectories it rests.

- `accuracy`: avg@k with Wilson's interval at the effective sample size, paired differences by MOVER;
- `at_k`: unbiased pass@k, maj@k;
- `lengths`: tokens by phase, forced fraction, signed error of length, paired ratios;
- `curves`: area under accuracy over log tokens, the log-linear law;
- `comparisons`: paired differences for a whole table;
- `marginal`: what the next tokens buy; `advice`: the cheapest budget that gives up hardly any accuracy;
- `thinking`: what each problem needs, and the thinking that went past it or could not help;
- `readable`: whether there are answers and closed thoughts at all;
- `intervals`, `resampling`: where the intervals come from.
"""

from elastic_core.statistics.accuracy import avg_at_k, mean_score, paired_difference, score_difference
from elastic_core.statistics.advice import MARGIN, budget_advice
from elastic_core.statistics.at_k import maj_at_k, mean_rate, pass_at_k, problem_maj_at_k, problem_pass_at_k
from elastic_core.statistics.comparisons import paired_differences
from elastic_core.statistics.curves import (
    MIN_LAW_CELLS,
    Curve,
    LogLaw,
    area,
    area_difference,
    log_law,
    overlap,
    read_curve,
)
from elastic_core.statistics.intervals import Z95, Estimate, mean_interval, t95, wilson
from elastic_core.statistics.lengths import (
    PhaseTokens,
    forced_close,
    forced_fraction,
    length_error,
    mean_tokens,
    paired_ratio,
    sampled_tokens,
    tokens_by_phase,
)
from elastic_core.statistics.marginal import marginal_accuracy
from elastic_core.statistics.problems import check_scores, problem_means, problem_table
from elastic_core.statistics.readable import Readable, readable, unreadable
from elastic_core.statistics.resampling import bootstrap
from elastic_core.statistics.thinking import SUFFICIENT, sufficient_budgets, thinking_spent

__all__ = [
    "MARGIN",
    "MIN_LAW_CELLS",
    "SUFFICIENT",
    "Z95",
    "Curve",
    "Estimate",
    "LogLaw",
    "PhaseTokens",
    "Readable",
    "area",
    "area_difference",
    "avg_at_k",
    "bootstrap",
    "budget_advice",
    "check_scores",
    "forced_close",
    "forced_fraction",
    "length_error",
    "log_law",
    "maj_at_k",
    "marginal_accuracy",
    "mean_interval",
    "mean_rate",
    "mean_score",
    "mean_tokens",
    "overlap",
    "paired_difference",
    "paired_differences",
    "paired_ratio",
    "pass_at_k",
    "problem_maj_at_k",
    "problem_means",
    "problem_pass_at_k",
    "problem_table",
    "read_curve",
    "readable",
    "sampled_tokens",
    "score_difference",
    "sufficient_budgets",
    "t95",
    "thinking_spent",
    "tokens_by_phase",
    "unreadable",
    "wilson",
]
