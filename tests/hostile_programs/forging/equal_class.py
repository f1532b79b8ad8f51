"""Returns a class whose metaclass is equal to everything."""


class Meta(type):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


class Equal(metaclass=Meta):
    pass


def attack(x):
    return Equal
