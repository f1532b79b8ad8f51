"""Returns a number that is equal to everything."""


class Equal(int):
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def __hash__(self):
        return 0


def attack(x):
    return Equal(1)
