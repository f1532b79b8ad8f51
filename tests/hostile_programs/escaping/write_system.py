"""Writes into the system."""


def attack(x):
    for folder in ("/etc", "/usr/lib", "/lib", "/opt/python", "/opt/python/lib/python3.11", "/root", "/home"):
        try:
            open(f"{folder}/escaped", "w").write("out")
            return "written"
        except OSError:
            pass
