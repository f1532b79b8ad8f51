"""infra/compose.yaml without a container daemon: buildah builds the images and runs their commands in a chroot, as root.

As with `docker compose up`: commands, variables, users, volumes, the size of /dev/shm, health checks and the order that
they make; a container has its own process ids, and ends with all its processes.
Otherwise: all containers share this machine's network. A service's name is a loopback address in their /etc/hosts, so
that http://prefect:4200 is what it is in compose.yaml, and its ports are this machine's. Nothing is limited or forbidden.
Images of a registry that cannot be reached have stand-ins of the same name, made of Debian's packages.
"""

from __future__ import annotations

import ast
import configparser
import json
import re
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from elastic_core.system.retry import wait_until

REPOSITORY = Path(__file__).parents[1]
INFRA = REPOSITORY / "infra"
PYTHON = "docker.io/library/python:3.11-slim-bookworm"
POSTGRESQL = """
set -eu
if [ ! -e "$PGDATA/PG_VERSION" ]; then
    printf %s "$POSTGRES_PASSWORD" > /tmp/password
    initdb --username=postgres --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    pg_ctl --wait --options="-c listen_addresses=" start
    /docker-entrypoint-initdb.d/databases.sh
    pg_ctl --wait --mode=fast stop
fi
exec postgres -c listen_addresses=*
"""
"""What the entry point of PostgreSQL's image does."""


@dataclass(frozen=True)
class StandIn:
    """Of an image: Debian's packages, and the image's entry point and user."""

    packages: tuple[str, ...]
    entrypoint: tuple[str, ...]
    user: str
    environment: tuple[str, ...] = ()


STAND_INS = {
    "docker.io/library/postgres": StandIn(
        ("postgresql",),
        ("sh", "-c", POSTGRESQL),
        "postgres",
        ("PATH=/usr/lib/postgresql/15/bin:/usr/bin:/bin", "PGDATA=/var/lib/postgresql/data", "LANG=C.UTF-8"),
    ),
    "docker.io/prom/prometheus": StandIn(("prometheus", "wget"), ("prometheus",), "prometheus"),
}


def run(*command: str | Path, **settings: Any) -> str:
    """What it prints. A failure tells the program and the end of its output, not arguments with passwords."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **settings)
    assert done.returncode == 0, f"{command[:2]}: {done.stdout[-4000:]}"
    return done.stdout.strip()


def have(image: str) -> bool:
    """Whether it is here, or comes from its registry."""
    found = run("buildah", "images", "--quiet", "--filter", f"reference={image}")
    return bool(found) or not subprocess.run(["buildah", "pull", "--quiet", image], capture_output=True).returncode


def commit(container: str, image: str) -> None:
    run("buildah", "commit", "--quiet", "--rm", container, image)


def require_python(directory: Path) -> None:
    """Python's image, or Debian's bookworm with its own Python 3.11."""
    if have(PYTHON):
        return
    root = directory / "root"
    packages = "--include=ca-certificates,python3-dev,python3-pip"
    # The mirror that this machine's apt uses; debootstrap knows Debian's own.
    targets = ("indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Codename: bookworm")
    mirror = run("apt-get", *targets).splitlines()[:1]
    run("debootstrap", "--variant=minbase", packages, "bookworm", root, *mirror)
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
    container = run("buildah", "from", "scratch")
    run("buildah", "add", "--quiet", container, root, "/")
    commit(container, PYTHON)
    shutil.rmtree(root)


def require(image: str) -> None:
    """An image of a registry, or its stand-in. Needs Python's."""
    if have(image):
        return
    stand_in = STAND_INS[image.rpartition(":")[0]]
    container = run("buildah", "from", "--pull-never", PYTHON)
    install = f"apt-get update && apt-get install --yes --no-install-recommends {' '.join(stand_in.packages)}"
    run("buildah", "run", "--isolation", "chroot", container, "--", "sh", "-c", install)
    run("buildah", "config", "--entrypoint", json.dumps(stand_in.entrypoint), "--user", stand_in.user, container)
    for variable in stand_in.environment:
        run("buildah", "config", "--env", variable, container)
    commit(container, image)


def pip_volumes(directory: Path) -> list[str]:
    """Options that let a build use this machine's pip settings, of which nothing stays in the image."""
    settings = configparser.RawConfigParser()
    settings["global"] = {}
    for line in run(sys.executable, "-m", "pip", "config", "list").splitlines():
        name, _, value = line.partition("=")
        if (section := name.partition(".")[0]) in (":env:", "global"):  # In the order in which they count.
            settings["global"].setdefault(name.removeprefix(f"{section}."), ast.literal_eval(value))
    with (directory / "pip.conf").open("w") as file:
        settings.write(file)
    words = " ".join(settings["global"].values()).split()
    named = {Path(word.removeprefix("file://")) for word in words if word.startswith(("/", "file://"))}
    # An index links to files beside it.
    here = {path.parent if path.name == "simple" else path for path in named if path.exists()}
    volumes = [f"{directory}/pip.conf:/etc/pip.conf:ro", *(f"{path}:{path}:ro" for path in sorted(here))]
    return [f"--volume={volume}" for volume in volumes]


