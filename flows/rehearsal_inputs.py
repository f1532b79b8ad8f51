"""What a rehearsal runs on: a twin of every model, and rows in upstream's format where a data set's are not here."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from elastic_core.data.dataset import Dataset
from elastic_core.data.fetch import bytes_present
from elastic_core.data.registry import STAND_INS, all_datasets, select
from elastic_core.model_check import require_usable
from elastic_core.reasonflux.libraries import DATASET, PUBLISHED
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from elastic_core.twins.stand_in import write_stand_in
from elastic_core.twins.twin import make_twin, origin_of
from flows import environment
from flows.data_inputs import MIRROR_VARIABLE
from flows.rehearsal_settings import Inputs, models_of
from flows.settings import Settings
from tasks.directories import sources_directory, user_datasets_directory

_LARGEST_BYTES = 8 << 20
"""Of a data set's files that are read as they are; building gigabytes of tests would take a rehearsal's time."""


def make_twins(settings: Settings, directory: Path) -> tuple[dict[str, Path], str]:
    """Twins of a preset's models, by model, and a line that tells where they are from. One that is there stays.

    Raises:
        UserError: when a model could not be used, or no twin of it can be made.
    """
    twins: dict[str, Path] = {}
    told: list[str] = []
    for number, model in enumerate(dict.fromkeys(models_of(settings).values())):
        twins[model] = directory / model.strip("/").replace("/", "--")
        if twins[model].exists():
            continue
        origin = origin_of(model)
        if origin.model is not None:
            trained = settings.train is not None and model == settings.base
            device = settings.engine.device
            require_usable(origin.model, name=model, device=device, trained=trained, weights=False)
        make_twin(model, origin, twins[model], seed=number)
        told.append(f"{model}: {origin}")
    return twins, "; ".join(told) or "none needed: the miniature is its own, or made by an earlier attempt"


@dataclass
class _Rows:
    """Where the rows of data sets come from."""

    mirror: Path | None
    directory: Path
    real: list[str]
    made: list[str]

    def take(self, entry: Dataset) -> bool:
        """Whether the real files are here; rows that stand in for them were written otherwise."""
        size = bytes_present(entry, self.mirror) if self.mirror else None
        if size is not None and size <= _LARGEST_BYTES:
            self.real.append(entry.name)
            return True
        write_stand_in(entry, self.directory)
        self.made.append(entry.name)
        return False


def prepare_rows(settings: Settings, runs: Path) -> tuple[Inputs, str]:
    """Rows for every data set of a preset, and a line that names them.

    Args:
        runs: the rehearsal's runs directory.

    Raises:
        UserError: when a data set is not here, and has no rows that could stand in.
    """
    users = user_datasets_directory(environment.runs_directory())
    known, sft = all_datasets(users), settings.warm_start.sft
    if users.is_dir():
        shutil.copytree(users, user_datasets_directory(runs), dirs_exist_ok=True)
    rows = _Rows(_mirror(settings), user_datasets_directory(runs) / STAND_INS, [], [])
    names = [*settings.data.train, *settings.data.validation, *settings.data.benchmarks]
    names += [sft.data] if sft and sft.data in known else []
    for entry in select(names, known):
        if entry.files and not (users / f"{entry.name}.json").exists():
            rows.take(entry)
    library = None
    if REASONFLUX_ZERO in settings.sweep.strategies and settings.sweep.templates.library == PUBLISHED:
        entry = known[DATASET]
        if not rows.take(entry):
            library = rows.directory / f"{entry.name}.json"
    kinds = {"real rows": rows.real, "made in upstream's format": rows.made}
    told = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)
    return Inputs(rows.mirror, library), told or "generated"


def _mirror(settings: Settings) -> Path | None:
    """The mirror, or what was downloaded earlier."""
    given = settings.data.mirror or os.environ.get(MIRROR_VARIABLE)
    if given:
        return Path(given).resolve()
    downloads = sources_directory(environment.runs_directory())
    return downloads if downloads.is_dir() else None
