"""What is done already, found out before a server is started for nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from elastic_core.errors import UserError
from flows import presets
from flows.runtime import environment
from flows.runtime.inputs import Inputs
from flows.runtime.run import FlowRun
from flows.sweep import conclusion
from reports.tables.codeforces import BENCHMARK
from tasks.records.stage_directory import MODEL, PAGE, TABLE, Stage

_RESULTS = {"warm-start": MODEL, "train": MODEL, "sweep": TABLE, "report": PAGE, "pipeline": PAGE}
"""What to look at of a flow lies in the directory of a stage; else it is the directory."""


class Finished(NamedTuple):
    """Of a flow that has nothing to do: what to look at, and what it says beside that."""

    result: Path
    said: str = ""


def finished(flow: str, preset: str, overrides: Mapping[str, Any]) -> Finished | None:
    """None where something is missing, or wrong, or more is to be done than what stages leave: the flow sees to it.

    Raises:
        UserError: the settings name data that there is not, or use it as it may not be; no server is needed to say so.
    """
    run = FlowRun(presets.resolve(preset, overrides), environment.runs_directory(), given=preset)
    stages: list[Stage] = []
    inputs = Inputs(run)
    _ = inputs.data.chosen
    try:
        for stage in _stages(flow, inputs):
            if not stage.marker.exists():
                return None
            stages.append(stage)
    except UserError:
        return None
    if not stages:
        return None
    # Of several trainings the first one is returned.
    last = next(stage for stage in stages if stage.name == stages[-1].name)
    result = last.directory / _RESULTS.get(flow, "")
    said = conclusion(inputs) if flow == "sweep" else ""
    return Finished(result, said)


def _stages(flow: str, inputs: Inputs) -> Iterator[Stage]:
    """In their order: what a stage is made from is known when those before it are there. None of a flow that does more
    than what its stages leave."""
    settings, pipeline = inputs.run.settings, flow == "pipeline"
    if flow in ("report", "pipeline") and BENCHMARK in settings.data.benchmarks:
        return  # Standings that could not be had yesterday are looked for again.
    if flow in ("prepare-data", "train", "sweep", "pipeline"):
        yield inputs.data.stage
    if flow == "warm-start" or (pipeline and settings.base == "warm-start"):
        yield inputs.warm_start
    if flow == "train" or (pipeline and settings.train is not None):
        yield from inputs.trainings.values()
    if flow in ("sweep", "report", "pipeline"):
        yield inputs.sweep
    if flow in ("report", "pipeline"):
        yield inputs.report()
