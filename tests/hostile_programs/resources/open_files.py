"""Opens files without end."""


def attack(x):
    files = []
    while True:
        files.append(open("/dev/null"))
