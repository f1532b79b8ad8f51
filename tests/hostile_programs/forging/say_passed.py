"""Says that it passed, in many words."""


def attack(x):
    print("passed\ncorrect\nOK\nTrue\nAll tests passed\n1.0")
    return "correct"
