"""Stop rules against fixed budgets at equal cost, responses without a budget, and the best of each sample.

At equal cost a rule is compared with the *mixture* of two neighbours on the concave hull of fixed budgets, one picked
at random for each response. That hull is the best of these rows, partly by luck, to the rule's disadvantage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from elastic_core.statistics.cost import CostModel, on_frontier
from elastic_core.statistics.estimates import ratio_of_means
from elastic_core.statistics.frontier import hull
from elastic_core.statistics.intervals import simultaneous
from elastic_core.statistics.stopping import (
    REASONS,
    Folded,
    Probes,
    Thoughts,
    certifiable,
    fold,
    probed,
    rule_at,
)
from elastic_core.stop_rule import StopRule


def rules_of(thoughts: Thoughts) -> list[StopRule]:
    """The rules that are tried on a table: 2 and 3 answers in a row from every rung on, and from the first rung every
    second one; giving up at each rung; where they were measured, cheap probes, and sure answers at five levels."""
    agreeing = certifiable(thoughts)
    found = [*agreeing, *(rule_at(thoughts, agree=agree, every=2) for agree in (2, 3))]
    found += [rule_at(thoughts, agree=2, give_up=rung) for rung in probed(thoughts)]
    found += [replace(rule, probe=cap) for cap in thoughts.cheap for rule in agreeing]
    if not np.isnan(thoughts.own.sure).all():
        sure = [rule_at(thoughts, sure=percent) for percent in (50, 70, 90, 95, 99)]
        found += [*sure, *(replace(rule, agree=2) for rule in sure)]
    return list(dict.fromkeys(found))


BUDGETED, RULED, ORACLE = "budget", "rule", "oracle"  # Kinds of rows of `outcomes`.
_ESTIMATES = ("saved", "difference", "gain")
_SHARES = tuple(str(reason).replace(" ", "_") for reason in REASONS)
OUTCOMES = pl.Schema(
    {
        "kind": pl.String(),
        "rule": pl.String(),
        "budget": pl.Int64(),
        **dict.fromkeys(("accuracy", "cost"), pl.Float64()),
        **{f"{name}{end}": pl.Float64() for name in _ESTIMATES for end in ("", "_low", "_high")},
        **dict.fromkeys(("probes", "stopped", *_SHARES, "seconds", "seconds_beside", "wasted"), pl.Float64()),
        **dict.fromkeys(("num_problems", "num_samples", "num_trajectories"), pl.Int64()),
    }
)
"""Of `outcomes`."""


def outcomes(
    thoughts: Thoughts,
    rules: Sequence[StopRule],
    model: CostModel,
    rho: float | None = None,
    latency: CostModel | None = None,
) -> pl.DataFrame:
    """Every fixed budget and every rule, each with accuracy and cost; the share `saved` of a response without a budget;
    the `difference` in accuracy from that; and the `gain` of rules over the mixture of fixed budgets at equal cost.
    Differences are paired by problem, in [-1, 1]; the intervals of all rules' gains hold together, and so do those of
    all differences. One row more, the oracle, ends each sample at the cheapest of its best answers.

    Columns in schema `OUTCOMES`, cheapest first: `budget` is null of rules and without a budget; `probes` is the mean
    number of those that are not the response; `stopped` the share of samples that a rule ended, and shares by reason.
    With `latency`, the seconds of work, `seconds` of a response that waits for its probes, and
    `seconds_beside` where it goes on during them; then `wasted` tokens are sampled in vain on average.
    """
    scored, fixed = fixed_scores(thoughts), fixed_costs(thoughts, model)
    free, free_cost = thoughts.by_problem(scored[:, -1]), thoughts.by_problem(fixed[:, -1])
    found: list[dict[str, Any]] = []
    sides: list[tuple[np.ndarray, np.ndarray]] = []
    for place, rung in enumerate([*thoughts.rungs.tolist(), None]):
        row = {"kind": BUDGETED, "budget": rung, "gain": None}
        if latency is not None:
            row |= dict.fromkeys(("seconds", "seconds_beside"), float(fixed_costs(thoughts, latency)[:, place].mean()))
        found.append(row)
        sides.append((scored[:, place], fixed[:, place]))
    for rule in rules:
        folded = fold(thoughts, rule, rho)
        shares = {name: float((folded.reason == number).mean()) for number, name in enumerate(_SHARES)}
        probes = float(folded.num_probes.mean())
        row = {"kind": RULED, "rule": str(rule), "probes": probes, "stopped": sum(shares.values()), **shares}
        if latency is not None:
            row["seconds"] = float((folded.work @ np.array(latency.prices)).mean())
            row["seconds_beside"] = float(((folded.work - folded.probing) @ np.array(latency.prices)).mean())
            row["wasted"] = float(_wasted(thoughts, folded).mean())
        found.append(row)
        sides.append((folded.scores, folded.work @ np.array(model.prices)))
    best = scored.max(axis=1)
    found.append({"kind": ORACLE})
    sides.append((best, np.where(scored == best[:, None], fixed, np.inf).min(axis=1)))
    means = [(thoughts.by_problem(scores), thoughts.by_problem(costs)) for scores, costs in sides]
    num = thoughts.num_samples
    differences = simultaneous([scores - free for scores, _ in means], [2 * num] * len(means))
    for row, (scores, costs), difference in zip(found, means, differences, strict=True):
        ratio, low, high = ratio_of_means(costs, free_cost)
        row |= {"accuracy": float(scores.mean()), "cost": float(costs.mean())}
        row |= {"saved": 1 - ratio, "saved_low": 1 - high, "saved_high": 1 - low, **difference.columns("difference")}
        row |= {"num_problems": len(thoughts.names), "num_trajectories": num, "num_samples": num // len(thoughts.names)}
    ruled = [(row, scores) for row, (scores, _) in zip(found, means, strict=True) if row["kind"] == RULED]
    mixed = [scores - thoughts.by_problem(mixture(thoughts, model, row["cost"])) for row, scores in ruled]
    for (row, _), gain in zip(ruled, simultaneous(mixed, [2 * num] * len(mixed)) if mixed else [], strict=True):
        row |= gain.columns("gain")
    return pl.DataFrame(found, OUTCOMES, orient="row").sort("cost", "rule", nulls_last=True)


def _wasted(thoughts: Thoughts, folded: Folded) -> np.ndarray:
    """Tokens of each thought that are drawn while its last probe is, and of no use."""
    at = np.arange(thoughts.num_samples), folded.column
    further = thoughts.drawn[:, -1] - thoughts.drawn[at]
    probe = np.column_stack([thoughts.own.work[..., 2], np.zeros(thoughts.num_samples)])[at]
    return np.where(folded.reason >= 0, np.minimum(further, probe), 0)


def best_rules(found: pl.DataFrame) -> pl.DataFrame:
    """The rules of `outcomes` that no other rule beats in both accuracy and cost, cheapest first; of equals the one
    with the fewest probes."""
    rules = found.filter(kind=RULED).sort("cost", "probes").unique(["accuracy", "cost"], keep="first")
    return rules.sort("cost").filter(on_frontier("cost", "accuracy"))


def mixture(thoughts: Thoughts, model: CostModel, cost: float) -> np.ndarray:
    """Scores by sample of the mixture of fixed budgets with this mean cost: by linear interpolation on the concave hull
    of accuracy over cost, between its cheapest and its dearest."""
    scores = fixed_scores(thoughts)
    costs = thoughts.by_problem(fixed_costs(thoughts, model)).mean(axis=(0, 1))
    corners = hull(costs.tolist(), thoughts.by_problem(scores).mean(axis=(0, 1)).tolist())
    shares = [np.interp(cost, costs[corners], of_corner) for of_corner in np.eye(len(corners))]
    return scores[:, corners] @ np.array(shares)


def probe_price(thoughts: Thoughts, probes: Probes, model: CostModel) -> float:
    """The measured cost of a probe in rungs (ρ): its mean cost over that of the tokens between two rungs."""
    asked = ~thoughts.closed
    if not asked.any():
        return float("nan")
    steps = np.broadcast_to(np.diff(thoughts.rungs, prepend=0), asked.shape)
    return float((probes.work @ np.array(model.prices))[asked].mean() / (steps[asked].mean() * model.output))


def fixed_costs(thoughts: Thoughts, model: CostModel) -> np.ndarray:
    """Costs of each sample's row at each rung and without any limit, shape (samples, rungs + 1)."""
    return np.concatenate([thoughts.work[:, :-1], thoughts.free_work[:, None]], axis=1) @ np.array(model.prices)


def fixed_scores(thoughts: Thoughts) -> np.ndarray:
    """Scores, in the shape of `fixed_costs`."""
    return np.column_stack([thoughts.scores[:, :-1], thoughts.free])
