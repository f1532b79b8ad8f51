"""Rows of a trajectory table that statistics may use (`checked_rows`): those that obey its rules and contradict
neither each other nor the manifest, of samples that every problem has (`whole_samples`).

An unfinished sweep has the samples that ended first, and short responses end first. So a cell counts the samples that
all problems have, up to the first one that a problem lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import polars as pl

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.errors import UserError
from elastic_core.rewards.truth import UNANSWERED, GradeStatus
from elastic_core.seeds import cell_seed, sample_seed
from elastic_core.statistics.cost import with_work
from elastic_core.statistics.estimates import without_seed
from elastic_core.strategies import STRATEGIES, Strategy
from elastic_core.strategies.base import Rules
from elastic_core.sweep.grid import SWAP
from elastic_core.sweep.table import Manifest
from elastic_core.trajectory import BUDGET, CELL, KEY, SolutionFinish

Problems = Mapping[tuple[str, str], Problem]  # By benchmark and id.

_LEAST_COPIED = 100  # Rows from which on it is said of two checkpoints that they agree in all.
_PROBLEM = ["benchmark", "problem"]
_ANSWER, _STATUS, _SCORE, _WEIGHTS = map(pl.col, ("answer", "grade_status", "score", "model_fingerprint"))
_THINK, _FORCED, _SOLUTION = (pl.col(f"{name}_tokens") for name in ("think", "forced", "solution"))
_LONG = {
    "_ids": pl.col("response_ids").list.len(),
    "_flags": pl.col("forced").list.len(),
    "_marked": pl.col("forced").list.sum(),
    "_unanswered": _ANSWER.is_null(),
    # Of one line: a program has several, and may be right by chance.
    "_answer": pl.when(~_ANSWER.str.contains("\n", literal=True)).then(_ANSWER.hash()),
}
"""What is looked at of columns that stay on disk."""
_IDS, _FLAGS, _GRADED = pl.col("_ids"), pl.col("_flags"), pl.when(_STATUS.is_in([*GradeStatus]))
_DECIDED = pl.when(_STATUS.is_in([GradeStatus.CORRECT, GradeStatus.WRONG]), pl.col("_answer").is_not_null())
_RIGHT = _STATUS == GradeStatus.CORRECT
_BEGUN = pl.col("solution_finish") != SolutionFinish.NOT_APPLICABLE


def _alike(value: pl.Expr, *columns: str | pl.Expr) -> pl.Expr:
    """Whether rows that are alike in some columns are so in a value."""
    return value.min().over(columns) == value


_EVERY_ROW: Rules = {
    "the navigator's tokens are among the thinking's": pl.col("navigator_tokens").is_between(0, "think_tokens"),
    "no count is negative": pl.min_horizontal("prompt_tokens", _THINK, _FORCED, _SOLUTION) >= 0,
    "the response has the tokens that are counted": pl.coalesce(_IDS, _FLAGS).eq(_THINK + _FORCED + _SOLUTION),
    "each of its tokens is marked as forced or not": _IDS.eq(_FLAGS),
    "the forced tokens are those that are marked": pl.col("_marked").eq(_FORCED),
    # Behind a chat API, tokens that the server does not count as thinking are the solution's.
    "a solution that was not begun has no tokens": _BEGUN | _IDS.is_null() | _SOLUTION.eq(0),
    "the score is in [0, 1]": _SCORE.is_between(0, 1).fill_null(False),
    "the score as published is 0 or 1": pl.col("published_score").is_in([0.0, 1.0]),
    "the score is 1 for what is correct, else 0": _GRADED.then(_RIGHT.cast(pl.Float64) == _SCORE),
    "what was graded has an answer, and nothing else": _GRADED.then(pl.col("_unanswered") == _STATUS.is_in(UNANSWERED)),
    "an answer to a problem has one score, else data regrade": _alike(_DECIDED.then(_SCORE), *_PROBLEM, "_answer"),
    "a cell asks a problem by one prompt": _alike(pl.when(_IDS >= 0).then("prompt_tokens"), *CELL, "problem"),
    "a model is one checkpoint": _alike(_WEIGHTS, "model"),
    "a model runs on one engine": _alike(pl.col("engine_fingerprint"), "model"),
}


def checked_rows(
    rows: pl.LazyFrame,
    columns: Iterable[str | pl.Expr],
    table: object,
    manifest: Manifest | None = None,
    problems: Problems | None = None,
) -> pl.DataFrame:
    """Columns, `KEY` among them, of a table's rows; `WORK` is counted if requested. If some problem has a cluster,
    there is the column cluster too: a problem without one is one by itself. Raises as `check_rows`."""
    rows, known = with_work(rows), problems or {}
    names = rows.select(*columns).collect_schema().names()
    looked_at = {"seed"}.union(*(holds.meta.root_names() for holds in _EVERY_ROW.values()))
    found = rows.select(*columns, *looked_at.difference(names, _LONG), **_LONG).collect(engine="streaming")
    check_rows(found, table, manifest, known)
    if not any(each.cluster for each in known.values()):
        return found.select(names)
    clusters = [(*key, each.cluster or each.id) for key, each in known.items()]
    of = pl.DataFrame(clusters, dict.fromkeys([*_PROBLEM, "cluster"], pl.String), orient="row")
    return found.select(names).join(of, on=_PROBLEM, how="left", maintain_order="left")


def check_rows(
    rows: pl.DataFrame, table: object, manifest: Manifest | None = None, problems: Problems | None = None
) -> None:
    """Check that keys are unique, that no row breaks a rule, and that none contradicts another one, the manifest or the
    benchmarks' problems, as far as there are these. A UserError names the table, the rule and the first such row."""
    if rows.n_unique(KEY) < rows.height:
        repeated = rows.filter(pl.struct(KEY).is_duplicated())
        times = repeated.select(KEY).join(repeated.select(KEY).head(1), on=KEY, how="semi", nulls_equal=True).height
        raise UserError(f"{table}: a trajectory counts once, found {_row(repeated)} {times} times; {_ADVICE}")
    rows, rules = (rows, Rules()) if manifest is None else _of_manifest(rows, manifest)
    for broken in broken_rules(rows, rules=_EVERY_ROW | rules).values():
        raise UserError(f"{table}: {broken}; {_ADVICE}")
    known, measured = problems or {}, {benchmark for benchmark, _ in problems or ()}
    for key in sorted(rows.select(_PROBLEM).unique().iter_rows()):
        if key[0] in measured and key not in known:
            raise UserError(f"{table}: {key[0]} has no problem {key[1]}, of which there are rows; {_ADVICE}")


