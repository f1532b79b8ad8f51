"""A further node of a local Ray cluster, for as long as this process runs. `ray start` joins no cluster on loopback, so
this does what Ray's own `cluster_utils.Cluster.add_node` does.

    python -m elastic_core.training.local_node GCS_ADDRESS CPUS GPUS OBJECT_STORE_BYTES
"""

import signal
import sys


def main() -> None:
    """Join, and stay until SIGTERM."""
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    gcs, cpus, gpus, object_store = sys.argv[1:]
    parameters = RayParams(
        gcs_address=gcs,
        node_ip_address=gcs.partition(":")[0],
        num_cpus=int(cpus),
        num_gpus=int(gpus),
        object_store_memory=int(object_store),
        min_worker_port=0,
        max_worker_port=0,
        node_manager_port=0,
        dashboard_agent_listen_port=None,
        include_log_monitor=False,
    )
    node = Node(parameters, head=False, shutdown_at_exit=True, spawn_reaper=True)
    signal.sigwait([signal.SIGTERM, signal.SIGINT])
    node.kill_all_processes(check_alive=False, allow_graceful=True)


if __name__ == "__main__":
    main()
