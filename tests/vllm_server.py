"""A real vLLM server of the miniature, on a CPU, with what makes it draw what an engine of ours draws."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from elastic_core.miniature.warm_start import BASE
from elastic_core.system.network import HOST
from elastic_core.system.processes import end_with_parent
from elastic_core.system.retry import wait_until

MODEL = "miniature"
_START_SECONDS = 600


class VllmServer:
    """Use as a context manager; `kill` or `stop`, and `start`, in between.

    Args:
        port: it listens on, on loopback.
        log: file of its output.
        context: in tokens.
        num_seqs: sequences decoded together.
        key: that it wants; None for none.
    """

    def __init__(self, port: int, log: Path, context: int, num_seqs: int = 64, key: str | None = None) -> None:
        self.url = f"http://{HOST}:{port}/v1"
        self._log = log
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._told_to_stop: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "VLLM_HOST_IP": HOST,
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            **({"VLLM_API_KEY": key} if key else {}),
        }
        self._command: Sequence[str] = (
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(BASE), "--served-model-name", MODEL, "--host", HOST, "--port", str(port)),
            *("--dtype", "float32", "--max-model-len", str(context), "--enforce-eager"),
            # As elastic_core.engines.vllm says why.
            *("--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192", "--block-size", "32"),
            *("--max-num-seqs", str(num_seqs), "--disable-uvicorn-access-log"),
        )

    @property
    def address(self) -> str:
        return f"{self.url}#{MODEL}"

    def start(self) -> None:
        """Start it, without waiting for its first answer."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    def wait(self) -> None:
        assert self._process is not None
        process = self._process

        def answers() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"vLLM ended with {process.returncode}:\n{self._log.read_text()[-4000:]}")
            with suppress(OSError):
                return bool(urllib.request.urlopen(self.url.removesuffix("/v1") + "/health", timeout=5).status == 200)
            return False

        assert wait_until(answers, _START_SECONDS), self._log.read_text()[-4000:]

    def kill(self) -> None:
        """With its engine's process, as a machine that goes down."""
        for process in filter(None, (self._process, *self._told_to_stop)):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(600)
        self._process, self._told_to_stop = None, []

    def stop(self) -> None:
        """As an administrator does, until it listens no more. What it has open it keeps."""
        assert self._process is not None
        self._process.terminate()
        assert wait_until(lambda: not self._listens(), 600)
        self._told_to_stop.append(self._process)
        self._process = None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self._port)) == 0

    def __enter__(self) -> VllmServer:
        self.start()
        self.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