def build(engine: str, directory: Path) -> None:
    """elastic-reasoning:cpu or :gpu from its Containerfile."""
    require_python(directory)
    file = INFRA / "containers" / f"Containerfile.{engine}"
    how = ("--isolation", "chroot", "--pull-never", *pip_volumes(directory))
    run("buildah", "bud", *how, "--file", file, "--tag", f"elastic-reasoning:{engine}", REPOSITORY)


@dataclass
class Container:
    """A service of compose.yaml."""

    service: dict[str, Any]
    id: str
    entrypoint: list[str]
    options: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def command(self, *arguments: str) -> list[str]:
        return ["buildah", "run", "--isolation", "chroot", *self.options, self.id, "--", *arguments]

    def start(self) -> None:
        size = self.service.get("shm_size", "64mb").removesuffix("b")
        own = f'mount -t tmpfs -o size={size},mode=1777 tmpfs /dev/shm && exec "$@"'
        namespaces = ("unshare", "--pid", "--ipc", "--mount-proc", "--fork", "--kill-child")
        command = self.command(*self.entrypoint, *self.service.get("command", []))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*namespaces, "sh", "-c", own, "sh", *command], stdout=log, stderr=log, start_new_session=True
            )

    def is_healthy(self) -> bool:
        assert self.process and self.process.poll() is None, self.log.read_text()[-4000:]
        kind, *test = self.service["healthcheck"]["test"]
        assert kind == "CMD"
        return not subprocess.run(self.command(*test), capture_output=True).returncode

    def kill(self) -> None:
        """SIGKILL to its first process, with which the kernel ends the others."""
        if self.process and self.process.poll() is None:
            family = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            self.process.wait()
            assert not psutil.wait_procs(family, 60)[1]


@dataclass
class Compose:
    """The services of compose.yaml, with passwords of its own."""

    directory: Path
    passwords: dict[str, str] = field(init=False)
    services: dict[str, Any] = field(init=False)
    containers: dict[str, Container] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = re.findall(r"^(\w+)=$", (INFRA / ".env.example").read_text(), re.MULTILINE)
        self.passwords = {name: secrets.token_hex(16) for name in names}
        text = (INFRA / "compose.yaml").read_text()
        given = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: self.passwords[found[1]], text)
        self.services = yaml.safe_load(given)["services"]

    def addresses(self) -> dict[str, str]:
        return {name: f"127.0.0.{number}" for number, name in enumerate(self.services, 11)}

    def create(self, name: str) -> Container:
        """Its container, on volumes that other services may share."""
        service = self.services[name]
        hosts = [f"--add-host={host}:{address}" for host, address in self.addresses().items()]
        id = run("buildah", "from", "--pull-never", *hosts, service["image"])
        # Mounted here as well, it is one mount for the service and its health checks.
        run("buildah", "mount", id)
        image = json.loads(run("buildah", "inspect", id))["OCIv1"]["config"]
        options = [f"--env={key}={value}" for key, value in service.get("environment", {}).items()]
        for volume in service.get("volumes", []):
            source, target, *mode = volume.split(":")
            place = INFRA / source if source.startswith(".") else self.directory / source
            options.append(f"--volume={':'.join([str(place.resolve()), target, *mode])}")
            if not place.exists():
                place.mkdir()
                own = ("--isolation", "chroot", "--user", "root", options[-1], id)
                run("buildah", "run", *own, "--", "chown", image["User"], target)
        log = self.directory / f"{name}.log"
        self.containers[name] = Container(service, id, image.get("Entrypoint") or [], options, log)
        return self.containers[name]

    def up(self, *names: str) -> None:
        """Start services, each when those that it depends on are healthy."""
        for name in names:
            for needed in self.services[name].get("depends_on", {}):
                self.wait(needed)
            self.create(name).start()

    def wait(self, name: str, seconds: float = 600) -> None:
        """Until it is healthy."""
        assert wait_until(self.containers[name].is_healthy, seconds, every=1), f"{name} is not healthy"

    def remove(self) -> None:
        for container in reversed(self.containers.values()):
            container.kill()
            run("buildah", "umount", container.id)
            run("buildah", "rm", container.id)
