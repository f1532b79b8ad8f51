"""Is interrupted by alarms without end."""

import signal


def attack(x):
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
    while True:
        signal.pause()
