"""Trajectory tables: found by their place, `runs/PRESET/sweep/KEY/table`, or made for a sweep's stage; and which of the
requested rows they hold. Prefect is not imported, so that `elastic status` is fast."""

from __future__ import annotations

import json
import logging
import subprocess
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from elastic_core.budget import parse_grid
from elastic_core.data.problems import read_problems
from elastic_core.engines.endpoint import Endpoint
from elastic_core.engines.parameters import EngineParameters, vllm_version
from elastic_core.errors import UserError, nearest
from elastic_core.sweep.grid import build_cells, first_ids, rows_of
from elastic_core.sweep.sound import Problems, checked_rows, repeated_texts, whole_samples
from elastic_core.sweep.table import Manifest, ManifestMismatch, SweepTable, with_stores
from elastic_core.system.fingerprint import hash_files
from reports.content import Asked
from tasks.records.stage_directory import INPUTS, STORES, TABLE, Stage

_ROOT = Path(__file__).parents[2]


def open_table(directory: Path) -> SweepTable:
    """The trajectory table in a directory, or of the sweep there. Raises UserError when there is none."""
    try:
        return SweepTable(directory / TABLE if (directory / TABLE).is_dir() else directory)
    except (OSError, ManifestMismatch) as error:
        if below := sorted({*directory.glob(f"sweep/*/{TABLE}"), *directory.glob(f"*/sweep/*/{TABLE}")}):
            found = f"its table is {below[0]}" if len(below) == 1 else f"its tables are {', '.join(map(str, below))}"
            raise UserError(f"{directory} is not a trajectory table; {found}") from None
        hint = nearest_sweep(directory)
        raise UserError(
            f"{directory} is not a trajectory table ({error}){hint}; expected runs/PRESET/sweep/KEY/table"
        ) from None


def nearest_sweep(directory: Path) -> str:
    """The hint at the sweep, or the table, with the path that is most like one that does not exist; or nothing."""
    path = directory.absolute()
    if path.exists():
        return ""
    # Of runs/PRESET/sweep/KEY, or of runs/PRESET/sweep/KEY/table.
    places = zip(path.parents[2:4], ("*/sweep/*", f"*/sweep/*/{TABLE}"), strict=False)
    return nearest(str(path), [str(found) for runs, sweeps in places for found in runs.glob(sweeps)])


def benchmark_files(table: SweepTable) -> dict[str, Path]:
    """The built data sets that a table was made with, by benchmark, as far as they are still there."""
    found = {}
    for name, sha256 in table.manifest.benchmarks.items():
        # The newest first: an older one may lack the clusters of its problems.
        files = preset_directory(table).glob(f"data/*/{name}.parquet")
        for file in sorted(files, key=lambda file: (-file.stat().st_mtime, file)):
            if hash_files([file]) == sha256:
                found[name] = file
                break
    return found


def preset_directory(table: SweepTable) -> Path:
    """runs/PRESET of runs/PRESET/sweep/KEY/table."""
    return (table.directory / "../../..").resolve()


def sweep_table(
    stage: Stage, engine: EngineParameters, endpoints: Mapping[str, Endpoint], settings: Mapping[str, Any] | None = None
) -> SweepTable:
    """The table of a sweep's stage, with its request, and the `settings` of the models' chat templates. UserError
    when another vLLM, or other such settings, made its rows."""
    models = stage.inputs["models"]
    made = code()
    ours = {"vllm": vllm_version()} if models.keys() - endpoints.keys() else {}
    manifest = Manifest(
        models=models,
        engines={
            name: endpoints[name].engine_fingerprint if name in endpoints else engine.fingerprint for name in models
        },
        benchmarks=stage.inputs["benchmarks"],
        settings={"preset": stage.preset, **ours, **stage.inputs["sampling"]},
        templates=stage.inputs.get("templates", {}),
        servers=stage.inputs.get("servers", {}),
        template_settings=dict(settings or {}),
        written_by={made["code"]: made.get("lock", "")},
    )
    directory, stores = stage.directory / TABLE, stage.runs / stage.preset / STORES
    table = SweepTable(directory, with_stores(manifest, stage.request["models"], directory, stores))
    table.check()
    return table


