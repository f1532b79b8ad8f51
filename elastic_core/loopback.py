"""Where processes of one machine listen for each other, and nobody else reaches them."""

HOST = "127.0.0.1"
ON_LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Environment: by themselves gloo and NCCL listen on the interface that other machines reach this one by."""
