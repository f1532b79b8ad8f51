"""What vLLM's CPU worker needs to take new weights from verl."""

from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


class CpuWorkerExtension(vLLMColocateWorkerExtension):
    """vLLM repacks weights after loading on a CPU and drops their loaders, so verl's `model.load_weights` would write
    into the wrong layout. `reload_weights` restores the loaders and repacks again."""

    def update_weights_from_ipc(
        self, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        """Receive all weights, then load them at once. LoRA is not supported."""
        if peft_config:
            raise NotImplementedError("LoRA weights cannot be updated in vLLM on a CPU; train the full model")
        weights: list[tuple[str, torch.Tensor]] = []

        def keep(bucket: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
            # The receiver overwrites its buffer with the next bucket.
            weights.extend((name, tensor.clone()) for name, tensor in bucket)

        receiver = BucketedWeightReceiver(
            zmq_handle=self._get_zmq_handle(), device=torch.device("cpu"), use_shm=use_shm
        )
        receiver.receive_weights(on_bucket_received=keep)
        self.model_runner.reload_weights(weights_iterator=iter(weights))
