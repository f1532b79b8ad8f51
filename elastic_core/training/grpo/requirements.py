"""Whether a cluster can run a training, before anything is loaded: it has the resources, and what grading takes.

verl and Ray wait for ever, silently, for what can never come.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from elastic_core.errors import UserError
from elastic_core.rewards.code.sandbox import sandbox_problem

if TYPE_CHECKING:
    from omegaconf import DictConfig

_CPUS_PER_GPU = 3
"""verl 0.9.1 reserves this many logical CPUs in each of its placement bundles (ResourcePoolManager)."""


class Resources(NamedTuple):
    """Logical resources. A node of the training has `gpus` and `cpus` of its own; `shared_cpus` may lie anywhere."""

    nodes: int
    gpus: int
    cpus: int
    shared_cpus: int


class InsufficientResources(UserError):
    """The cluster can never place the job, however long it waits."""


def required_resources(config: "DictConfig") -> Resources:
    """What verl reserves for a composed configuration."""
    storage_units = int(config.transfer_queue.backend.SimpleStorage.num_data_storage_units)
    return placement(int(config.trainer.nnodes), int(config.trainer.n_gpus_per_node), storage_units)


def placement(nodes: int, gpus: int, storage_units: int) -> Resources:
    """What verl reserves on so many nodes with so many GPUs each.

    Shared: one CPU per TransferQueue storage unit, one for its controller, and one for starting the actors that keep
    none (task runner, rollout workers, vLLM servers).
    """
    return Resources(nodes, gpus, _CPUS_PER_GPU * gpus, storage_units + 2)


def check_nodes(nodes: list[tuple[int, int]], required: Resources) -> None:
    """Nothing, when a cluster could hold the job if it were idle.

    Args:
        nodes: GPUs and logical CPUs of each.

    Raises:
        InsufficientResources: with what is needed and what there is.
    """
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
    """Nothing, when every node that verl may place rollout workers on has what the data's graders need. Ray must be
    initialised.

    Raises:
        UserError: naming a node that cannot run programs in a sandbox, and why.
    """
    if "code" in grader_kinds([*config.data.train_files, *config.data.val_files]):
        problems = sandbox_problems()
        found = {node: problem for node, problem in problems.items() if problem}
        if found:
            node, problem = next(iter(found.items()))
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

    # As verl chooses them for its rollout workers.
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    look = ray.remote(num_cpus=0)(sandbox_problem)
    looks = {
        node["NodeManagerAddress"]: look.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in nodes
    }
    return dict(zip(looks, ray.get(list(looks.values()), timeout=300), strict=True))
