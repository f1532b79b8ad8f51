"""Returns a list of objects that are equal to everything."""


class Equal(list):
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False


def attack(x):
    return Equal()
