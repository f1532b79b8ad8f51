"""Walls against other users of the machine: temporary files, torch's stores, TransferQueue's and verl's sockets.

- Temporary files (`private_directory`): torch, vLLM, verl and Gradio run or unpickle files of guessable names.
- torch's TCPStore (`install`; torch 2.11 to 2.13) listens on every interface without a password; here on the address
  that the others are given: loopback, or the node's address in Ray. vLLM's processes come here by the entry point
  `vllm.general_plugins` where we started them (`VARIABLE`), verl's by `verl.plugins`. torchrun is this module as a
  program: python -m elastic_core.system.private_stores --standalone --nproc-per-node 8 ...
- TransferQueue's sockets (0.1; `protected`) unpickle what reaches them; here both sides have the training's key and
  encrypt by ZeroMQ's CURVE, which silently drops other peers.
- verl's weights (0.9.1; `hide_weights`) are pickles through a Unix socket in /tmp; here it lies in the private
  directory, under a name derived from the key: Ray numbers the jobs of every local cluster alike.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import secrets
import socket
import stat
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from elastic_core.errors import UserError
from elastic_core.system.network import bypass_proxies

VARIABLE = "ELASTIC_PRIVATE_STORES"  # Environment variable of vLLM's processes that are ours.
_LONGEST = 29
"""Characters of TMPDIR. A socket's path may have 107, and Ray's names below TMPDIR take 78 (`ray_cluster`)."""
_QUEUE_KEY = "ELASTIC_QUEUE_KEY"  # 256 bits, as hexadecimal digits.


def private_directory() -> Path:
    """The directory for temporary files where that is private; else this user's in it, the same for all processes.
    Raises UserError when something else has its name, or other users may enter it."""
    shared = Path(tempfile.gettempdir())
    if _is_private(shared):
        return shared
    return _own_directory(shared)


def _own_directory(shared: Path) -> Path:
    directory = shared / f"elastic-{os.getuid()}"
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if not _is_private(directory):
        raise UserError(
            f"{directory} is not a directory that only user {os.getuid()} may enter; remove it, or set TMPDIR to "
            "another directory"
        )
    return directory


def use_private_directory(*, new_if_taken: bool = False) -> None:
    """Have this process and its later children put temporary files into `private_directory`, under a name that leaves
    room for those of sockets, and raise as it does. `new_if_taken` makes a directory of another name instead: no other
    user can keep a command from starting."""
    try:
        directory = private_directory()
    except UserError:
        if not new_if_taken:
            raise
        directory = Path(tempfile.mkdtemp(prefix="elastic-"))
    os.environ["TMPDIR"] = tempfile.tempdir = str(_short(directory))


def _short(directory: Path) -> Path:
    """Return a path of at most `_LONGEST` characters to a directory: a link in /tmp if it is longer, as under Slurm."""
    # Without /tmp, only sockets with long names will fail.
    return directory if len(str(directory)) <= _LONGEST else short_link(directory) or directory


def short_link(directory: Path) -> Path | None:
    """A link to a directory, in /tmp and without a space in its path, that other users cannot change; None without
    /tmp."""
    with suppress(UserError, OSError):
        link = _own_directory(Path("/tmp")) / hashlib.sha256(bytes(directory)).hexdigest()[:5]
        with suppress(FileExistsError):
            link.symlink_to(directory)
        if link.readlink() == directory:
            return link
    return None


def _is_private(directory: Path) -> bool:
    # Another user's link is not followed.
    found = directory.stat() if directory.is_symlink() and _is_private(directory.parent) else directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def install_in_vllm() -> None:
    """`install` in processes of ours: vLLM calls it in every process of an environment that has this package."""
    if os.environ.get(VARIABLE):
        install()


def install() -> None:
    """Have the stores of this process listen on the host's address only; a second call changes nothing."""
    import torch.distributed as distributed

    original = distributed.TCPStore
    if getattr(original, "listens_where_it_is_called", False):
        return

    class TCPStore(original):  # type: ignore[misc, valid-type]
        """torch's, with a socket that is bound to the host's address, and with gloo on that network."""

        listens_where_it_is_called = True

        def __init__(self, host_name: str, port: int, *args: Any, **options: Any) -> None:
            # By position come world_size and is_master.
            is_master = args[1] if len(args) > 1 else options.get("is_master", False)
            # By itself gloo takes the address of the machine's name, which Debian's /etc/hosts says is loopback.
            if "GLOO_SOCKET_IFNAME" not in os.environ and (interface := _interface_to(host_name)):
                os.environ["GLOO_SOCKET_IFNAME"] = interface
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


def _interface_to(host: str) -> str | None:
    """The network interface by which this machine reaches a host, or has its address; None where no name is known."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # Sends nothing.
        own = probe.getsockname()[0]
    found = psutil.net_if_addrs().items()
    return next((name for name, addresses in found if own in {each.address for each in addresses}), None)


def _listener(host: str, port: int) -> socket.socket | None:
    """A socket for torch to listen on; None where a store of this process has the port, which torch then shares."""
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
    """Ray's runtime environment of a job with workers that share a new key and these variables. They are in the hook:
    every user of the machine can read `env_vars` on a starting worker's command line (Ray 2.60)."""
    private = {**variables, _QUEUE_KEY: secrets.token_hex(32)}

    def install_variables() -> None:
        os.environ.update(private)
        install_in_worker()

    return {**runtime_env, "worker_process_setup_hook": install_variables}


def install_in_worker() -> None:
    """Have this process use the private directory, no proxy to itself, and the key once it imports TransferQueue."""
    import wrapt

    use_private_directory()
    bypass_proxies()
    wrapt.register_post_import_hook(_protect, "transfer_queue.utils.zmq_utils")


def _protect(zmq_utils: Any) -> None:
    import zmq
    from zmq.utils.z85 import encode

    # A peer that knows the server's public key may speak to it: it is derived from the secret, and never sent.
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
    """Let trainer and vLLM, on one machine, meet in the private directory, once
    `verl.workers.rollout.vllm_rollout.bucketed_weight_transfer` (`transfer`) is imported."""

    def hidden(init: Any) -> Any:
        @wraps(init)
        def at_private_address(self: Any, zmq_handle: str, *args: Any, **options: Any) -> None:
            key = bytes.fromhex(os.environ.get(_QUEUE_KEY, ""))  # A training by verl alone has none.
            name = hmac.digest(key, zmq_handle.encode(), "sha256").hex()
            # Of 107 characters that a socket's path may have, these are 33.
            init(self, f"ipc://{private_directory() / name[:32]}", *args, **options)

        return at_private_address

    for side in (transfer.BucketedWeightSender, transfer.BucketedWeightReceiver):
        side.__init__ = hidden(side.__init__)


if __name__ == "__main__":
    install()
    from torch.distributed.run import main  # Its modules import the store by name.

    main()
