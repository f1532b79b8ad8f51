"""The settings of the last `elastic run`, so that later commands need not repeat them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from elastic_core.errors import UserError
from elastic_core.system.files import replacing
from flows.runtime.environment import runs_directory

_FILE = "last-run.json"


class LastRun(NamedTuple):
    """As `presets.resolve` takes them."""

    preset: str
    overrides: dict[str, Any]


_ADAPTER = TypeAdapter(LastRun)


def remember(preset: str, overrides: Mapping[str, Any]) -> None:
    """Write them beside the results. A preset that is a file is remembered by its whole path."""
    file = Path(preset).expanduser()
    with replacing(runs_directory() / _FILE) as written:
        written.write_bytes(
            _ADAPTER.dump_json(LastRun(str(file.resolve()) if file.is_file() else preset, {**overrides}))
        )


def recall() -> LastRun | None:
    """None before the first run."""
    try:
        return _ADAPTER.validate_json((runs_directory() / _FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def table_of_last_run() -> Path:
    """The trajectory table of its sweep.

    Raises:
        UserError: when there was no run, or it has no table yet.
    """
    from flows.runtime.inputs import Inputs
    from flows.runtime.run import FlowRun
    from tasks.records.stage_directory import TABLE

    last = recall()
    if last is None:
        raise UserError(
            f"nothing was run yet in {runs_directory()}; expected --from TABLE, or a run first: elastic run"
        )
    run = FlowRun.begin(*last)
    table = Inputs(run).sweep.directory / TABLE
    if not table.is_dir():
        raise UserError(f"the last run has no table at {table}; give --from TABLE, or run: {run.command('sweep')}")
    return table
