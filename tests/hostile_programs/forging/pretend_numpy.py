"""Returns an object that says it is a number of numpy."""


class int64:
    __module__ = "numpy"
    shape = ()

    def item(self):
        return self


def attack(x):
    return int64()
