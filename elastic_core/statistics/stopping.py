"""Stop rules replayed on a trajectory table without sampling: a sample's thought is the same at all budgets, so its
answer at every rung is known, and a rule is a fold over rows.

Rungs are the limited budgets of `SERVED`; a sample's last answer is that without a limit (`FREE`). A rule costs the row
where it stops, and every probe before: its sampled and forced tokens, and the tokens that the engine reads again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import polars as pl

from elastic_core.rewards import spelled
from elastic_core.statistics.cost import WORK
from elastic_core.statistics.estimates import seed_keys
from elastic_core.stop_rule import Stop, StopRule
from elastic_core.strategies import FREE, SERVED
from elastic_core.trajectory import ThinkFinish

CHEAP = "budget_forcing"  # The strategy that samples probes after "Final Answer:".
COLUMNS = (
    "benchmark", "problem", "sample", "strategy", "think_budget", "solution_budget", "prompt_tokens", "think_tokens",
    "forced_tokens", "solution_tokens", "think_finish", "answer", "score", "solution_logprob", *WORK,
)  # fmt: skip
"""What is read of a trajectory table."""
_SAMPLE = ["benchmark", "problem"]
REASONS = list(Stop)


class NotComparable(ValueError):
    """The rows do not hold one thought at several budgets."""


@dataclass(frozen=True)
class Probes:
    """Probes of thoughts, by sample and rung, shape (samples, rungs): the answer as a number, -1
    where there is none; the geometric mean probability of its tokens, nan where it is not known; and its `WORK`, with
    that of the thought which goes on, shape (samples, rungs, 4)."""

    answers: np.ndarray
    sure: np.ndarray
    work: np.ndarray


@dataclass(frozen=True)
class Thoughts:
    """The samples of a model, each one thought with its answer at every rung and without a limit.

    Attributes:
        rungs: thinking budgets in tokens, ascending, shape (rungs,).
        samples: benchmark, problem, sample, prompt_tokens and solution_budget of each.
        place: of each sample its problem's number, shape (samples,), and `seed` that of its training.
        names: benchmark and problem, by number.
        scores: in [0, 1], shape (samples, rungs + 1); the last column is without a limit of thinking.
        free: without any limit, shape (samples,), and `free_work` what that took, shape (samples, 4).
        work: of the row at each rung, shape (samples, rungs + 1, 4), see `WORK`.
        closed: whether the thought had ended by itself by a rung, shape (samples, rungs).
        drawn: tokens of the thought at each rung, shape (samples, rungs + 1).
        own: the answer that `separate` gives there.
        cheap: that to "Final Answer:", by its cap in tokens, as far as it was measured.
    """

    rungs: np.ndarray
    samples: pl.DataFrame
    place: np.ndarray
    seed: np.ndarray
    names: list[tuple[str, str]]
    scores: np.ndarray
    free: np.ndarray
    free_work: np.ndarray
    work: np.ndarray
    closed: np.ndarray
    drawn: np.ndarray
    own: Probes
    cheap: dict[int, Probes]

    @property
    def num_samples(self) -> int:
        return len(self.place)

    def by_problem(self, values: np.ndarray) -> np.ndarray:
        """Means over samples, shape (seeds, problems, ...), of values by sample, shape (samples, ...)."""
        sums = np.zeros((self.seed.max() + 1, len(self.names), *values.shape[1:]))
        counts = np.zeros(sums.shape[:2])
        np.add.at(sums, (self.seed, self.place), values)
        np.add.at(counts, (self.seed, self.place), 1)
        return sums / counts.reshape(*counts.shape, *[1] * (values.ndim - 1))


def read_thoughts(rows: pl.DataFrame) -> Thoughts:
    """The thoughts of one model, from rows of a trajectory table with `COLUMNS`, at the largest solution budget of
    `separate`; samples that lack a rung are left out. NotComparable with fewer than two rungs, nothing without a
    limit, or the rows of a sample are not one thought."""
    key = [*_SAMPLE, "sample", *seed_keys(rows)]
    limited = rows.filter(pl.col("think_budget").is_not_null())
    served, free = limited.filter(strategy=SERVED), rows.filter(strategy=FREE)
    solution: int | None = served["solution_budget"].max()  # type: ignore[assignment]
    served = served.filter(pl.col("solution_budget").eq_missing(solution))
    rungs = served["think_budget"].unique().sort()
    if len(rungs) < 2 or free.is_empty():
        raise NotComparable(
            f"stop rules need {SERVED} under two thinking budgets or more, and {FREE}; found {len(rungs)} budgets and "
            f"{free.height} rows of {FREE}"
        )
    whole = _complete(served, key, len(rungs)).join(_complete(free, key, 1), on=key, how="semi", nulls_equal=True)
    if len(key) > 3:  # Every training has the same problems.
        seeds_there = pl.col(key[3]).n_unique()
        whole = whole.filter(seeds_there.over(_SAMPLE) == seeds_there)
    if whole.is_empty():
        raise NotComparable(f"no sample has rows of {SERVED} at all {len(rungs)} thinking budgets and of {FREE}")
    asked = limited.filter(pl.col("think_budget").is_in(rungs.implode()), strategy=CHEAP)
    cheap = {
        cap: _of_samples(rows, whole) for (cap,), rows in asked.partition_by("solution_budget", as_dict=True).items()
    }
    ladder, last = _of_samples(served, whole), _of_samples(free, whole)
    free_scores, free_work = last["score"].to_numpy(), _work(last, (last.height, 1))[:, 0]
    # A rule limits the solution: without rows that say what comes of it, a longer one counts as wrong.
    endless = rows.filter(pl.col("think_budget").is_null(), pl.col("solution_budget").eq_missing(solution))
    endless = _of_samples(endless.filter(strategy=SERVED), whole)
    if endless.height == last.height:
        last = endless
    elif solution is not None:
        last = last.with_columns(score=pl.when(pl.col("solution_tokens") <= solution).then("score").otherwise(0.0))
    shape = whole.height, len(rungs)
    samples = last.select(key)
    names = samples.select(_SAMPLE).unique(maintain_order=True)
    place = samples.join(names.with_row_index("place"), on=_SAMPLE, maintain_order="left")["place"].to_numpy()
    seeds = samples[key[-1]].fill_null(-1).rank("dense").to_numpy() - 1 if len(key) > 3 else np.zeros(shape[0], int)
    drawn = _grid(ladder, "think_tokens", shape)
    finish = ladder["think_finish"].to_numpy().reshape(shape)
    forced = _grid(ladder, "forced_tokens", shape)
    closed = (finish == ThinkFinish.END_OF_TEXT) | ((finish == ThinkFinish.CLOSED) & (forced == 0))
    # Once closed, a thought is the same at every larger budget.
    if (closed[:, :-1] & ((drawn[:, :-1] != drawn[:, 1:]) | ~closed[:, 1:])).any():
        raise NotComparable(
            'rows of one sample are of different thoughts; expected a sweep with sharing = "memo", where they share it'
        )
    texts = chain.from_iterable(each["answer"].unique() for each in (ladder, *cheap.values()))
    codes = {answer: spelled(answer) for answer in texts}
    numbers = {text: number for number, text in enumerate(sorted(filter(None, set(codes.values()))))}
    number_of = {answer: numbers.get(text or "", -1) for answer, text in codes.items()}
    return Thoughts(
        rungs=rungs.to_numpy(),
        samples=last.select(*key, "prompt_tokens").with_columns(solution_budget=pl.lit(solution, pl.Int32)),
        place=place.astype(int),
        seed=seeds.astype(int),
        names=names.rows(),
        scores=np.column_stack([_grid(ladder, "score", shape), last["score"].to_numpy()]),
        free=free_scores,
        free_work=free_work,
        work=np.concatenate([_work(ladder, shape), _work(last, (shape[0], 1))], axis=1),
        closed=closed,
        drawn=np.column_stack([drawn, last["think_tokens"].to_numpy()]),
        own=_probes(ladder, shape, number_of),
        cheap={
            cap: _probes(rows, shape, number_of) for cap, rows in cheap.items() if cap and rows.height == ladder.height
        },
    )


def _complete(rows: pl.DataFrame, key: list[str], size: int) -> pl.DataFrame:
    """Samples with this number of rows."""
    return rows.group_by(key).len().filter(len=size).select(key)


def _of_samples(rows: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """The rows of these samples, sorted by sample and budget."""
    found = rows.join(samples, on=samples.columns, how="semi", nulls_equal=True)
    return found.sort(*samples.columns, "think_budget", nulls_last=True)


def _grid(rows: pl.DataFrame, column: str, shape: tuple[int, int]) -> np.ndarray:
    return rows[column].cast(pl.Float64).to_numpy().reshape(shape)


def _work(rows: pl.DataFrame, shape: tuple[int, int]) -> np.ndarray:
    return np.stack([_grid(rows, name, shape) for name in WORK], axis=-1)


def _probes(rows: pl.DataFrame, shape: tuple[int, int], number_of: dict[str | None, int]) -> Probes:
    answers = np.array([number_of[answer] for answer in rows["answer"]]).reshape(shape)
    before = _grid(rows, "prompt_tokens", shape) + _grid(rows, "think_tokens", shape)
    # Two turns: the probe, and the thought that goes on, which both read again what stands before them.
    parts = _grid(rows, "forced_tokens", shape), 2 * before, _grid(rows, "solution_tokens", shape), np.full(shape, 2.0)
    return Probes(answers, np.exp(_grid(rows, "solution_logprob", shape)), np.stack(parts, axis=-1))


@dataclass(frozen=True)
class Folded:
    """The end of each sample under a rule: its column of `Thoughts.scores`; the number of probes that are not the
    response; the reason, as the place in `Stop`, -1 where the thought or its limit ended; the `WORK` of those probes,
    shape (samples, 4); the score, shape (samples,); and the `WORK` of all, probes included, shape (samples, 4)."""

    column: np.ndarray
    num_probes: np.ndarray
    reason: np.ndarray
    probing: np.ndarray
    scores: np.ndarray
    work: np.ndarray


def fold(thoughts: Thoughts, rule: StopRule, rho: float | None = None, limit: int | None = None) -> Folded:
    """End every sample by a rule: `StopRule.stops`, for all samples together.

    Args:
        rho: the cost of a probe instead of its work: this share of the tokens from the rung before.
        limit: the thinking budget, a rung; None: thoughts that the rule does not stop end by themselves.

    Raises:
        NotComparable: where the table lacks a rung of the rule, or rows for its probes.
    """
    wanted = set(rule.rungs(limit if limit is not None else int(thoughts.rungs[-1]) + 1))
    if missing := sorted(wanted - set(thoughts.rungs.tolist())):
        raise NotComparable(f"{rule} probes at {missing[0]} tokens, where the table has no budget")
    probes = thoughts.own if rule.probe is None else thoughts.cheap.get(rule.probe)
    if probes is None:
        raise NotComparable(
            f"{rule} needs rows of {CHEAP} at every thinking budget with {rule.probe} tokens of solution"
        )
    if rule.sure is not None and np.isnan(probes.sure).all():
        raise NotComparable(f"{rule} needs probabilities of answers: sweep with --set sweep.logprobs=true")
    count, last = thoughts.num_samples, len(thoughts.rungs)
    column, reason = np.full(count, last), np.full(count, -1)
    num_probes, probing = np.zeros(count, int), np.zeros((count, len(WORK)))
    thinks, run = np.ones(count, bool), np.zeros(count, int)
    before, previous = np.full(count, -1), 0
    seen: list[np.ndarray] = []
    twice, never = np.zeros(count, bool), np.zeros(count, bool)
    for place, rung in enumerate(thoughts.rungs.tolist()):
        ended = thinks & thoughts.closed[:, place]
        column[ended], thinks = place, thinks & ~ended
        if rung == limit:
            column[thinks], thinks = place, never
        if rung not in wanted:
            continue
        answer = probes.answers[:, place]
        given = answer >= 0
        run = np.where(given & (answer == before), run + 1, given.astype(int))
        twice |= given & np.any([answer == other for other in seen], axis=0) if seen else False
        seen.append(np.where(given, answer, -2))
        before = answer
        agreed = never if rule.agree is None else run >= rule.agree
        sure = never if rule.sure is None else given & (probes.sure[:, place] >= rule.sure / 100)
        gave_up = never if rule.give_up is None or rung < rule.give_up else ~twice
        stops = thinks & (agreed | sure | gave_up)
        reason[stops] = np.select([agreed, sure], [0, 1], 2)[stops]
        column[stops] = place
        # A last probe by `SERVED` is the response, and in its row already.
        paid = thinks & ~stops if rule.probe is None else thinks
        work = probes.work[:, place] if rho is None else np.array([0, 0, rho * (rung - previous), 0])
        probing += np.where(paid[:, None], work, 0)
        num_probes += paid
        thinks, previous = thinks & ~stops, rung
    end = np.arange(count), column
    return Folded(column, num_probes, reason, probing, thoughts.scores[end], thoughts.work[end] + probing)


def stopped_rows(thoughts: Thoughts, rule: StopRule) -> pl.DataFrame:
    """Rows of the cell that a rule makes of the samples: their columns, strategy, think_budget (null: without a limit),
    score and `WORK`."""
    folded = fold(thoughts, rule)
    return thoughts.samples.with_columns(
        strategy=pl.lit(str(rule)),
        think_budget=pl.lit(None, pl.Int32),
        score=folded.scores,
        **{name: pl.Series(folded.work[:, number]).cast(pl.Int64) for number, name in enumerate(WORK)},
    )


def certifiable(thoughts: Thoughts) -> list[StopRule]:
    """Rules that are certified (`elastic_core.statistics.certificates`): 2 or 3 answers in a row, from each rung on."""
    rungs = probed(thoughts)
    return [rule_at(thoughts, agree=agree, start=start) for agree in (2, 3) for start in rungs[: 1 - agree]]


def probed(thoughts: Thoughts) -> list[int]:
    """Rungs at which a thought has begun."""
    return [rung for rung in thoughts.rungs.tolist() if rung > 0]


def rule_at(
    thoughts: Thoughts,
    every: int = 1,
    start: int = 0,
    agree: int | None = None,
    sure: int | None = None,
    give_up: int | None = None,
) -> StopRule:
    """A rule that probes at the rungs from `start` on, or at every second one, in the shorter one of both forms."""
    rungs = [rung for rung in probed(thoughts) if rung >= start][::every]
    rule = StopRule(agree, sure, give_up, at=tuple(rungs))
    step = rungs[0] if len(rungs) == 1 else rungs[1] - rungs[0]
    if rungs == list(range(rungs[0], rungs[-1] + 1, step)) and rungs[0] % step == 0:
        return replace(rule, at=(), every=step, start=rungs[0] if rungs[0] > step else 0, end=rungs[-1])
    return rule
