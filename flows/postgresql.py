"""A PostgreSQL server of our own: on loopback, with a role and a database for each service that asks for one.

The roles' passwords lie in a file that libpq and asyncpg read by themselves (PGPASSFILE), so that none is on a command
line, in a URL or in the environment. Nobody but these roles can log in, the superuser included. Not promised: upgrades
of the data directory to another major version of PostgreSQL.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from elastic_core.errors import UserError
from flows.passwords import new_password, write_private
from flows.supervisor import Service

HOST = "127.0.0.1"
APT_PACKAGE = "postgresql"
_PACKAGED = Path("/usr/lib/postgresql")
"""Where Debian and Ubuntu put each major version, beside PATH."""


class Cluster(NamedTuple):
    """What PostgreSQL calls a cluster: a data directory and the server over it."""

    binaries: Path
    directory: Path
    """Holds `data` and `pgpass`."""
    port: int
    user: str | None
    """Who the server runs as; None is whoever started us. PostgreSQL refuses to run as root."""

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def passwords(self) -> Path:
        """PGPASSFILE of the clients."""
        return self.directory / "pgpass"

    def url(self, driver: str, role: str) -> str:
        """SQLAlchemy's address of the role's own database."""
        return f"postgresql+{driver}://{role}@{HOST}:{self.port}/{role}"

    def service(self) -> Service:
        command = [
            # What the other services are given, passwords among it, is none of its business.
            *("env", "-i", str(self.binaries / "postgres"), "-D", str(self.data), "-p", str(self.port)),
            *("-c", f"listen_addresses={HOST}", "-c", "unix_socket_directories="),
        ]
        is_up = partial(_accepts, self.binaries / "pg_isready", self.port)
        # INT ends sessions in an orderly way; TERM would wait until every client has left.
        address = f"{HOST}:{self.port}"
        return Service("postgresql", command, self.port, address, is_up, user=self.user, stop_signal="INT")


def cluster(directory: Path, port: int, roles: Sequence[str]) -> Cluster:
    """The cluster in `directory`, made if it is not there.

    Raises:
        UserError: PostgreSQL is not installed, or the user it must run as cannot reach the directory.
    """
    binaries = find_binaries()
    if binaries is None:
        raise UserError(f"no PostgreSQL server on this machine; install it: sudo apt-get install {APT_PACKAGE}")
    made = Cluster(binaries, directory, port, _unprivileged_user() if os.geteuid() == 0 else None)
    directory.mkdir(parents=True, exist_ok=True)
    _require_reachable(made)
    if not made.data.exists():
        _initialise(made)
    if not made.passwords.exists():
        _settle_roles(made, roles)
    return made


def find_binaries() -> Path | None:
    """The directory of `initdb` and `postgres`, of the newest version there is."""
    if on_path := shutil.which("initdb"):
        return Path(on_path).resolve().parent
    found = [path.parent for path in _PACKAGED.glob("*/bin/initdb")]
    return max(found, key=lambda path: float(path.parent.name), default=None)


def _initialise(made: Cluster) -> None:
    """An empty cluster that nobody can log in to; it appears whole or not at all."""
    partial_data = made.directory / "data.partial"
    shutil.rmtree(partial_data, ignore_errors=True)
    partial_data.mkdir(mode=0o700)
    if made.user:
        shutil.chown(partial_data, made.user)
    options = ["--username=postgres", "--encoding=UTF8", "--locale=C", "--auth=reject", "--no-instructions"]
    _run(made, [str(made.binaries / "initdb"), "-D", str(partial_data), *options])
    partial_data.rename(made.data)


def _settle_roles(made: Cluster, roles: Sequence[str]) -> None:
    """A role with a new password, and a database, for each; those already there keep everything but their password.

    Single-user mode needs neither a running server nor a way in. It goes on after a statement that fails, and the ones
    that create fail where there is nothing to create.
    """
    passwords = {role: new_password() for role in roles}
    statements = []
    for role, password in passwords.items():
        statements += [f"CREATE ROLE {role}", f"ALTER ROLE {role} LOGIN PASSWORD '{password}'"]
        statements += [f"CREATE DATABASE {role} OWNER {role}", f"REVOKE ALL ON DATABASE {role} FROM PUBLIC"]
    command = [str(made.binaries / "postgres"), "--single", "-D", str(made.data), "postgres"]
    _run(made, command, "".join(f"{statement};\n" for statement in statements))
    rules = (f"host {role} {role} {HOST}/32 scram-sha-256\n" for role in roles)
    (made.data / "pg_hba.conf").write_text("".join(rules))
    # Last, as its absence is what calls this function.
    write_private(made.passwords, "".join(f"{HOST}:*:{role}:{role}:{word}\n" for role, word in passwords.items()))


def _accepts(pg_isready: Path, port: int) -> bool:
    command = [str(pg_isready), "--quiet", f"--host={HOST}", f"--port={port}", "--timeout=5"]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def _unprivileged_user() -> str:
    """The user that the packages make for PostgreSQL, or the one that every system has."""
    users = {entry.pw_name for entry in pwd.getpwall()}
    return next(user for user in ("postgres", "nobody") if user in users)


def _require_reachable(made: Cluster) -> None:
    try:
        _run(made, ["test", "-x", str(made.directory)])
    except UserError as error:
        raise UserError(
            f"PostgreSQL refuses to run as root, and user {made.user} cannot enter {made.directory}: set ELASTIC_RUNS "
            "to a directory that other users may enter, or start as an ordinary user"
        ) from error


def _run(made: Cluster, command: list[str], statements: str | None = None) -> None:
    """A program, as the user that the server runs as, told nothing of our environment."""
    who: dict[str, Any] = {}
    if made.user:
        who = {"user": made.user, "group": pwd.getpwnam(made.user).pw_gid, "extra_groups": []}
    done = subprocess.run(
        command,
        input=statements or "",
        cwd="/",
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=120,
        **who,
    )
    if done.returncode:
        reason = "\n".join((done.stdout + done.stderr).rstrip().splitlines()[-5:])
        raise UserError(f"{Path(command[0]).name} failed for {made.directory}:\n{reason}")
