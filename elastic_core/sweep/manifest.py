"""What the rows of one table have in common, so that rows of different origin never mix unnoticed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from elastic_core.errors import UserError

MANIFEST = "manifest.json"
"""File in the table's directory."""


class ManifestMismatch(UserError):
    """The table on disk was made from something else."""


@dataclass(frozen=True)
class Manifest:
    """Provenance of a trajectory table.

    Attributes:
        models: model name → fingerprint of its checkpoint.
        engines: model name → fingerprint of the engine that ran it.
        benchmarks: benchmark name → hash of its file.
        settings: sampling temperature, top_p, seed and whatever else changes a row without being part of its key.
        templates: strategy name → fingerprint of the thought templates it searched; of the strategies that have any.
        stores: model name → benchmark, or benchmark/strategy for one that has templates → directory of the
            `TrajectoryStore` that holds these rows, relative to the table's. Empty where the table holds them itself.
    """

    models: dict[str, str]
    engines: dict[str, str]
    benchmarks: dict[str, str]
    settings: dict[str, Any]
    templates: dict[str, str] = field(default_factory=dict)
    stores: dict[str, dict[str, str]] = field(default_factory=dict)

    def joined_with(self, new: Manifest, table: Path) -> Manifest:
        """Both together: a table may gain models, benchmarks and strategies, but nothing that it has may change.

        Raises:
            ManifestMismatch: naming what changed.
        """
        for section in asdict(self):
            before, now = getattr(self, section), getattr(new, section)
            names = before.keys() | now.keys() if section == "settings" else before.keys() & now.keys()
            for name in sorted(names):
                if before.get(name) != now.get(name):
                    raise ManifestMismatch(
                        f"{table}: its rows were made with {section[:-1]} {name} = {before.get(name)}, now it is "
                        f"{now.get(name)}; restore that, write to another directory, or delete this one to start over"
                    )
        return Manifest(**{section: getattr(self, section) | getattr(new, section) for section in asdict(self)})

    def dumps(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def load(cls, file: Path) -> Manifest:
        """Raises:
        ManifestMismatch: when the file is not a manifest.
        """
        try:
            return cls(**json.loads(file.read_text()))
        except (ValueError, TypeError) as error:
            raise ManifestMismatch(f"{file}: not the manifest of a trajectory table ({error})") from error
