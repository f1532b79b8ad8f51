"""Programs that run inside the sandbox, under `python -I -S -B`, where this package is called `harness`.

They hold nothing worth stealing: no expected output of "stdin" and "functional" problems ever enters the sandbox, and
the test program of "check" problems runs in a sandbox of its own (`checker`), apart from the model's program
(`candidate`). Only the standard library is imported, and only relatively among themselves.
"""
