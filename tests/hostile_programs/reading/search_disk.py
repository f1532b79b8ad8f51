"""Searches the disk for files that are called secret."""

import os


def attack(x):
    for folder, folders, files in os.walk("/"):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/usr/lib", "/lib")]
        for name in files:
            if name == "secret":
                return open(os.path.join(folder, name)).read()
