"""The trajectory table of a sweep's stage. Prefect is not imported, so that `elastic sweep status` answers at once."""

from __future__ import annotations

from collections.abc import Mapping

from elastic_core.engines.endpoint import Endpoint
from elastic_core.engines.parameters import EngineParameters, vllm_version
from elastic_core.sweep.store import Manifest
from elastic_core.sweep.table import SweepTable, with_stores
from tasks.records.stage_directory import STORES, TABLE, Stage


def sweep_table(stage: Stage, engine: EngineParameters, endpoints: Mapping[str, Endpoint]) -> SweepTable:
    """The table of a sweep's stage, with what it asks for; stores are those of its preset.

    Raises:
        UserError: when rows were made by another version of vLLM.
    """
    models = stage.inputs["models"]
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
    )
    directory = stage.directory / TABLE
    stores = stage.runs / stage.preset / STORES
    table = SweepTable(directory, with_stores(manifest, stage.request["models"], directory, stores))
    table.check()
    return table
