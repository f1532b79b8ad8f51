"""Fills every other place that could be in memory."""


def attack(x):
    for folder in ("/dev/shm", "/dev", "/run", "/var/tmp", "/", "/opt", "/opt/harness"):
        with open(f"{folder}/block", "wb") as file:
            file.write(b"x" * (1 << 20))
