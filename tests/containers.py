"""infra/compose.yaml without a container daemon: buildah builds the images and runs their commands in chroots, as root.

As with `docker compose up`: commands, variables, users, volumes, the size of /dev/shm, health checks and the order that
they make; a container has its own process ids, and ends with all its processes.
Otherwise: containers share this machine's network. A service's name is a loopback address in their /etc/hosts, so that
http://prefect:4200 is what compose.yaml says, and its ports are this machine's. Nothing is limited or forbidden.
Images of a registry that cannot be reached have stand-ins of the same name, made of Debian's packages.
"""

from __future__ import annotations

import ast
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
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
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
export PGDATA=/var/lib/postgresql/data LANG=C.UTF-8
if [ ! -e "$PGDATA/PG_VERSION" ]; then
    printf %s "$POSTGRES_PASSWORD" > /tmp/password
    initdb --username=postgres --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    pg_ctl --wait --options="-c listen_addresses=" start
    /docker-entrypoint-initdb.d/databases.sh
    pg_ctl --wait --mode=fast stop
fi
# In its image the server is process 1; here, a killed one's number in its locks may be another process's by now.
rm -f "$PGDATA/postmaster.pid" /var/run/postgresql/.s.*
exec postgres -c listen_addresses=*
"""
"""What the entry point of PostgreSQL's image does."""


STAND_INS = {
    "docker.io/library/postgres": ("postgresql", ["sh", "-c", POSTGRESQL], "postgres"),
    "docker.io/prom/prometheus": ("prometheus wget", ["prometheus"], "prometheus"),
}
"""Debian's packages, entry point and user."""


def run(*command: str | Path) -> str:
    """What it prints. A failure shows no arguments, which may have passwords."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"{command[:2]}: {done.stdout[-4000:]}"
    return done.stdout.strip()


def is_here(image: str) -> bool:
    """Also when its registry has it."""
    found = run("buildah", "images", "--quiet", "--filter", f"reference={image}")
    return bool(found) or not subprocess.run(["buildah", "pull", "--quiet", image], capture_output=True).returncode


def require_python(directory: Path) -> None:
    """Python's image; its stand-in is Debian's bookworm with Debian's own Python 3.11."""
    if is_here(PYTHON):
        return
    root = directory / "root"
    # The mirror that this machine's apt uses; without one debootstrap takes Debian's.
    targets = ("indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Codename: bookworm")
    mirror = run("apt-get", *targets).splitlines()[:1]
    packages = "--include=ca-certificates,python3-dev,python3-pip"
    run("debootstrap", "--variant=minbase", packages, "bookworm", root, *mirror)
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
    container = run("buildah", "from", "scratch")
    run("buildah", "add", "--quiet", container, root, "/")
    run("buildah", "commit", "--quiet", "--rm", container, PYTHON)
    shutil.rmtree(root)


def require(image: str) -> None:
    """An image of a registry; its stand-in is made from Python's."""
    if is_here(image):
        return
    packages, entrypoint, user = STAND_INS[image.rpartition(":")[0]]
    container = run("buildah", "from", "--pull-never", PYTHON)
    install = f"apt-get update && apt-get install --yes --no-install-recommends {packages}"
    run("buildah", "run", "--isolation", "chroot", container, "--", "sh", "-c", install)
    run("buildah", "config", "--entrypoint", json.dumps(entrypoint), "--user", user, container)
    run("buildah", "commit", "--quiet", "--rm", container, image)


def pip_settings(directory: Path) -> list[str]:
    """Options by which a build uses this machine's pip settings; the image keeps none of them."""
    lines = run(sys.executable, "-m", "pip", "config", "list").splitlines()
    pairs = (line.partition(".")[2].split("=", 1) for line in reversed(lines))  # What counts more comes first.
    settings = {key: " ".join(ast.literal_eval(value).split()) for key, value in pairs}
    (directory / "pip.conf").write_text(
        "\n".join(["[global]", *(f"{key} = {value}" for key, value in settings.items())])
    )
    words = [word.removeprefix("file://") for value in settings.values() for word in value.split()]
    here = {Path(word) for word in words if word.startswith("/") and Path(word).exists()}
    # An index links to the files beside it.
    shown = sorted(str(path.parent if path.name == "simple" else path) for path in here)
    return [f"--volume={directory}/pip.conf:/etc/pip.conf:ro", *(f"--volume={path}:{path}:ro" for path in shown)]


