"""verl's server with vLLM's engine, as trainings start it: asked, in a process of its own, with the CPU for verl's
platform. Writes what it answered to the file that is named."""

import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import elastic_core.miniature
from elastic_core.engines.request_groups import Replies

CONTEXT, LONG, SHORT, GROUP = 128, 50, 30, 4
BASE = Path(elastic_core.miniature.__file__).parent / "base"


class Counted:
    """An engine whose reports are counted."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.reports = 0

    async def generate(self, **request: Any) -> AsyncIterator[Any]:
        async for report in self._engine.generate(**request):
            self.reports += 1
            yield report


def started(engine: Any) -> Any:
    """The server that verl would start for rollouts, with this engine."""
    from verl.workers.rollout.replica import get_rollout_replica_class

    from elastic_core.training.grpo.parameters import GrpoParameters
    from tests.training_rollouts import composed

    parameters = GrpoParameters(device="cpu", gpus_per_node=1, prompt_tokens=16, budget=f"{LONG}+{SHORT}")
    config = composed(parameters).actor_rollout_ref
    replica = get_rollout_replica_class(config.rollout.name)(0, config.rollout, config.model)
    server = object.__new__(replica.server_class.__ray_actor_class__)  # Its constructor wants a cluster.
    vars(server).update(
        engine=Counted(engine),
        config=server._init_config(config.rollout),
        model_config=server._init_model_config(config.model),
        _replies=defaultdict(lambda: Replies(lambda request: server.generate(**request))),
        replica_rank=0,
        global_steps=7,
        _disaggregation_role="null",
        _submission_paused=False,
        _admitting=0,
    )
    return server


def request(seed: int, max_tokens: int) -> dict[str, Any]:
    params = {
        "temperature": 1.0,
        "top_p": 1.0,
        "logprobs": True,
        "seed": seed,
        "ignore_eos": True,
        "detokenize": False,
        "max_tokens": max_tokens,
    }
    return {"prompt_ids": [5, 6, 7], "sampling_params": params, "request_id": f"{max_tokens}-{seed}"}


async def ask() -> dict[str, Any]:
    from elastic_core.engines.parameters import EngineParameters
    from elastic_core.engines.vllm import VllmEngine

    engine = VllmEngine(str(BASE), EngineParameters(max_model_len=CONTEXT, max_num_seqs=8))
    try:
        server = started(engine._llm)
        one = await server.generate(**request(1, LONG))
        reports = server.engine.reports
        alone = [(await server.generate(**request(seed, SHORT))).token_ids for seed in range(GROUP)]
        await server.submit_group("client", [(seed, request(seed, SHORT)) for seed in range(GROUP)])
        found: dict[int, list[int]] = {}
        while len(found) < GROUP:
            found |= {number: output.token_ids for number, output in await server.collect_group("client")}
    finally:
        engine.shutdown()
    return {
        "reports": reports,
        "tokens": len(one.token_ids),
        "logprobs": one.log_probs,
        "alone": alone,
        "grouped": [found[number] for number in range(GROUP)],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(asyncio.run(ask())))
