"""Where thought templates lie: the library of a preset's sweep, and one's own."""

from __future__ import annotations

from pathlib import Path

from elastic_core.reasonflux.parameters import TemplateParameters
from elastic_core.strategies.reasonflux_zero import Templates


def own_file(runs: Path) -> Path:
    """One's own templates. Lines may be edited or deleted; the next command checks them."""
    return runs / "templates" / "own.jsonl"


def embeddings_directory(runs: Path) -> Path:
    """Where embeddings of names are kept."""
    return runs / "templates" / "embeddings"


def load_templates(parameters: TemplateParameters, runs: Path, mirror: Path | None) -> Templates:
    """The library that the parameters name, fetched if need be.

    Raises:
        UserError: when there is no such library, or it is broken, or cannot be fetched.
    """
    from elastic_core.reasonflux.libraries import load_library
    from tasks.data import sources_directory

    library = load_library(parameters.library, own=own_file(runs), sources=sources_directory(runs), mirror=mirror)
    return Templates(library, parameters, embeddings_directory(runs))