DATA_LOST = "its data is not there any more, so a problem that no model has a row of would not be missed"
_log = logging.getLogger(__name__)


class Measured(NamedTuple):
    rows: pl.LazyFrame  # Of the problems that the sweep measures, and of each question once.
    problems: Problems  # These, as far as the data is still there.
    repeated: Mapping[str, int]
    """By benchmark, how many problems were left out because they ask what another one asks."""


def measured(table: SweepTable) -> Measured:
    """A table may hold more problems than its sweep requested last. ManifestMismatch as `SweepTable.check`."""
    table.check()
    rows, files, sweep = table.scan(), benchmark_files(table), stage_inputs(table.directory.parent)
    problems: Problems = {(name, each.id): each for name, file in files.items() for each in read_problems(file)}
    if sweep is not None and (number := sweep["request"].get("problems")) is not None:
        ids = {name: first_ids(name, _known(rows, problems, name), number) for name in table.manifest.benchmarks}
        rows = rows.filter(rows_of(ids))
        problems = {key: problem for key, problem in problems.items() if key[1] in ids[key[0]]}
    if again := repeated_texts(problems.values()):
        keys = pl.LazyFrame(list(again), {"benchmark": pl.String, "problem": pl.String}, orient="row")
        rows = rows.join(keys, on=["benchmark", "problem"], how="anti")
        problems = {key: problem for key, problem in problems.items() if key not in again}
    return Measured(rows, problems, Counter(benchmark for benchmark, _ in again))


def sound_rows(table: SweepTable, columns: Collection[str | pl.Expr], *wanted: pl.Expr) -> pl.DataFrame:
    """`checked_rows` of a table, of the samples that every problem has. UserError as there and as of `measured`."""
    found = measured(table)
    for name in sorted(table.manifest.benchmarks.keys() - {benchmark for benchmark, _ in found.problems}):
        _log.warning("%s: %s: %s", table.directory, name, DATA_LOST)
    rows = checked_rows(found.rows.filter(*wanted), columns, table.directory, table.manifest, found.problems)
    return whole_samples(rows, Counter(benchmark for benchmark, _ in found.problems)).rows


def code() -> dict[str, str]:
    """What the code is: version and, of a checkout, commit and hash of the lock that packages are installed from."""
    found = {"code": f"elastic-reasoning {version('elastic-reasoning')}{_commit()}"}
    with suppress(UserError, OSError):  # Without vLLM, or without a checkout.
        lock = _ROOT / "infra" / "requirements" / ("cpu.txt" if "cpu" in vllm_version() else "gpu.txt")
        found["lock"] = f"{lock.name}, sha256 {hash_files([lock])}"
    return found


def _commit() -> str:
    """The commit of a checkout, and whether files differ from it; "" of an installed package."""
    if not (_ROOT / ".git").exists():
        return ""
    describe = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    with suppress(OSError, subprocess.CalledProcessError):
        return f", commit {subprocess.run(describe, check=True, capture_output=True, text=True).stdout.strip()}"
    return ""


def asked_for(sweep: Mapping[str, Any], rows: pl.LazyFrame, problems: Problems) -> Asked:
    """The cells and samples that a sweep requested, by its recorded inputs."""
    request, benchmarks = sweep["request"], list(sweep["inputs"]["benchmarks"])
    budgets, own = parse_grid(request["budgets"]), request.get("strategies_of")
    cells = build_cells(request["models"], benchmarks, request["strategies"], budgets, own)
    counts = {name: len(_known(rows, problems, name)) for name in benchmarks}
    return Asked(cells, counts, request["samples"], chosen="problems" in request)


def stage_inputs(stage: Path) -> Any:
    """Recorded inputs and request of a stage; None where that is not recorded."""
    return read_json(stage / INPUTS) if (stage / INPUTS).exists() else None


def read_json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _known(rows: pl.LazyFrame, problems: Collection[tuple[str, str]], benchmark: str) -> list[str]:
    """Ids of a benchmark's problems; where the data is not there any more, of those that were begun."""
    known = [problem for of, problem in problems if of == benchmark]
    return known or rows.filter(benchmark=benchmark).select("problem").unique().collect()["problem"].to_list()
