"""Sends values of kinds that do not exist."""

import os
import struct


def attack(x):
    answers = [b'{"value": {"object": 1}}', b'{"object": 0}', b'{"value": {"dict": 5}}', b'{"a":1, "b":1}']
    answers += [b'{"value": {"complex": ["nan"]}}', b'{"value": {"complex": "inf"}}', b'{"object": 1e999}']
    for answer in answers:
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, struct.pack("!I", len(answer)) + answer)
            except OSError:
                pass
