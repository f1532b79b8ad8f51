"""The rows of a table that numbers are computed from: those that obey the rules, of samples that every problem has."""

import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from elastic_core.budget import Budget, parse_grid
from elastic_core.errors import UserError
from elastic_core.seeds import cell_seed, sample_seed
from elastic_core.strategies import STRATEGIES
from elastic_core.sweep.grid import build_cells
from elastic_core.sweep.plan import plan_sweep
from elastic_core.sweep.sound import check_rows, checked_rows, copies, whole_samples
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.trajectory import KEY, SCHEMA
from flows.commands.budgets import rows_of_model
from flows.commands.compare import find_side
from reports.build import build_report
from reports.summary import READ
from tasks.cards import Promise, measured_levels
from tasks.records.tables import open_table, sound_rows
from tasks.report import report_sources
from tests import simulated
from tests.simulated import SimulatedEngine, swept
from tests.unit.test_report_summary import make_rows


def rows(*missing: tuple[str, int]) -> pl.DataFrame:
    """Of 3 problems and 4 samples in one cell."""
    table = make_rows(["base"], ["easy"], ["separate"], [16], num_problems=3, num_samples=4)
    lost = pl.DataFrame(missing, {"problem": pl.String, "sample": table.schema["sample"]}, orient="row")
    return table.join(lost, on=["problem", "sample"], how="anti")


def test_samples_count_up_to_the_first_that_a_problem_lacks() -> None:
    # Of many samples drawn at once a later one is whole before an earlier one only if it holds no long response.
    found = whole_samples(rows(("001", 1), ("002", 3)))
    assert found.rows["sample"].unique().to_list() == [0]
    assert found.left_out.is_empty()


def test_a_cell_whose_first_sample_lacks_problems_is_left_out_with_how_many() -> None:
    found = whole_samples(rows(("001", 0)))
    assert found.rows.is_empty()
    assert found.left_out["num_missing"].to_list() == [1]
    assert whole_samples(rows(), {"easy": 5}).left_out["num_missing"].to_list() == [2]


def test_a_complete_table_stays_as_it_is() -> None:
    assert whole_samples(rows()).rows.equals(rows())


def one_row(strategy: str, **counts: Any) -> pl.DataFrame:
    """Under (16, 8), of what any strategy may have: a short thought that the model closed."""
    (row,) = make_rows(["base"], ["easy"], ["separate"], [16], num_problems=1, num_samples=1).rows(named=True)
    allowed = {"think_tokens": 9, "solution_tokens": 7, "forced_tokens": 0, "think_finish": "closed"}
    made = row | allowed | {"solution_budget": 8, "strategy": strategy} | counts
    sampled = [False] * (made["think_tokens"] + made["solution_tokens"])
    return pl.DataFrame([made | {"forced": [True] * made["forced_tokens"] + sampled}], rows().schema)


@pytest.mark.parametrize("strategy", [*STRATEGIES, "adaptive_agree2_every4", "of_another_installation"])
def test_a_row_within_its_limits_breaks_no_rule(strategy: str) -> None:
    check_rows(one_row(strategy), "the table")


@pytest.mark.parametrize(
    ("strategies", "counts", "rule"),
    [
        ("separate separate_native budget_forcing adaptive reasonflux_zero", {"think_tokens": 17}, "thinking keeps t"),
        ("separate separate_native budget_forcing_wait4 adaptive_agree2_every4", {"solution_tokens": 9}, "keeps s"),
        ("vanilla", {"think_tokens": 16, "solution_tokens": 9}, r"keep t \+ s"),
        ("l1_exact", {"think_tokens": 42}, r"keep 2 \(t \+ s\)"),
        ("l1_max", {"think_tokens": 8190}, "keep 8192"),
        ("vanilla l1_exact l1_max unconstrained effort_low", {"forced_tokens": 1}, "no token is forced"),
        ("separate budget_forcing reasonflux_zero", {"think_finish": "forced"}, "forced exactly at t"),
        ("separate budget_forcing", {"forced_tokens": 1}, "a closed thought needs no forced token"),
        ("separate separate_native", {"think_finish": "end_of_text"}, "all of s is there"),
        ("separate vanilla of_another_installation", {"navigator_tokens": 10}, "the navigator's tokens"),
        ("separate vanilla of_another_installation", {"score": 1.5}, "the score is in"),
        ("separate vanilla of_another_installation", {"published_score": 0.5}, "the score as published is 0 or 1"),
    ],
)
def test_a_row_beyond_a_limit_of_its_strategy_is_named_with_the_rule(
    strategies: str, counts: dict[str, Any], rule: str
) -> None:
    for strategy in strategies.split():
        with pytest.raises(UserError, match=f"1 of 1 rows break a rule .*{rule}.*strategy {strategy}"):
            check_rows(one_row(strategy, **counts), "the table")


