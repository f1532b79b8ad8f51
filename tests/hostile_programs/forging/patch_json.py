"""Replaces the encoder of answers."""

import json


def attack(x):
    json.dumps = lambda *_, **__: '{"value": true}'
    json.loads = lambda *_, **__: ["get", ["x"]]
