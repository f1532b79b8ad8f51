"""Whether verl loaded our plugin in this process."""

import importlib
import sys

PLUGIN = "elastic_core.training.plugin"


def require_plugin() -> None:
    """Nothing, when verl loaded the plugin.

    Raises:
        RuntimeError: when verl never tried to load it.
        Exception: whatever the plugin itself failed with, which verl only logs at debug level.
    """
    import verl  # noqa: F401

    if PLUGIN in sys.modules:
        return
    importlib.import_module(PLUGIN)
    raise RuntimeError(
        f"verl did not load {PLUGIN}: install this package with its entry points (pip install -e .) and leave "
        "VERL_USE_EXTERNAL_PLUGINS unset"
    )
