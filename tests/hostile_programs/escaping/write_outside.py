"""Writes into a folder outside."""


def attack(x):
    open("@CANARY@/escaped", "w").write("out")