def _of_manifest(rows: pl.DataFrame, manifest: Manifest) -> tuple[pl.DataFrame, Rules]:
    """Rules that a manifest makes, and rows with the seeds that it gives them."""
    # A store by itself calls models by their fingerprints.
    known = {**{each: each for each in manifest.models.values()}, **manifest.models}
    engines = {known.get(name, name): engine for name, engine in manifest.engines.items()}
    parts = {name: [known.get(each) for each in name.split(SWAP)] for name in rows["model"].unique()}
    weights = {name: None if None in found else SWAP.join(map(str, found)) for name, found in parts.items()}
    engine = {name: engines.get(str(found[0])) for name, found in parts.items()}
    by_model = partial(pl.col("model").replace_strict, return_dtype=pl.String)
    rules = {
        "its checkpoint is the manifest's": _WEIGHTS.eq(by_model(weights)),
        "its engine is the manifest's": pl.col("engine_fingerprint").eq(by_model(engine)),
    }
    if (seed := manifest.settings.get("seed")) is None:
        return rows, rules
    apart = ["strategy", *BUDGET] if manifest.settings.get("sharing") == "independent" else []
    drawn = rows.select(*_PROBLEM, "sample", *apart).unique()
    seeds = [sample_seed(seed, *row[:3]) for row in drawn.iter_rows()]
    if apart:
        cells = drawn.select(apart).iter_rows()
        seeds = [cell_seed(each, name, str(Budget(*of))) for each, (name, *of) in zip(seeds, cells, strict=True)]
    seeded = drawn.with_columns(_seed=pl.Series(seeds, dtype=pl.Int64))
    rows = rows.join(seeded, on=drawn.columns, how="left", nulls_equal=True, maintain_order="left")
    return rows, rules | {"its seed is the sweep's, for its problem and sample": pl.col("seed").eq(pl.col("_seed"))}


