"""What neither a registry nor a subclass of verl 0.9.1 can change. Each patch says why and for which versions."""

import sys
from functools import wraps
from typing import Any

from wrapt import register_post_import_hook


def apply() -> None:
    """What every platform needs, once per process."""
    register_post_import_hook(_leave_output_layer_to_the_root, "verl.utils.fsdp_utils")
    _record_configuration_as_artifact()
    _import_less()


def apply_on_cpu() -> None:
    """What only a CPU needs, once per process, before verl's engines are imported."""
    _name_the_process_group_backend_once()


def _leave_output_layer_to_the_root(fsdp_utils: Any) -> None:
    """verl 0.9.1 (its #7427): fsdp2 makes an untied lm_head a unit of its own, and the fused forward multiplies by its
    weight without calling it, so the weight is still sharded: "mixed torch.Tensor and DTensor". Gathering the weight by
    hand runs, with a wrong gradient on more than one rank. The root unit, which has it where embeddings are tied,
    gathers it for the forward pass, and again for the backward pass, during which the whole weight and its gradient
    stay on the device: 2 × 1.6 GB for 14B in bfloat16."""
    select = fsdp_utils._select_fsdp2_wrap_targets

    @wraps(select)
    def without_output_layer(model: Any, layers: Any) -> list[Any]:
        return [module for module in select(model, layers) if module is not model.get_output_embeddings()]

    fsdp_utils._select_fsdp2_wrap_targets = without_output_layer


def _record_configuration_as_artifact() -> None:
    """verl 0.9.1 logs its thousand settings as parameters of the MLflow run, which never change there: a training that
    goes on with more machines could not attach to its run any more, and the few that matter are lost among them."""
    from verl.utils import tracking

    def as_artifact(config: dict[str, Any]) -> dict[str, Any]:
        import mlflow  # Slow: every process that imports verl loads this file, one of them logs.

        mlflow.log_dict(config, "verl.yaml")
        return {}

    tracking._compute_mlflow_params_from_objects = as_artifact


def _import_less() -> None:
    """A fifth of what a process of a training imports is used by nobody here: vLLM, by verl 0.9.1's transport for
    Ascend before it finds that there is none; scikit-learn, by transformers for assisted generation."""
    import transformers.utils

    sys.modules.setdefault("verl.checkpoint_engine.hccl_checkpoint_engine", None)  # type: ignore[arg-type]
    transformers.utils.is_sklearn_available = lambda: False


def _name_the_process_group_backend_once() -> None:
    """verl 0.9.1, torch 2.11 to 2.13: verl asks for the backend "cpu:gloo,<device>:<backend>" in two functions that
    its workers import by name. On a CPU that reads "cpu:gloo,cpu:gloo", and torch refuses a repeated device."""
    import torch.distributed

    original = torch.distributed.init_process_group

    @wraps(original)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        original("cpu:gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)

    torch.distributed.init_process_group = init_process_group
