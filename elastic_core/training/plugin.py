"""verl's entry point into this package: the group `verl.plugins` names it, so every process that imports verl loads it.

It checks versions and has torch's stores and the transfer of weights out of other users' reach. It patches verl 0.9.1
where neither a registry nor a subclass suffices, by hooks on modules that are slow to import. With VERL_PLATFORM=cpu,
which is never guessed, verl runs without an accelerator (cpu.py). verl logs a failing plugin at debug level and goes
on; `require_plugin` in requirements.py makes that an error.
"""

import os
import sys
from functools import wraps
from importlib import import_module
from importlib.metadata import version
from threading import Thread
from types import ModuleType
from typing import Any

from wrapt import register_post_import_hook

from elastic_core.system import private_stores
from elastic_core.training.requirements import check_versions


def _register_server(replica: Any) -> None:
    """Make the rollout name "vllm" mean our server."""

    def replica_class() -> Any:
        from elastic_core.training.grpo.server import replica_class

        return replica_class()

    replica.RolloutReplicaRegistry.register("vllm", replica_class)


def _leave_output_layer_to_the_root(fsdp_utils: Any) -> None:
    """verl 0.9.1 (its #7427): fsdp2 makes an untied lm_head a separate unit, and the fused forward multiplies by its
    weight without calling it, so the weight is still sharded: "mixed torch.Tensor and DTensor". Gathering the weight by
    hand runs, with a wrong gradient on more than one rank. The root unit, which has it where embeddings are tied,
    gathers it for the forward pass, and again for the backward pass, during which the full weight and its gradient
    stay on the device: 2 × 1.6 GB for 14B in bfloat16."""
    select = fsdp_utils._select_fsdp2_wrap_targets

    @wraps(select)
    def without_output_layer(model: Any, layers: Any) -> list[Any]:
        return [module for module in select(model, layers) if module is not model.get_output_embeddings()]

    fsdp_utils._select_fsdp2_wrap_targets = without_output_layer


def _export_adapters_merged(checkpoints: Any) -> None:
    """verl 0.9.1 saves an adapted model by PEFT's names, base and adapters apart, which no engine loads."""
    from verl.utils.fsdp_utils import merged_lora_context, normalize_peft_param_name

    whole = checkpoints.get_fsdp_full_state_dict

    @wraps(whole)
    def merged(model: Any, **how: Any) -> Any:
        if not hasattr(model, "peft_config"):
            return whole(model, **how)
        with merged_lora_context(model, backup_adapters=True):
            return normalize_peft_param_name(whole(model, **how))

    checkpoints.get_fsdp_full_state_dict = merged


def _leave_tied_weights_to_one_name(utils: Any) -> None:
    """verl 0.9.1 loads each bucket of weights by itself, and vLLM (0.29 to 0.33) refuses the second name of a tied
    weight where the first is not beside it: lm_head, in the last bucket, is the embedding of the first."""
    update = utils.vLLMColocateWorkerExtension._update_weights

    @wraps(update)
    def without_second_names(self: Any, weights: Any, **how: Any) -> None:
        from vllm.model_executor.models.utils import _get_tied_embedding_params

        tied = _get_tied_embedding_params(self.model_runner.model)
        update(self, [(name, weight) for name, weight in weights if name not in tied], **how)

    utils.vLLMColocateWorkerExtension._update_weights = without_second_names


def _import_server_early(workers: Any) -> None:
    """Before a worker sends weights it asks Ray for the server, whose class imports vLLM for seconds: have it do so
    while the server starts, which is idle time of the worker."""
    build = workers.ActorRolloutRefWorker.init_model

    @wraps(build)
    def init_model(self: Any, *args: Any, **how: Any) -> None:
        build(self, *args, **how)
        module = "verl.workers.rollout.vllm_rollout.vllm_async_server"
        Thread(target=import_module, args=(module,), daemon=True).start()

    workers.ActorRolloutRefWorker.init_model = init_model


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
    """Leave out imports that a training never uses: vLLM, in verl 0.9.1's transport for Ascend and in its module
    that says how vLLM sleeps; scikit-learn, in transformers for assisted generation."""
    import transformers.utils

    sys.modules.setdefault("verl.checkpoint_engine.hccl_checkpoint_engine", None)  # type: ignore[arg-type]
    about_vllm = ModuleType("verl.third_party.vllm")
    vars(about_vllm).update(VLLM_SLEEP_LEVEL=2, get_version=version)
    sys.modules.setdefault(about_vllm.__name__, about_vllm)
    transformers.utils.is_sklearn_available = lambda: False


on_cpu = os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"
check_versions(cpu=on_cpu)
private_stores.install()
if on_cpu:
    from elastic_core.training import cpu

    cpu.register_platform()
    register_post_import_hook(cpu.register_worker, "verl.workers.rollout.vllm_rollout.utils")
    register_post_import_hook(cpu.register_engine, "verl.workers.engine")

# What follows imports what reads the platform; the engines, which take this by name, come after it.
from elastic_core.training import micro_batches  # noqa: E402

micro_batches.install()
register_post_import_hook(_register_server, "verl.workers.rollout.replica")
register_post_import_hook(_import_server_early, "verl.workers.engine_workers")
register_post_import_hook(private_stores.hide_weights, "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer")
register_post_import_hook(_leave_output_layer_to_the_root, "verl.utils.fsdp_utils")
register_post_import_hook(_leave_tied_weights_to_one_name, "verl.workers.rollout.vllm_rollout.utils")
register_post_import_hook(_export_adapters_merged, "verl.utils.checkpoint.fsdp_checkpoint_manager")
_record_configuration_as_artifact()
_import_less()
