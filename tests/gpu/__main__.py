"""`python -m tests.gpu`: run the check; the same command after a crash goes on."""

import argparse
import os
import sys
from math import inf

from elastic_core.errors import UserError
from elastic_core.system.processes import attended
from flows.runtime import environment


def main(minutes: float) -> None:
    environment.prepare()
    from tests.gpu.check import gpu_check
    from tests.gpu.evidence import REPOSITORY

    # Children find the modules of tests, though they import nothing from where they start.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))

    try:
        said, sound = gpu_check(print, minutes)
    except UserError as error:
        sys.exit(f"error: {error}")
    print(said)
    sys.exit(0 if sound else 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=inf, help="leave out the steps that take longer together")
    with attended("make gpu"):
        main(parser.parse_args().minutes)
