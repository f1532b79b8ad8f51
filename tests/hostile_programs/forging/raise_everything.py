"""Raises an exception that lies about itself."""


class Liar(BaseException):
    __class__ = SystemExit

    def __str__(self):
        raise Liar

    def __eq__(self, other):
        return True


def attack(x):
    raise Liar
