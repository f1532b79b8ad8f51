"""Returns an object that says it is a text."""


class Liar:
    __class__ = str

    def __eq__(self, other):
        return True


def attack(x):
    return Liar()
