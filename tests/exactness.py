"""The rules that every row of a trajectory table obeys, to the token."""

from __future__ import annotations

import polars as pl

from elastic_core.strategies.l1 import MAX_CAP

_THINK, _SOLUTION, _FORCED = pl.col("think_tokens"), pl.col("solution_tokens"), pl.col("forced_tokens")
_T, _S = pl.col("think_budget"), pl.col("solution_budget")
_STRATEGY = pl.col("strategy")
_GUIDED = _STRATEGY == "reasonflux_zero"
_BY_PHASE = _GUIDED | _STRATEGY.str.starts_with("separate") | _STRATEGY.str.starts_with("budget_forcing")

RULES = {
    "tokens of both phases and forced ones are the response": pl.col("response_ids").list.len()
    == _THINK + _SOLUTION + _FORCED,
    "a flag for every token": pl.col("forced").list.len() == pl.col("response_ids").list.len(),
    "forced tokens are those with a flag": pl.col("forced").list.sum() == _FORCED,
    "thinking keeps t": ~_BY_PHASE | _T.is_null() | (_THINK <= _T),
    "the solution keeps s": ~_BY_PHASE | _S.is_null() | (_SOLUTION <= _S),
    "vanilla keeps t + s": (_STRATEGY != "vanilla") | (_THINK + _SOLUTION <= _T + _S),
    "L1-Exact keeps 2 (t + s)": (_STRATEGY != "l1_exact") | (_THINK + _SOLUTION <= 2 * (_T + _S)),
    "L1-Max keeps its cap": (_STRATEGY != "l1_max") | (_THINK + _SOLUTION <= MAX_CAP),
    "only strategies that close thoughts force tokens": _BY_PHASE | (_FORCED == 0),
    "a closed thought needs no forced token": (pl.col("think_finish") != "closed")
    | (_FORCED == 0)
    | _STRATEGY.str.contains("wait")
    | _GUIDED,
    "a thought is forced exactly at t": (pl.col("think_finish") != "forced")
    | _STRATEGY.str.contains("wait")
    | _T.is_null()
    | (_THINK == _T),
    "with think-end forced, all of s is there": ~_STRATEGY.is_in(["separate", "separate_native"])
    | (pl.col("think_finish") == "closed")
    | (_FORCED == 1),
    "the navigator's tokens are a part of the thinking": pl.col("navigator_tokens").is_between(0, _THINK),
    "only a conversation has turns": (pl.col("turns").list.len() > 0) == _GUIDED,
    "a score in [0, 1]": pl.col("score").is_between(0, 1),
}


def broken_rules(rows: pl.DataFrame) -> dict[str, int]:
    """Rule → number of rows that break it. A null budget is unlimited and breaks nothing."""
    counts = {name: rows.filter(~rule.fill_null(True)).height for name, rule in RULES.items()}
    return {name: count for name, count in counts.items() if count}
