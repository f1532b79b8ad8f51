"""Register with a Prefect server what this repository wants it to know: work pool, deployments, automation.

`elastic up` does it with its server; `python -m flows.commands.services.deployments` with PREFECT_API_URL.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from elastic_core.errors import UserError
from elastic_core.system.network import bypass_proxies
from elastic_core.system.processes import PYTHON

WORK_POOL = "elastic"
FILE = Path("prefect.yaml")
AUTOMATION = Path("infra/prefect/automation.yaml")


def deployments_of(file: Path) -> list[dict[str, Any]]:
    """Those that a prefect.yaml writes out; where it has a section `presets`, also those of every preset, with the work
    pool and the limit of that section. A deployment that is written out takes the place of its preset's."""
    document = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    written: list[dict[str, Any]] = document.get("deployments") or []
    if (common := document.get("presets")) is None:
        return written
    known = {(each.get("name"), each.get("entrypoint")) for each in written}
    generated = [{**each, **common} for each in _of_presets() if (each["name"], each["entrypoint"]) not in known]
    return [*generated, *written]


def _of_presets() -> Iterator[dict[str, Any]]:
    from flows import presets
    from flows.commands.doctor.resources import gpu_demands

    for name in presets.names():
        settings, purpose = presets.resolve(name), presets.purpose(name)
        flow = "ablation" if settings.ablation else "pipeline"
        device = "gpu" if gpu_demands(settings) else "cpu"
        variants = {"ablation" if settings.ablation else "pipeline": purpose}
        if not settings.ablation and (name.startswith("evaluate-") or device == "cpu"):
            variants["sweep"] = f"The sweep alone: {purpose}"
        for flow, description in variants.items():
            first = (name, flow) == ("embedded", "pipeline")
            yield {
                "name": name,
                "description": f"Begin here. {description}" if first else description,
                "entrypoint": f"flows/{'sweep' if flow == 'sweep' else 'pipeline'}.py:{flow}",
                "parameters": {"preset": name},
                "tags": [device, flow, *(["begin-here"] if first else [])],
            }


def register(project: Path, environment: Mapping[str, str] | None = None) -> None:
    """Create work pool and automation unless they exist, and register every deployment of prefect.yaml in `project`,
    which Prefect records as each run's working directory. The environment, by default the process's own, names the
    server by PREFECT_API_URL. Raises UserError, with the end of Prefect's message, when it refuses something."""
    environment = {**(os.environ if environment is None else environment), "NO_COLOR": "1"}

    def prefect(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*PYTHON, "-m", "prefect", "--no-prompt", *arguments]
        try:
            return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=180)
        except subprocess.TimeoutExpired as error:
            raise UserError(f"`prefect {' '.join(arguments)}` did not end within {error.timeout:.0f} s") from error

    def succeed(*arguments: str) -> str:
        done = prefect(*arguments)
        if done.returncode:
            reason = "\n".join((done.stdout + done.stderr).rstrip().splitlines()[-5:])
            server = environment.get("PREFECT_API_URL")
            raise UserError(f"`prefect {' '.join(arguments)}` failed in {project} with the server {server}:\n{reason}")
        return done.stdout

    # An existing pool or automation may carry the user's own limits: it is looked for, never overwritten.
    if prefect("work-pool", "inspect", WORK_POOL).returncode:
        succeed("work-pool", "create", WORK_POOL, "--type", "process")
    automation = project / AUTOMATION
    if automation.exists():
        name = str(yaml.safe_load(automation.read_text())["name"])
        if prefect("automation", "inspect", name).returncode:
            succeed("automation", "create", "--from-file", str(automation))
    # To register a deployment again would set it going again. The server answers with 200 at most: only ours count.
    deployments = deployments_of(project / FILE)
    wanted = {"paused": {"eq_": True}, "name": {"any_": [each["name"] for each in deployments]}}
    found = succeed("api", "POST", "/deployments/filter", "--data", json.dumps({"deployments": wanted}))
    paused = [(each["name"], each["entrypoint"]) for each in json.loads(found)]
    deployments = [
        {**each, "paused": True} if (each["name"], each["entrypoint"]) in paused else each for each in deployments
    ]
    with tempfile.TemporaryDirectory() as directory:
        full = Path(directory) / FILE
        full.write_text(yaml.safe_dump({"name": project.name, "deployments": deployments}))
        succeed("deploy", "--all", "--prefect-file", str(full))


if __name__ == "__main__":
    bypass_proxies()
    try:
        register(Path.cwd())
    except UserError as error:
        sys.exit(f"error: {error}")
