"""Answers with itself inside itself."""


def attack(x):
    answer = []
    answer.append(answer)
    return answer