MODELS = ("base", "trained@1", "trained@2")
MANIFEST = Manifest(
    {name: f"weights of {name}" for name in MODELS},
    dict.fromkeys(MODELS, "vllm 0.29"),
    {"simulated": "sha256"},
    {"seed": 1, "sharing": "memo", "temperature": 1.0},
)
PROBLEMS = {(each.benchmark, each.id): each for each in simulated.problems(8)["simulated"]}


@cache
def truth() -> pl.DataFrame:
    """A sweep as it is stored: three models, 8 problems, 5 samples; what ends its thought by itself is right."""
    budgets, strategies = parse_grid(["16+32", "64+32"]), ["separate", "vanilla", "unconstrained"]
    nothing, models = pl.DataFrame(schema={name: SCHEMA[name] for name in KEY}), []
    for name in MODELS:
        cells = build_cells([name], ["simulated"], strategies, budgets)
        plan = plan_sweep(cells, simulated.problems(8), num_samples=5, seed=1, finished=nothing)
        plan = replace(plan, model="base")

        def lengths(problem: int, seed: int, name: str = name) -> tuple[int, int]:
            drawn = random.Random(f"{name} {problem} {seed}")
            return drawn.randint(10, 99), drawn.randint(5, 40)

        with tempfile.TemporaryDirectory() as directory:
            swept(Path(directory), plan, [SimulatedEngine(lengths)], max_in_flight=64)
            rows = TrajectoryStore(Path(directory)).read()
        models.append(rows.with_columns(model_fingerprint=pl.lit(f"weights of {name}")))
    right, solved = pl.col("think_finish") == "closed", pl.col("solution_finish") != "not_applicable"
    grades = {"answer": ("4", "5"), "score": (1.0, 0.0), "grade_status": ("correct", "wrong")}
    graded = {
        name: pl.when(~solved).then(name).when(right).then(pl.lit(yes)).otherwise(pl.lit(no))
        for name, (yes, no) in grades.items()
    }
    return pl.concat(models).with_columns(**graded, engine_fingerprint=pl.lit("vllm 0.29")).sort(KEY)


def checked(rows: pl.DataFrame, manifest: Manifest = MANIFEST) -> pl.DataFrame:
    return checked_rows(rows.lazy(), READ, "the table", manifest, PROBLEMS)


def test_true_rows_are_taken_as_they_are() -> None:
    assert truth().height == 3 * 8 * 5 * 5
    assert {"closed", "forced", "length"} == {*truth()["think_finish"].unique()}
    assert whole_samples(checked(truth()), {"simulated": 8}).rows.height == truth().height
    assert copies(truth(), MANIFEST) == []


def where(**values: object) -> pl.Expr:
    return pl.all_horizontal(pl.col(name) == value for name, value in values.items())


FIRST = where(problem="000000", sample=0)
SEPARATE, FREE = FIRST & where(strategy="separate", think_budget=16), FIRST & where(strategy="unconstrained")
BASE, SECOND = where(model="base"), where(model="trained@2")
Doctor = Callable[[pl.DataFrame], pl.DataFrame]


def put(which: pl.Expr, **values: object) -> Doctor:
    """Rows with other values where a condition is true; strings are texts."""

    def doctor(rows: pl.DataFrame) -> pl.DataFrame:
        given = {name: value if isinstance(value, pl.Expr) else pl.lit(value) for name, value in values.items()}
        changed = {name: pl.when(which).then(value).otherwise(name) for name, value in given.items()}
        return rows.with_columns(**changed).cast(dict(SCHEMA))

    return doctor


def named(model: str, rows_of: str, fingerprint: str | None = None) -> Doctor:
    """A model's rows are another's, under its name."""

    def doctor(rows: pl.DataFrame) -> pl.DataFrame:
        copied = rows.filter(model=rows_of).with_columns(model=pl.lit(model))
        if fingerprint is not None:
            copied = copied.with_columns(model_fingerprint=pl.lit(fingerprint))
        return pl.concat([rows.filter(pl.col("model") != model), copied])

    return doctor


