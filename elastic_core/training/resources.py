"""What a training job reserves on a Ray cluster, and whether the cluster has it.

verl and Ray wait for ever, silently, for what can never come.
"""

from typing import TYPE_CHECKING, NamedTuple

from elastic_core.errors import UserError
from elastic_core.ray_cluster import RayCluster

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


def check_resources(cluster: RayCluster, required: Resources) -> None:
    """Nothing, when the cluster could hold the job if it were idle.

    Raises:
        InsufficientResources: with what is needed and what there is.
    """
    check_nodes(cluster.nodes(), required)


def check_nodes(nodes: list[tuple[int, int]], required: Resources) -> None:
    """`check_resources` on the GPUs and logical CPUs of each node."""
    fitting = sum(gpus >= required.gpus and cpus >= required.cpus for gpus, cpus in nodes)
    needed_cpus = required.nodes * required.cpus + required.shared_cpus
    if fitting >= required.nodes and sum(cpus for _, cpus in nodes) >= needed_cpus:
        return
    found = ", ".join(f"{gpus} GPUs and {cpus} CPUs" for gpus, cpus in nodes) or "no node"
    raise InsufficientResources(
        f"training needs {required.nodes} node(s) with {required.gpus} GPUs and {required.cpus} logical CPUs each, and "
        f"{needed_cpus} logical CPUs over all nodes; the Ray cluster has: {found}"
    )
