"""Returns an object that is equal to everything."""


class Equal:
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def __bool__(self):
        return True

    def __hash__(self):
        return 0


def attack(x):
    return Equal()
