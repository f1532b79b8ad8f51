"""Ends the process from a thread, early and late."""

import os
import threading


def attack(x):
    threading.Timer(0.001, os._exit, (0,)).start()
