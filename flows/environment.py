"""Environment every flow runs under: everything lands below one directory, nothing is reported to anyone."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

RUNS_VARIABLE = "ELASTIC_RUNS"


def runs_directory() -> Path:
    """Where every result goes: $ELASTIC_RUNS, or `runs` below the current directory."""
    return Path(os.environ.get(RUNS_VARIABLE, "runs")).resolve()


def prepare() -> None:
    """Set what libraries read at import; must come before importing Prefect or Ray. The user's own settings win."""
    runs = runs_directory()
    defaults = {
        "PREFECT_HOME": str(runs / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        # A loaded machine takes longer than the default 20 s to start the temporary server.
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "DO_NOT_TRACK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "TOKENIZERS_PARALLELISM": "false",
        # One line for every cell of a sweep.
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_TRACKING_URI": f"sqlite:///{runs / 'mlflow.db'}",
    }
    runs.mkdir(parents=True, exist_ok=True)
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def end_orphaned_servers() -> None:
    """End Prefect's temporary servers of flows that were killed: nothing else does."""
    import psutil

    for process in psutil.process_iter():
        with suppress(psutil.Error):
            orphaned = process.ppid() == 1 and "prefect.server.api.server:create_app" in process.cmdline()
            if orphaned and process.environ().get("PREFECT_HOME") == os.environ["PREFECT_HOME"]:
                process.terminate()