def copies(rows: pl.DataFrame, manifest: Manifest | None) -> list[str]:
    """A sentence for every two checkpoints that agree in all rows on a benchmark, and for every two seeds of a
    training that are one checkpoint. No rule forbids it: a training may change nothing."""
    agree = pl.struct(*KEY[2:], _THINK, _FORCED, _SOLUTION, _ANSWER).hash().sum()
    found, first = [], dict[tuple[object, ...], str]()
    for model, *of in rows.group_by("model", "benchmark").agg(pl.len(), agree).sort("model").iter_rows():
        other = first.setdefault(tuple(of), model)
        if manifest and of[1] >= _LEAST_COPIED and manifest.models.get(other) != manifest.models.get(model):
            found.append(f"All {of[1]:,} rows of {model} on {of[0]} are like those of {other}: one may be a copy.")
    seeds = dict[tuple[str, str], str]()
    for model, weights in sorted((manifest.models if manifest else {}).items()):
        other = seeds.setdefault((without_seed(model)[0], weights), model)
        if other != model:
            found.append(f"{model} has the weights of {other}: both trainings changed nothing, or one is a copy.")
    return found


def broken_rules(
    rows: pl.DataFrame, strategies: Mapping[str, Strategy] = STRATEGIES, rules: Rules = _EVERY_ROW
) -> dict[str, str]:
    """Rules that rows break, each with a sentence that names the first such row: those given, and those of the strategy
    that made it (none where it is not installed), as far as the rows have their columns."""
    found, known = {}, {*rows.columns}
    long = {name: seen for name, seen in _LONG.items() if known.issuperset(seen.meta.root_names())}
    rows = rows.with_columns(seen.alias(name) for name, seen in long.items() if name not in known)
    made = {name: strategies[name].rules for name in rows["strategy"].unique().sort() if name in strategies}
    for name, of_made in {**made, None: rules}.items():
        theirs = rows if name is None else rows.filter(pl.col("strategy") == name)
        for rule, holds in of_made.items():
            if {*rows.columns}.issuperset(holds.meta.root_names()):
                broken = theirs.filter(~holds.fill_null(True))
                if not broken.is_empty():
                    counts = f"{broken.height} of {theirs.height} rows"
                    found[rule] = f"{counts} break a rule ({rule}), the first is {_row(broken)}"
    return found


_ADVICE = "restore the table, or delete it and run the sweep again"


def _row(rows: pl.DataFrame) -> str:
    first = rows.select(KEY).row(0, named=True)
    return ", ".join(f"{name} {'unlimited' if value is None else value}" for name, value in first.items())


class Whole(NamedTuple):
    """Rows of whole samples; and the key of each cell without one, with the column num_missing: how many problems the
    first of its samples lacks."""

    rows: pl.DataFrame
    left_out: pl.DataFrame


def whole_samples(rows: pl.DataFrame, num_problems: Mapping[str, int] | None = None) -> Whole:
    """The samples of each cell that all problems have, below the first that one of them lacks. Each key appears once in
    the rows. A benchmark that `num_problems` does not name has the problems that the model's rows have."""
    known = pl.col("benchmark").cast(pl.String).replace_strict(num_problems or {}, default=None, return_dtype=pl.Int64)
    expected = pl.coalesce(known, pl.col("problem").n_unique().over("model", "benchmark").cast(pl.Int64))
    counted = rows.with_columns(_missing=expected - pl.len().over(*CELL, "sample").cast(pl.Int64))
    sample, lacks = pl.col("sample"), pl.col("_missing") > 0
    whole = counted.filter((sample < sample.filter(lacks).min().over(CELL)).fill_null(True)).drop("_missing")
    first = counted.group_by(CELL).agg(num_missing=pl.col("_missing").get(sample.arg_min()))
    return Whole(whole, first.filter(pl.col("num_missing") > 0).sort(CELL, nulls_last=True))


def repeated_texts(problems: Collection[Problem]) -> dict[tuple[str, str], str]:
    """Problems, by benchmark and id, with the text of an earlier one of their benchmark, and the earlier one's id."""
    first: dict[tuple[str, str], str] = {}
    found = {}
    for problem in problems:
        asks = problem.benchmark, " ".join(problem.question.split())
        if first.setdefault(asks, problem.id) != problem.id:
            found[problem.benchmark, problem.id] = first[asks]
    return found
