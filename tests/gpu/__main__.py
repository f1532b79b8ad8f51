"""`python -m tests.gpu`: run the check; the same command after a crash goes on."""

import os
import sys

from elastic_core.errors import UserError
from elastic_core.system.processes import attended
from flows.runtime import environment


def main() -> None:
    environment.prepare()
    from tests.gpu.check import gpu_check
    from tests.gpu.evidence import REPOSITORY

    # Children find the modules of tests, though they import nothing from where they start.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))

    try:
        said, sound = gpu_check(print)
    except UserError as error:
        sys.exit(f"error: {error}")
    print(said)
    sys.exit(0 if sound else 1)


if __name__ == "__main__":
    with attended("make gpu"):
        main()
