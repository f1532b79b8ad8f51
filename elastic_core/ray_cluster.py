"""How a Ray cluster is reached, whoever started it."""

from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

_ANSWER_SECONDS = 60
"""How long a job server may take to answer a request."""


class RayCluster(NamedTuple):
    """How to reach a Ray cluster.

    Attributes:
        dashboard: where jobs are submitted, such as http://127.0.0.1:8265.
        gcs: for `ray.init`, host:port; None when the cluster is remote.
        token: what the cluster authenticates requests by; None leaves it to Ray's own environment variables.
        head: id of the head's process, when this one started it.
    """

    dashboard: str
    gcs: str | None = None
    token: str | None = None
    head: int | None = None

    @property
    def headers(self) -> dict[str, str] | None:
        """HTTP headers that authenticate a request."""
        return None if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def client(self) -> "JobSubmissionClient":
        """Raises:
        ConnectionError: when the job server does not answer.
        """
        from ray.job_submission import JobSubmissionClient

        class Client(JobSubmissionClient):
            """Ray's, which by itself waits for ever for an answer."""

            def _do_request(self, *args: Any, **kwargs: Any) -> Any:
                return super()._do_request(*args, timeout=_ANSWER_SECONDS, **kwargs)

        return Client(self.dashboard, headers=self.headers)

    def has_ended(self) -> bool:
        """Whether the head that this process started is gone. Of any other it cannot be known: it may come back."""
        try:
            return self.head is not None and psutil.Process(self.head).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def nodes(self) -> list[tuple[int, int]]:
        """GPUs and logical CPUs of each node that is up."""
        from ray.util.state import StateApiClient
        from ray.util.state.common import ListApiOptions, StateResource

        client = StateApiClient(address=self.dashboard, headers=self.headers)
        nodes = client.list(StateResource.NODES, ListApiOptions(), raise_on_missing_output=True)
        alive = [node.resources_total for node in nodes if node.state == "ALIVE"]
        return [(int(node.get("GPU", 0)), int(node.get("CPU", 0))) for node in alive]
