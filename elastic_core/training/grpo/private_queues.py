"""TransferQueue answers the processes of its own training only.

Its sockets (TransferQueue 0.1) take what anybody sends who reaches their ports, and unpickle it: on loopback any user
of the machine could run a program as the one who trains. Here both sides prove that they have the training's key, and
what they say is encrypted: CURVE, ZeroMQ's own. ZeroMQ drops without a word whoever does not.

    ray.init(runtime_env=protected(runtime_env))
"""

from __future__ import annotations

import os
import secrets
from typing import Any

_VARIABLE = "ELASTIC_QUEUE_KEY"
"""256 bits, as hexadecimal digits. In the environment, which only their user may read of a process."""


def protected(runtime_env: dict[str, Any]) -> dict[str, Any]:
    """Ray's runtime environment of a job whose workers all share a key of their own."""
    variables = {**runtime_env.get("env_vars", {}), _VARIABLE: secrets.token_hex(32)}
    return {**runtime_env, "env_vars": variables, "worker_process_setup_hook": f"{__name__}.install"}


def install() -> None:
    """Have this process's queues use the key, once they are imported: a process that needs none is not slowed down."""
    import wrapt

    wrapt.register_post_import_hook(_protect, "transfer_queue.utils.zmq_utils")


def _protect(zmq_utils: Any) -> None:
    import zmq
    from zmq.utils.z85 import encode

    # Who knows the server's public key may speak to it, so that is derived from the secret as well, and never sent.
    secret = encode(bytes.fromhex(os.environ[_VARIABLE]))
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
