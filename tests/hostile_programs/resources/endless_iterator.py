"""Answers with a list that never ends being read."""


class Endless(list):
    def __iter__(self):
        while True:
            yield 1


def attack(x):
    return Endless()
