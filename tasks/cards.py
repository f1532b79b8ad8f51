"""Files that a sweep leaves with a model's weights: its card, and the effort levels of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from elastic_core.errors import UserError, nearest
from elastic_core.rewards.truth import guesses
from elastic_core.serving.choice import COLUMNS, Choice, Leaky, choose_levels
from elastic_core.serving.levels import LEVELS, Levels, read_levels
from elastic_core.statistics.intervals import LEVEL
from elastic_core.statistics.responses import LEAK
from elastic_core.statistics.which_budget import Reason
from elastic_core.strategies import FREE, SERVED
from elastic_core.strategies.variants import is_variant
from elastic_core.sweep.grid import split_model
from elastic_core.sweep.table import SweepTable
from elastic_core.system.fingerprint import hash_files
from elastic_core.training import model_card
from elastic_core.trajectory import BUDGET, KEY
from reports.summary import READ, summarize
from tasks.records.mlflow_tracker import Tracker
from tasks.records.stage_directory import BEST, MODEL, TABLE, Stage
from tasks.records.tables import measured, sound_rows

_LIMITED = (is_variant(SERVED), *(pl.col(name).is_not_null() for name in BUDGET))
"""Rows of `separate` with limits on both phases, as a server's budgets have."""


@dataclass(frozen=True)
class Cards:
    """Measurements of models by the sweep of a stage, once it has finished.

    Attributes:
        rows: which rows of the table the settings ask for.
        margin: of the effort levels, in [0, 1].
        fingerprint: of a checkpoint, by which the sweep knows it.
    """

    stage: Stage
    rows: pl.Expr
    margin: float
    fingerprint: Callable[[Path], str]

    def cells(self, model: Path) -> list[dict[str, Any]]:
        """The model's cells; none when the sweep has not finished, or measured other weights."""
        if (name := self._name(model)) is None:
            return []
        found = sound_rows(self._table, READ, pl.col("model") == name, self.rows)
        return summarize(found).to_dicts() if found.height else []

    def write_levels(self, model: Path) -> list[Path]:
        """Put the effort levels into the model's directory. Those from the same table stay: the user may have chosen
        them by other benchmarks. Returns their file; none where the model has no rows of `separate`."""
        name, file, table = self._name(model), model / LEVELS, self._table
        if name is None or name not in measured_models(table.scan().filter(self.rows)):
            return []
        if not file.exists() or read_levels(file).table != hash_files(table.shards()):
            measured_levels(table, name, [], Promise(self.margin), self.rows)[0].write(file)
        return [file]

    def write_all(self, checkpoints: Iterable[Path], tracker: Tracker) -> None:
        """The cards and effort levels of those checkpoints that the preset's trainings left, and of what lies beside
        them and was measured, here and in MLflow's registry."""
        trainings = self.stage.runs / self.stage.preset / "train"
        left = {path.parent for path in checkpoints if path.parents[1] == trainings}
        for directory, name in product(sorted(left), (MODEL, BEST)):
            model = directory / name
            if not (model / model_card.RECORD).exists() or not (cells := self.cells(model)):
                continue
            files = [*self.write_levels(model), model_card.write_card(model, cells)]
            # None when the tracking store was changed since.
            if training := tracker.find(directory.relative_to(self.stage.runs).as_posix()):
                for file in files:
                    tracker.renew(training, file)

    @property
    def _table(self) -> SweepTable:
        return SweepTable(self.stage.directory / TABLE)

    def _name(self, model: Path) -> str | None:
        """The model's name in the finished sweep."""
        weights = self.fingerprint(model)
        names = [name for name, found in self.stage.inputs["models"].items() if found == weights]
        return names[0] if names and self.stage.is_done else None


def measured_models(rows: pl.LazyFrame) -> list[str]:
    """Models of a table that can be served and have rows of `separate` with limits on both phases."""
    names = rows.filter(*_LIMITED).select("model").unique().collect()["model"].sort().to_list()
    return [name for name in names if len(split_model(name)) == 1]


class Promise(NamedTuple):
    """The promise of the highest level: at most `margin` below responses without a limit, in [0, 1], with a
    certificate that is wrong with a chance of `level`; `required`: or there are no levels. No level goes on thinking in
    more than the share `leak` of its solutions, as far as that is shown."""

    margin: float
    level: float = LEVEL
    required: bool = False
    leak: float = LEAK


