"""Changes the variables of those that called it."""

import ctypes
import sys


def attack(x):
    frame = sys._getframe()
    while frame:
        for name in list(frame.f_locals):
            if name in ("answer", "value", "status", "expected", "error"):
                frame.f_locals[name] = None
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(1))
        frame = frame.f_back
    sys.settrace(lambda *_: None)
