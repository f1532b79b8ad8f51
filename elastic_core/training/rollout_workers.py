"""Ray actors that drive the rollouts: verl's, with one agent loop per worker instead of one per rollout.

Making one takes 6 ms in verl 0.9.1, most of it in hydra: seconds per step when a step is short. It also logs a line.
"""

from typing import Any

import ray
from hydra.utils import get_class
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, DictConfigWrap, _agent_loop_registry
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from elastic_core.training import agent_loop  # noqa: F401  registers "elastic"


class RolloutWorker(AgentLoopWorkerTQ.__ray_actor_class__):  # type: ignore[misc]
    """Agent loops must keep no state between rollouts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loops: dict[str, AgentLoopBase] = {}

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: dict[str, Any], *, agent_name: str, trace: bool, **row: Any
    ) -> None:
        output = await self._agent_loop(agent_name).run(sampling_params, **row)
        await self._agent_loop_postprocess(output, trajectory["validate"], **row)

    def _agent_loop(self, name: str) -> AgentLoopBase:
        if name not in self._loops:
            self._loops[name] = get_class(_agent_loop_registry[name]["_target_"])(
                trainer_config=DictConfigWrap(self.config),
                server_manager=self.llm_client,
                tokenizer=self.tokenizer,
                processor=self.processor,
                dataset_cls=self.dataset_cls,
                data_config=DictConfigWrap(self.config.data),
                # Of "qwen2" verl concludes Qwen's conversation format, and refuses tokenizers without it, such as those
                # of models distilled from R1 (verl #7637). Our loop holds no conversation: verl's default is enough.
                hf_model_type=None,
            )
        return self._loops[name]


class RolloutManager(AgentLoopManagerTQ):
    """Starts `RolloutWorker`s."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(RolloutWorker)
