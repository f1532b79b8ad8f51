"""Never ends."""


def attack(x):
    while True:
        pass
