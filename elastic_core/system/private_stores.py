"""What the processes of a training agree on and hand to each other is theirs alone.

torch's stores listen where they are called, and nowhere else (`install`).

The process that hosts torch.distributed's TCPStore listens on every interface of its machine (torch 2.11 to 2.13), and
asks for no password: any process that reaches it reads and writes what the processes of a training agree on. Here it
listens on the address that the others are told: loopback on one machine, and on a cluster the one that Ray has the
node by (`ray start --node-ip-address`).

vLLM's processes come here by the entry point `vllm.general_plugins`, verl's by `verl.plugins`. torchrun is this module
run as a program, with torchrun's arguments:

    python -m elastic_core.system.private_stores --standalone --nproc-per-node 8 ...

TransferQueue's sockets (0.1) take what anybody sends who reaches their ports, and unpickle it: on loopback any user of
the machine could run a program as the one who trains. Under `protected` both sides prove that they have the training's
key, and what they say is encrypted: CURVE, ZeroMQ's own. ZeroMQ silently drops a peer that does not.

verl (0.9.1) sends the weights, and handles of GPU memory, as pickles through a Unix socket in /tmp whose name can be
guessed: another user who binds it first ends the training, or runs a program as the one who trains. `hide_weights` puts
it into the private directory. Making a socket there, or connecting to one, takes entering that directory, which only
this user's processes and root's may: no other user's pickle is read. Its name is derived from the training's key: Ray
numbers the jobs of every local cluster alike, and verl removes the socket that it finds in its place.
"""

from __future__ import annotations

import errno
import hmac
import os
import secrets
import socket
import sys
from collections.abc import Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any

from elastic_core.system.private_directory import private_directory, use_private_directory

_QUEUE_KEY = "ELASTIC_QUEUE_KEY"
"""256 bits, as hexadecimal digits."""


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


def protected(runtime_env: dict[str, Any], variables: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Ray's runtime environment of a job whose workers all share a key of their own, and these variables.

    Ray keeps the hook, and with it what is secret. Its `env_vars` stand on each worker's command line while that starts
    (Ray 2.60), where every user of the machine reads them.
    """
    private = {**variables, _QUEUE_KEY: secrets.token_hex(32)}

    def install_variables() -> None:
        os.environ.update(private)
        install_in_worker()

    return {**runtime_env, "worker_process_setup_hook": install_variables}


def install_in_worker() -> None:
    """Have this process put its temporary files where no other user gets, and its queues use the key, once they are
    imported: a process that needs none is not slowed down."""
    import wrapt

    use_private_directory()
    wrapt.register_post_import_hook(_protect, "transfer_queue.utils.zmq_utils")


def _protect(zmq_utils: Any) -> None:
    import zmq
    from zmq.utils.z85 import encode

    # Who knows the server's public key may speak to it, so that is derived from the secret as well, and never sent.
    secret = encode(bytes.fromhex(os.environ[_QUEUE_KEY]))
    public = zmq.curve_public(secret)
    original = zmq_utils.create_zmq_socket

    def create_zmq_socket(ctx: Any, socket_type: Any, *args: Any, **options: Any) -> Any:
        socket = original(ctx, socket_type, *args, **options)
        socket.curve_secretkey, socket.curve_publickey = secret, public
        if socket_type == zmq.ROUTER:
            socket.curve_server = True
        else:
            socket.curve_serverkey = public
        return socket

    zmq_utils.create_zmq_socket = create_zmq_socket


def hide_weights(transfer: Any) -> None:
    """Once `verl.workers.rollout.vllm_rollout.bucketed_weight_transfer` is imported: the trainer's side and vLLM's,
    which are on one machine, meet in the private directory."""
    for side in (transfer.BucketedWeightSender, transfer.BucketedWeightReceiver):
        side.__init__ = _hidden(side.__init__)


def _hidden(init: Any) -> Any:
    @wraps(init)
    def at_private_address(self: Any, zmq_handle: str, *args: Any, **options: Any) -> None:
        key = bytes.fromhex(os.environ.get(_QUEUE_KEY, ""))  # A training of verl's own has none.
        name = hmac.digest(key, zmq_handle.encode(), "sha256").hex()
        # Of 107 characters that a socket's path may have, these are 33.
        init(self, f"ipc://{private_directory() / name[:32]}", *args, **options)

    return at_private_address


if __name__ == "__main__":
    install()
    from torch.distributed.run import main  # What it imports takes the store by name.

    main()
