"""The Ray cluster a task runs on: joined by address, or started on this machine and stopped again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from elastic_core.accelerators import count_gpus
from elastic_core.ray_cluster import RayCluster, local_cluster


@contextmanager
def ray_cluster(running: RayCluster | None, nodes: int = 1, pretended_gpus: int | None = None) -> Iterator[RayCluster]:
    """The running cluster, or a local one that lasts as long as the context.

    Args:
        nodes: of a local cluster.
        pretended_gpus: how many GPUs each of them shall believe in, whatever the machine has; None for those of the
            machine that this process may use.
    """
    if running is not None:
        yield running
        return
    # Without any, verl is made to believe in one.
    gpus = pretended_gpus or max(1, count_gpus())
    with local_cluster(nodes=nodes, cpus=32 * gpus, gpus=gpus) as local:
        yield local


@contextmanager
def connected(cluster: RayCluster) -> Iterator[None]:
    """This process as a driver of the cluster, for actors of its own."""
    import ray

    ray.init(address=cluster.gcs, log_to_driver=False, namespace="elastic")
    try:
        yield
    finally:
        ray.shutdown()
