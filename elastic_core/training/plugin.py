"""verl's entry point into this package: the group `verl.plugins` names it, so every process that imports verl loads it.

Everywhere it checks versions, has torch's stores listen where they are called, and mends what every platform meets
(patches.py). With VERL_PLATFORM=cpu it also makes verl run without an accelerator. The platform is never guessed: a
Ray actor without a GPU on a GPU cluster sees none either. The agent loop registers itself in the only processes that
need it, see rollout_workers.py.

Few of a training's ten processes use verl's engines, which take seconds to import: what these need is done once they
have been imported, by whoever does.

verl logs a failing plugin at debug level and goes on; `require_plugin` in plugin_check.py makes that an error.
"""

import os

from wrapt import register_post_import_hook

from elastic_core import private_stores
from elastic_core.training import patches
from elastic_core.training.versions import check_versions

_CPU = os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"

check_versions(cpu=_CPU)
private_stores.install()
if _CPU:
    from elastic_core.training import cpu_platform, vllm_alias

    cpu_platform.register()
    vllm_alias.install()
    patches.apply_on_cpu()
    register_post_import_hook("elastic_core.training.cpu_rollout:register", "verl.workers.rollout.replica")
    register_post_import_hook("elastic_core.training.cpu_engine:register", "verl.workers.engine")

# What follows imports what reads the platform; the engines, which take this by name, come after it.
from elastic_core.training import micro_batches  # noqa: E402

micro_batches.install()
patches.apply()