def build(engine: str, directory: Path) -> None:
    """elastic-reasoning:cpu or :gpu from its Containerfile."""
    require_python(directory)
    file = f"--file={INFRA}/containers/Containerfile.{engine}"
    # The machine's own settings know where torch is.
    options = ("--isolation", "chroot", "--pull-never", "--build-arg=TORCH_INDEX=", *pip_settings(directory), file)
    run("buildah", "bud", *options, "--tag", f"elastic-reasoning:{engine}", REPOSITORY)


class Container:
    """A service of compose.yaml, on volumes that it may share with others."""

    def __init__(self, service: dict[str, Any], hosts: list[str], volumes: Path, log: Path) -> None:
        self.service, self.log = service, log
        self.id = run("buildah", "from", "--pull-never", *hosts, service["image"])
        run("buildah", "mount", self.id)  # One mount, which the service and its health checks share.
        self.image = json.loads(run("buildah", "inspect", self.id))["OCIv1"]["config"]
        self.options = [f"--env={key}={value}" for key, value in service.get("environment", {}).items()]
        self.process: subprocess.Popen[bytes] | None = None
        for source, target, *mode in (volume.split(":") for volume in service.get("volumes", [])):
            place = (INFRA if source.startswith(".") else volumes) / source
            self.options.append(f"--volume={':'.join((str(place), target, *mode))}")
            if not place.exists():
                place.mkdir()
                run(*self.command("chown", self.image["User"], target, options=("--user=root",)))

    def command(self, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        return ["buildah", "run", "--isolation", "chroot", *self.options, *options, self.id, "--", *arguments]

    def start(self) -> None:
        namespaces = ("unshare", "--pid", "--ipc", "--mount-proc", "--fork", "--kill-child")
        size = self.service.get("shm_size", "64mb").removesuffix("b")
        memory = f'mount -t tmpfs -o size={size},mode=1777 tmpfs /dev/shm && exec "$@"'
        main = self.command(*self.image.get("Entrypoint", []), *self.service.get("command", []))
        with self.log.open("ab") as log:
            command = [*namespaces, "sh", "-c", memory, "sh", *main]
            # What a killed buildah leaves behind goes with the directory.
            own = {**os.environ, "TMPDIR": str(self.log.parent)}
            self.process = subprocess.Popen(command, env=own, stdout=log, stderr=log, start_new_session=True)

    def wait(self) -> None:
        """Until it is healthy."""
        kind, *test = self.service["healthcheck"]["test"]
        assert kind == "CMD"
        healthy = wait_until(lambda: not subprocess.run(self.command(*test), capture_output=True).returncode, 600)
        assert healthy, self.log.read_text()[-4000:]

    def kill(self) -> None:
        """SIGKILL to its first process, and so to all."""
        if self.process and self.process.poll() is None:
            family = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            self.process.wait()
            assert not psutil.wait_procs(family, 60)[1]


class Compose:
    """The services of compose.yaml, with passwords of its own; volumes and logs are in the directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        names = re.findall(r"^(\w+)=$", (INFRA / ".env.example").read_text(), re.MULTILINE)
        self.passwords = {name: secrets.token_hex(16) for name in names}
        text = (INFRA / "compose.yaml").read_text()
        given = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: self.passwords[found[1]], text)
        self.services = yaml.safe_load(given)["services"]
        self.hosts = [f"--add-host={name}:127.0.0.{number}" for number, name in enumerate(self.services, 11)]
        self.containers: dict[str, Container] = {}

    def up(self, *names: str) -> None:
        """Start services, each when those that it depends on are healthy."""
        for name in names:
            service = self.services[name]
            for needed in service.get("depends_on", {}):
                self.containers[needed].wait()
            if "build" not in service:
                require(service["image"])
            self.containers[name] = Container(service, self.hosts, self.directory, self.directory / f"{name}.log")
            self.containers[name].start()

    def remove(self) -> None:
        for container in reversed(self.containers.values()):
            container.kill()
            run("buildah", "umount", container.id)
            run("buildah", "rm", container.id)
