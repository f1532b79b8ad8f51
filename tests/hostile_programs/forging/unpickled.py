"""Returns an object that runs code where it is unpickled."""


class Payload:
    def __reduce__(self):
        return (open, ("@CANARY@/escaped", "w"))


def attack(x):
    return Payload()
