"""The training job's entry point: `python -m elastic_core.training.grpo.main CONFIG.yaml`.

CONFIG.yaml is what `config.compose` returned. Killed, the same command resumes from the last checkpoint.
"""

import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, cast

from elastic_core.errors import UserError
from elastic_core.system.network import bypass_proxies
from elastic_core.system.retry import is_transient
from elastic_core.training.launch import LOST, REFUSED, private_variables

if TYPE_CHECKING:
    from omegaconf import DictConfig


def main(file: str) -> None:
    """Train to the end, or exit with the reason."""
    from omegaconf import OmegaConf

    from elastic_core.training.checkpoints import is_finished, recover
    from elastic_core.training.requirements import require_plugin

    config = cast("DictConfig", OmegaConf.load(file))
    out_dir, steps = Path(config.trainer.default_local_dir), int(config.trainer.total_training_steps)
    tokens = config.elastic.max_generated_tokens
    if is_finished(out_dir, steps, tokens):
        print(f"{out_dir}: already trained to the end, nothing to do")
        return
    require_plugin()
    try:
        recover(out_dir)
        run(config)
    except UserError as error:
        # Ray wraps an actor's error.
        raise SystemExit(f"{REFUSED}{getattr(error, 'cause', error)}") from None
    except Exception as error:
        if not is_transient(error):
            raise
        traceback.print_exc()
        raise SystemExit(f"{LOST}{type(error).__name__}, see above") from None
    # verl's loop can end without a step, as if it had trained.
    if not is_finished(out_dir, steps, tokens):
        raise RuntimeError(f"verl returned, but {out_dir} holds no checkpoint of step {steps}, or of its last tokens")


def run(config: "DictConfig") -> None:
    import ray
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    from elastic_core.system.private_stores import protected
    from elastic_core.training.requirements import require_graders

    environment = get_ppo_ray_runtime_env(config)
    environment["env_vars"]["TRANSFER_QUEUE_ENABLE"] = "1"
    variables = private_variables()
    os.environ.update(variables)
    bypass_proxies()
    ray.init(runtime_env=protected(environment, variables))
    require_graders(config)
    runner = ray.remote(ElasticTaskRunner).remote()
    ray.get(runner.run.remote(config))


class ElasticTaskRunner:
    """A Ray actor in the place of verl's TaskRunnerV1. The job's process does not import the trainer, which is slow."""

    def run(self, config: "DictConfig") -> None:
        import transfer_queue
        from omegaconf import OmegaConf

        from elastic_core.training.requirements import require_plugin, wait_for_exclusive_cluster

        require_plugin()
        OmegaConf.resolve(config)
        wait_for_exclusive_cluster()
        # The queue's processes start while this one imports the trainer; each takes seconds.
        with ThreadPoolExecutor(1) as beside:
            queue = beside.submit(transfer_queue.init, config.transfer_queue)
            try:
                from elastic_core.training.grpo.trainer import train

                queue.result()
                train(config)
            finally:
                transfer_queue.close()


if __name__ == "__main__":
    main(sys.argv[1])
