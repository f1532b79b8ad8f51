"""Environment of flows and services: all files land in one directory, no usage is reported, and passwords are generated
and lie in files that only their owner may read."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from elastic_core.errors import UserError
from elastic_core.system.files import replacing
from elastic_core.system.network import bypass_proxies
from elastic_core.system.private_stores import use_private_directory
from elastic_core.system.processes import PYTHON

RUNS_VARIABLE = "ELASTIC_RUNS"
USER = "elastic"  # Who logs in, to the servers and the playground.
NO_OTHER_PAGES = {"PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": ""}
"""Only its own page may ask a Prefect server; by default any page in a browser may."""
_OWN_SETTINGS = ("PREFECT_HOME", "PREFECT_PROFILES_PATH", "PREFECT_PROFILE")


def runs_directory() -> Path:
    """The directory of all results: $ELASTIC_RUNS, or `runs` below the current directory."""
    return Path(os.environ.get(RUNS_VARIABLE, "runs")).resolve()


def make_runs_directory() -> Path:
    """`runs_directory`, made for this user alone where it is missing; one that is there keeps its mode."""
    runs = runs_directory()
    try:
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise UserError(f"{runs} cannot be the directory of results ({error.strerror}); set {RUNS_VARIABLE}") from None
    return runs


def prepare() -> None:
    """Set what libraries read at import; must come before importing Prefect or Ray. The user's settings win."""
    use_private_directory(new_if_taken=True)
    bypass_proxies()
    runs = make_runs_directory()
    lock_temporary_server()
    defaults = {
        **prefect_files(runs),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        # A loaded machine takes longer than the default 20 s to start the temporary server.
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PYTHONSAFEPATH": "1",  # Of what our children start: as `PYTHON`.
        "DO_NOT_TRACK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "TOKENIZERS_PARALLELISM": "false",
        # One line for every cell of a sweep.
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        # It reports every new database, and a refusal is one sentence.
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        "MLFLOW_TRACKING_URI": f"sqlite:///{runs / 'mlflow.db'}",
        **NO_OTHER_PAGES,
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    address, login = without_login(os.environ["MLFLOW_TRACKING_URI"])
    os.environ |= {"MLFLOW_TRACKING_URI": address, **login}


def prefect_files(runs: Path) -> dict[str, str]:
    """Variables that place Prefect's files below the runs directory, or in the user's PREFECT_HOME; those that are set
    stay."""
    home = os.environ.get("PREFECT_HOME") or str(runs / "prefect")
    # By default the last two are in ~/.prefect, whatever PREFECT_HOME is.
    files = {
        "PREFECT_HOME": home,
        "PREFECT_LOCAL_STORAGE_PATH": f"{home}/storage",
        "PREFECT_SERVER_MEMO_STORE_PATH": f"{home}/memo_store.toml",
    }
    return {name: os.environ.get(name) or place for name, place in files.items()}


def without_login(address: str) -> tuple[str, dict[str, str]]:
    """MLflow's address, which links and messages hold, without a server's user and password; and these as MLflow's
    variables."""
    parts = urlsplit(address)
    login, _, server = parts.netloc.rpartition("@")
    if not login or parts.scheme not in ("http", "https"):
        return address, {}
    user, _, password = map(unquote, login.partition(":"))
    variables = {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}
    return parts._replace(netloc=server).geturl(), variables


def lock_temporary_server() -> None:
    """Have the server that Prefect starts for a flow ask for a password that only this process and its children know:
    every user of this machine can reach it."""
    # Prefect reads its settings when it is imported: clients would not know a password that is set later.
    too_late = "prefect" in sys.modules or "PREFECT_SERVER_API_AUTH_STRING" in os.environ
    if too_late or _server_of_the_user():
        return
    password = os.environ.setdefault("PREFECT_API_AUTH_STRING", f"{USER}:{new_password()}")
    os.environ["PREFECT_SERVER_API_AUTH_STRING"] = password


def _server_of_the_user() -> bool:
    """Whether the user's settings name a Prefect server, which our password must not be sent to."""
    if os.environ.get("PREFECT_API_URL"):
        return True
    files = (Path(name) for name in ("prefect.toml", ".env"))
    if not any(name in os.environ for name in _OWN_SETTINGS) and not any(file.exists() for file in files):
        return False
    # Only Prefect knows which of its sources wins, and it is not to be imported here yet.
    ask = "from prefect.settings import PREFECT_API_URL; print(PREFECT_API_URL.value() or '')"
    answer = subprocess.run([*PYTHON, "-c", ask], capture_output=True, text=True, timeout=60, check=False)
    return bool(answer.stdout.strip())


def end_orphaned_servers() -> None:
    """End Prefect's temporary servers of flows that were killed: nothing else does."""
    import psutil

    for process in psutil.process_iter():
        with suppress(psutil.Error):
            orphaned = process.ppid() == 1 and "prefect.server.api.server:create_app" in process.cmdline()
            if orphaned and process.environ().get("PREFECT_HOME") == os.environ["PREFECT_HOME"]:
                process.terminate()


def new_password() -> str:
    """256 bits, in letters that need no quoting in a shell, a URL or SQL."""
    return secrets.token_hex(32)


def read_variables(file: Path) -> dict[str, str]:
    """NAME=value lines; {} without the file."""
    return dict(line.split("=", 1) for line in file.read_text().splitlines()) if file.exists() else {}


def write_variables(file: Path, variables: Mapping[str, str]) -> None:
    """Lines that `read_variables` and a shell read."""
    write_private(file, "".join(f"{name}={value}\n" for name, value in variables.items()))


def write_private(file: Path, text: str) -> None:
    """Mode 0600 from the first byte on."""
    with replacing(file) as temporary:
        temporary.unlink(missing_ok=True)  # Of a killed process; in a container it had the same id.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
