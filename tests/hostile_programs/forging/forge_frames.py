"""Writes every message of the protocol to every descriptor."""

import os
import struct


def attack(x):
    answers = [
        b"ready",
        b"Vcorrect",
        b'{"verdict": "correct"}',
        b'{"value": true}',
        b'{"value": null}',
        b'{"names": ["solve"]}',
        b"\0\0\0\0",
    ]
    for descriptor in range(64):
        for answer in answers:
            try:
                os.write(descriptor, struct.pack("!I", len(answer)) + answer)
            except OSError:
                pass
