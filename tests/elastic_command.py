"""The `elastic` command as a user runs it, in a runs directory of the test's own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from flows.commands.cli import command

ELASTIC = str(Path(sys.executable).with_name("elastic"))


BEHIND_PROXY = {"http_proxy": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""}
"""Of a user behind a proxy that knows nothing of this machine: nobody answers there."""


def environment(runs: Path) -> dict[str, str]:
    return {**os.environ, **BEHIND_PROXY, "ELASTIC_RUNS": str(runs)}


def elastic(*arguments: str, runs: Path, timeout: float = 1700) -> subprocess.CompletedProcess[str]:
    """Run to the end; stdout and stderr together."""
    return subprocess.run(
        [ELASTIC, *arguments],
        env=environment(runs),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        check=False,
    )


def elastic_here(*arguments: str, runs: Path) -> subprocess.CompletedProcess[str]:
    """The same in this process, which saves seconds of imports; for what starts no flow, as that would outlive it."""
    output, status = io.StringIO(), 0
    with (
        patch.dict(os.environ, environment(runs)),
        patch.object(sys, "argv", ["elastic", *arguments]),
        redirect_stdout(output),
        redirect_stderr(output),
    ):
        try:
            command()
        except SystemExit as end:
            status = int(end.code or 0)
    return subprocess.CompletedProcess(sys.argv, status, output.getvalue())
