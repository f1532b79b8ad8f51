"""Register with a Prefect server what this repository wants it to know: work pool, deployments, automation.

`elastic up` does it with the server it starts; `python -m flows.services.deployments` with the one of PREFECT_API_URL.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from elastic_core.errors import UserError

WORK_POOL = "elastic"
AUTOMATION = Path("infra/prefect/automation.yaml")


def register(project: Path, environment: Mapping[str, str] | None = None) -> None:
    """Create work pool and automation unless they exist, and register every deployment of prefect.yaml.

    prefect.yaml names no directory: Prefect records `project` in the server as each run's working directory.

    Args:
        project: directory of prefect.yaml.
        environment: names the server by PREFECT_API_URL; None takes the process's own.

    Raises:
        UserError: Prefect refuses something; the end of its own words is in the message.
    """
    environment = {**(os.environ if environment is None else environment), "NO_COLOR": "1"}

    def prefect(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "prefect", "--no-prompt", *arguments]
        try:
            return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=180)
        except subprocess.TimeoutExpired as error:
            raise UserError(f"`prefect {' '.join(arguments)}` did not end within {error.timeout:.0f} s") from error

    # An existing pool or automation may carry the user's own limits: it is looked for, never overwritten.
    commands = []
    if prefect("work-pool", "inspect", WORK_POOL).returncode:
        commands.append(["work-pool", "create", WORK_POOL, "--type", "process"])
    commands.append(["deploy", "--all"])
    automation = project / AUTOMATION
    if automation.exists() and prefect("automation", "inspect", _name(automation)).returncode:
        commands.append(["automation", "create", "--from-file", str(automation)])
    for command in commands:
        done = prefect(*command)
        if done.returncode:
            reason = "\n".join((done.stdout + done.stderr).rstrip().splitlines()[-5:])
            server = environment.get("PREFECT_API_URL")
            raise UserError(f"`prefect {' '.join(command)}` failed in {project} with the server {server}:\n{reason}")


def _name(automation: Path) -> str:
    import yaml

    return str(yaml.safe_load(automation.read_text())["name"])


if __name__ == "__main__":
    try:
        register(Path.cwd())
    except UserError as error:
        sys.exit(f"error: {error}")
