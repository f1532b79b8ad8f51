"""torch's stores listen where they are called, and nowhere else.

The process that hosts torch.distributed's TCPStore listens on every interface of its machine (torch 2.11 to 2.13), and
a store asks nobody for a password: whoever reaches it reads and writes what the processes of a training agree on. Here
it listens on the address that the others are told: loopback on one machine, and on a cluster the one that Ray has the
node by (`ray start --node-ip-address`).

vLLM's processes come here by the entry point `vllm.general_plugins`, verl's by `verl.plugins`. torchrun is this module
run as a program, with torchrun's arguments:

    python -m elastic_core.private_stores --standalone --nproc-per-node 8 ...
"""

from __future__ import annotations

import errno
import socket
import sys
from typing import Any


def install() -> None:
    """For this process, from now on; once is enough."""
    import torch.distributed as distributed

    original = distributed.TCPStore
    if getattr(original, "listens_where_it_is_called", False):
        return

    class TCPStore(original):  # type: ignore[misc, valid-type]
        """torch's, with a socket that is bound to the host's own address."""

        listens_where_it_is_called = True

        def __init__(self, host_name: str, port: int, *args: Any, **options: Any) -> None:
            # By position come world_size and is_master.
            is_master = args[1] if len(args) > 1 else options.get("is_master", False)
            if is_master and options.get("master_listen_fd") is None:
                listener = _listener(host_name, port)
                if listener is not None:
                    port = listener.getsockname()[1]
                    options["master_listen_fd"] = listener.detach()
            super().__init__(host_name, port, *args, **options)

    distributed.TCPStore = TCPStore
    for module in list(sys.modules.values()):  # Those that have taken it by its name.
        if getattr(module, "__dict__", {}).get("TCPStore") is original:
            module.__dict__["TCPStore"] = TCPStore


def _listener(host: str, port: int) -> socket.socket | None:
    """A socket for torch to listen on; None where a store of this process has the port, which torch then shares.

    Raises:
        OSError: when this machine does not have the address.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise OSError(
            error.errno,
            f"torch's store cannot listen on {host} port {port} ({error.strerror}); on a cluster "
            "`ray start --node-ip-address` names an address that the node has",
        ) from error
    return listener


if __name__ == "__main__":
    install()
    from torch.distributed.run import main  # What it imports takes the store by name.

    main()