def measured_levels(
    table: SweepTable,
    model: str,
    benchmarks: Sequence[str],
    promise: Promise,
    *wanted: pl.Expr,
    calibration: SweepTable | None = None,
) -> tuple[Levels, Choice]:
    """The effort levels of one of `measured_models`, and how they were chosen.

    Args:
        benchmarks: to choose by; none is all that the model was measured on.
        wanted: which rows; all without any.
        calibration: table to certify on instead.

    Raises:
        UserError: when the model was not measured on one of the benchmarks, or under no budget on all of them; when a
            promise is required that these problems cannot give.
    """
    found, chosen = _rows(table, model, benchmarks, *wanted)
    other = None
    if calibration is not None:
        if table.manifest.models.get(model) != calibration.manifest.models.get(model):
            raise UserError(f"{calibration.directory}: its {model} has other weights than that of {table.directory}")
        other, _ = _rows(calibration, model, chosen)
    problems = [each for each in measured(table).problems.values() if each.benchmark in chosen]
    kinds = {each.grader for each in problems}
    chances = guesses(problems)
    guess = sum(chances[each.benchmark] for each in problems) / max(1, len(problems))
    # A server reads the answers of probes as of one kind.
    given: dict[str, Any] = {"with_rules": len(kinds) < 2, "guess": guess, "leak": promise.leak}
    try:
        choice = choose_levels(found, promise.margin, promise.level, other, **given)
    except Leaky as error:
        raise UserError(f"{table.directory}: {error}; train, sweep other closings, or give a larger --leak") from None
    if promise.required and isinstance(choice.rule, Reason):
        raise UserError(_refused(choice, promise, found if other is None else other))
    sampling, template = table.manifest.settings, table.manifest.template_settings.get(model) or None
    levels = Levels(
        model=model,
        weights=table.manifest.models.get(model, model),  # A store without a sweep names a model by its fingerprint.
        table=hash_files(table.shards()),
        benchmarks=chosen,
        strategy=SERVED,
        temperature=sampling.get("temperature"),
        top_p=sampling.get("top_p"),
        margin=promise.margin,
        confidence=None if isinstance(choice.rule, Reason) else 1 - promise.level,
        calibration=None if calibration is None else hash_files(calibration.shards()),
        loss=None if isinstance(choice.rule, Reason) else choice.rule,
        reads=next(iter(kinds), "math"),
        date=datetime.now(UTC).date(),
        levels={name: level.model_copy(update={"template": template}) for name, level in choice.levels.items()},
        measured=list(choice.points),
    )
    return levels, choice


def _refused(choice: Choice, promise: Promise, rows: pl.DataFrame) -> str:
    """Why nothing is certified, and what would help."""
    points, confidence = f"{100 * promise.margin:g} points", f"{100 * (1 - promise.level):g} %"
    there = dict(rows.group_by("benchmark").agg(pl.col("problem").n_unique()).sort("benchmark").iter_rows())
    counts = " and ".join(f"{number:,} problems of {benchmark}" for benchmark, number in there.items())
    why = str(choice.rule).replace("the margin", points)
    each = " of each" if len(there) > 1 else ""
    enough = choice.enough_problems
    do = f"about {enough:,} like these{each} would do: measure more, or" if enough else "more like these would not do:"
    return (
        f"no certificate of {points} with {confidence}: {why}; there are {counts}, without any loss it takes "
        f"{choice.least_problems:,}{each}, and {do} give a larger --risk or a smaller --confidence"
    )


def _rows(table: SweepTable, model: str, benchmarks: Sequence[str], *wanted: pl.Expr) -> tuple[pl.DataFrame, list[str]]:
    """A model's rows that were measured on all of the benchmarks, and these."""
    columns: list[str | pl.Expr] = [*(name for name in KEY if name not in COLUMNS[:-1]), *COLUMNS]
    served = pl.all_horizontal(_LIMITED)
    found = sound_rows(table, columns, pl.col("model") == model, served | (pl.col("strategy") == FREE), *wanted)
    known = found.filter(served)["benchmark"].unique().sort().to_list()
    for name in benchmarks:
        if name not in known:
            raise UserError(
                f"--benchmark {name}: {model} was not measured on it under {SERVED}{nearest(name, known)}; there "
                f"are: {', '.join(known)}"
            )
    chosen = list(dict.fromkeys(benchmarks)) or known
    found = found.filter(pl.col("benchmark").is_in(chosen))
    found = found.filter(pl.col("benchmark").n_unique().over("strategy", *BUDGET) == len(chosen))
    if found.filter(served).is_empty():
        raise UserError(
            f"{table.directory}: no budget was measured on all of {', '.join(chosen)}; give --benchmark with one of "
            "them, or finish the sweep"
        )
    return found, chosen