def longer(which: pl.Expr, *columns: str) -> Doctor:
    """Five tokens more in these lists."""
    more = {"response_ids": [7] * 5, "forced": [False] * 5}
    return put(which, **{name: pl.col(name).list.concat(pl.lit(more[name], SCHEMA[name])) for name in columns})


def exchanged(column: str) -> Doctor:
    """Of two samples."""
    other = pl.col(column).replace({0: 1, 1: 0}) if column == "sample" else pl.col(column).shift(-1)
    return put(where(problem="000000") if column == "sample" else SEPARATE, **{column: other})


CUT, WRONG = where(think_finish="forced"), where(grade_status="wrong")
DOCTORED: dict[str, tuple[Doctor, str]] = {
    "a row is there twice": (lambda rows: pl.concat([rows, rows[7:8]]), "a trajectory counts once"),
    "thoughts are halved": (put(FREE, think_tokens=pl.col("think_tokens") // 2), "has the tokens that are counted"),
    "solutions are halved": (put(SECOND, solution_tokens=pl.col("solution_tokens") // 2), "has the tokens that are"),
    "a count is negative": (
        put(FREE, think_tokens=pl.sum_horizontal("think_tokens", "solution_tokens") + 1, solution_tokens=-1),
        "no count is negative",
    ),
    "a thought runs over t, and is counted as t": (longer(SEPARATE & CUT, "response_ids", "forced"), "has the tokens"),
    "a solution runs over s, and is counted as s": (longer(SEPARATE, "response_ids", "forced"), "has the tokens"),
    "an overrun hides behind its marks": (longer(SEPARATE, "response_ids"), "has the tokens"),
    "tokens without a mark": (
        lambda rows: put(FREE, think_tokens=pl.col("think_tokens") + 5)(longer(FREE, "response_ids")(rows)),
        "marked as forced or not",
    ),
    "a forced think-end is counted as the model's": (
        put(CUT & (pl.col("solution_tokens") < 32), solution_tokens=pl.col("solution_tokens") + 1, forced_tokens=0),
        "all of s is there|the forced tokens are those that are marked",
    ),
    "a thought that ended by itself is called forced": (
        put(where(think_finish="closed", strategy="separate"), think_finish=pl.lit("forced")),
        "forced exactly at t",
    ),
    "a solution is said not to have begun": (
        put(FREE, solution_finish=pl.lit("not_applicable")),
        "a solution that was not begun has no tokens",
    ),
    "half a point for what is correct": (put(where(score=1), score=0.5), "the score is 1 for what is correct"),
    "a point for what could not be read": (
        put(where(think_finish="length"), score=1.0),
        "the score is 1 for what is correct",
    ),
    "right without an answer": (put(FREE, answer=None), "what was graded has an answer"),
    "two scores for one answer": (
        put(FIRST & BASE & WRONG, score=1.0, grade_status=pl.lit("correct")),
        "an answer to a problem has one score",
    ),
    "half of the table is graded by other rules": (
        put(where(score=1) & (pl.col("problem") < "000004") & SECOND, score=0.0, grade_status=pl.lit("wrong")),
        "an answer to a problem has one score",
    ),
    "another prompt in one sample": (put(FIRST & BASE, prompt_tokens=99), "a cell asks a problem by one prompt"),
    "the response of one sample in another": (exchanged("response_ids"), "has the tokens that are counted"),
    "samples under each other's number": (exchanged("sample"), "its seed is the sweep's.* sample"),
    "rows of another sweep's seed": (
        put(BASE, seed=pl.struct("problem", "sample").map_elements(
            lambda of: sample_seed(2, "simulated", of["problem"], of["sample"]), pl.Int64)),
        "its seed is the sweep's",
    ),
    "one seed is the other's rows": (named("trained@2", "trained@1"), "its checkpoint is the manifest's|two seeds"),
    "all rows are another model's": (named("base", "trained@1"), "its checkpoint is the manifest's"),
    "some rows are another model's": (
        put(FIRST & BASE, model_fingerprint="weights of trained@1"),
        "a model is one checkpoint",
    ),
    "rows of another vLLM": (put(BASE, engine_fingerprint="vllm 0.30"), "its engine is the manifest's"),
    "some rows of another vLLM": (put(BASE & FIRST, engine_fingerprint="vllm 0.30"), "a model runs on one engine"),
    "an invented problem": (
        put(where(problem="000003"), problem="other", seed=None),
        "simulated has no problem other",
    ),
}  # fmt: skip
"""Tables that are not what a sweep stored, and the rule that says so."""


@pytest.mark.parametrize("what", DOCTORED)
def test_a_doctored_table_is_refused_with_the_rule_and_the_row(what: str) -> None:
    doctor, rule = DOCTORED[what]
    with pytest.raises(UserError, match=rf"^the table: .*({rule})"):
        checked(doctor(truth()))


def test_one_checkpoint_as_two_seeds_is_said_and_not_refused_as_a_training_may_change_nothing() -> None:
    weights = {name: name.partition("@")[0] for name in MODELS}
    rows = truth().with_columns(model_fingerprint=pl.col("model").replace_strict(weights))
    one = replace(MANIFEST, models=weights)
    assert copies(checked(rows, one), one) == [
        "trained@2 has the weights of trained@1: both trainings changed nothing, or one is a copy."
    ]


def test_rows_of_one_checkpoint_under_the_fingerprint_of_another_are_said_to_be_alike() -> None:
    copied = checked(named("trained@2", "trained@1", "weights of trained@2")(truth()))
    assert copies(copied, MANIFEST) == [
        "All 200 rows of trained@2 on simulated are like those of trained@1: one may be a copy."
    ]


def test_problems_that_no_model_has_are_missed() -> None:
    dropped = checked(truth().filter(pl.col("problem") != "000003"))
    found = whole_samples(dropped, {"simulated": 8})
    assert found.rows.is_empty() and set(found.left_out["num_missing"]) == {1}


def test_samples_that_are_gone_where_they_were_wrong_are_missed_with_those_after_them() -> None:
    left = checked(truth().filter(~(WRONG & (pl.col("sample") > 1))))
    there = whole_samples(left, {"simulated": 8}).rows.filter(strategy="separate", think_budget=16)
    assert there["sample"].max() == 1


def test_cells_that_share_nothing_have_seeds_of_their_own() -> None:
    apart = replace(MANIFEST, settings=MANIFEST.settings | {"sharing": "independent"})
    with pytest.raises(UserError, match="its seed is the sweep's"):
        checked(truth(), apart)
    keys = truth().select("seed", "strategy", "think_budget", "solution_budget").iter_rows()
    seeds = [cell_seed(seed, strategy, str(Budget(*budget))) for seed, strategy, *budget in keys]
    assert checked(truth().with_columns(seed=pl.Series(seeds)), apart).height == truth().height


def test_a_program_may_be_right_once_and_wrong_once() -> None:
    rows = truth().with_columns(answer=pl.when(pl.col("answer").is_not_null()).then(pl.lit("import random\nprint(1)")))
    assert checked(rows).height == rows.height


READERS: dict[str, Callable[[Path], object]] = {
    "report": lambda table: build_report(report_sources(table, {}), table / "report"),
    "budgets": lambda table: measured_levels(open_table(table), "base", [], Promise(0.02)),
    "rules": lambda table: rows_of_model(table, "base", [], ["score"]),
    "compare": lambda table: find_side(str(table), table.parent).rows(),
    "MLflow, the comparison that ends a sweep, and model cards": lambda table: sound_rows(open_table(table), READ),
}


@pytest.mark.parametrize("reader", READERS)
def test_everything_that_reads_a_table_for_numbers_refuses_it(reader: str, tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path / "table")
    with store.writing(MANIFEST):
        store.append(DOCTORED["an overrun hides behind its marks"][0](truth()))
    with pytest.raises(UserError, match="has the tokens that are counted"):
        READERS[reader](store.directory)


def test_rows_have_the_clusters_of_their_problems() -> None:
    one = {key: replace(each, cluster="contest") if each.id < "000002" else each for key, each in PROBLEMS.items()}
    found = checked_rows(truth().lazy(), READ, "the table", MANIFEST, one).select("problem", "cluster").unique()
    assert {*found.rows()} == {(id, "contest" if id < "000002" else id) for _, id in PROBLEMS}
    assert "cluster" not in checked(truth()).columns
