"""Rules that the counts of a strategy's rows obey (`Strategy.rules`), each under the words that say it.

An unlimited budget is null: a comparison with it is null, which breaks no rule.
"""

import polars as pl

from elastic_core.trajectory import ThinkFinish

Rules = dict[str, pl.Expr]

_T, _S = pl.col("think_budget"), pl.col("solution_budget")
T_AND_S = _T + _S
_THINK, _SOLUTION = pl.col("think_tokens"), pl.col("solution_tokens")
_FORCED, _FINISH = pl.col("forced_tokens"), pl.col("think_finish")
_AT_T = _THINK == _T

KEEPS_PHASES: Rules = {"the thinking keeps t": _THINK <= _T, "the solution keeps s": _SOLUTION <= _S}
FORCED_AT_T = KEEPS_PHASES | {"a thought is forced exactly at t": (_FINISH != ThinkFinish.FORCED) | _AT_T}
CLOSES_ONCE = FORCED_AT_T | {
    "a closed thought needs no forced token, but to complete a mark at t": (_FINISH != ThinkFinish.CLOSED)
    | (_FORCED == 0)
    | _AT_T.fill_null(False)
}
CLOSES_ALL = CLOSES_ONCE | {
    "with think-end forced, all of s is there": (_FINISH == ThinkFinish.CLOSED) | (_FORCED >= 1)
}
FORCES_NOTHING: Rules = {"no token is forced": (_FORCED == 0) & (_FINISH != ThinkFinish.FORCED)}


def keeps_total(limit: pl.Expr | int = T_AND_S, words: str = "t + s") -> Rules:
    """At most `limit` sampled tokens in both phases, and nothing forced."""
    return FORCES_NOTHING | {f"both phases keep {words}": (_THINK + _SOLUTION).le(limit)}
