"""The worker of `elastic up`: runs the deployments of prefect.yaml, with the code and the job variables it names.

    python -m flows.commands.services.worker  # in the directory of prefect.yaml, with the server of PREFECT_API_URL

Prefect's own takes command, environment, directory, pull steps and entrypoint of a run from the server: a client that
can write there runs any program as the worker's user. Here the server says only which deployment, when, and with which
parameters.
Not promised: that parameters are harmless. They name files, models and addresses, as `--set` does.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect.utilities.processutils import setup_signal_handlers_worker
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker

from elastic_core.errors import UserError
from elastic_core.system.network import bypass_proxies
from flows.commands.services.deployments import FILE, WORK_POOL, deployments_of

if TYPE_CHECKING:
    from uuid import UUID

    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.objects import FlowRun, WorkPool
    from prefect.client.schemas.responses import DeploymentResponse

_ENTRYPOINT = "PREFECT__FLOW_ENTRYPOINT"  # Names the code to a flow run's process, which otherwise asks the server.


def registered(file: Path, name: str, entrypoint: str | None) -> dict[str, Any]:
    """The deployment of prefect.yaml with that name and entrypoint. Raises UserError when there is none."""
    known = {(each.get("name"), each.get("entrypoint")): each for each in deployments_of(file)}
    if (name, entrypoint) in known:
        return known[name, entrypoint]
    found = ", ".join("{} ({})".format(*each) for each in known)
    raise UserError(f"the deployment {name} ({entrypoint}) is none of {file.resolve()}, which has {found}")


class RegisteredJob(ProcessJobConfiguration):
    """How a flow run's process is started: nothing in it is the server's."""

    @classmethod
    async def resolve_for_flow_run(
        cls,
        flow_run: FlowRun,
        *,
        client: PrefectClient,
        work_pool: WorkPool,
        worker_name: str,
        worker_id: UUID | None = None,
        deployment: DeploymentResponse | None = None,
    ) -> RegisteredJob:
        """Raises UserError when the run is of no deployment of prefect.yaml, or brings job variables."""
        if flow_run.deployment_id is None:
            raise UserError(f"the flow run {flow_run.name} is of no deployment; this worker runs those of {FILE}")
        if flow_run.job_variables:
            raise UserError(
                f"the flow run {flow_run.name} brings job variables ({', '.join(flow_run.job_variables)}); "
                f"expected none, they belong into {FILE.resolve()}"
            )
        deployment = deployment or await client.read_deployment(flow_run.deployment_id)
        known = registered(FILE, deployment.name, deployment.entrypoint)
        file, _, function = known["entrypoint"].rpartition(":")
        variables = {"working_dir": str(Path.cwd()), **known["work_pool"].get("job_variables", {})}
        variables["env"] = {**variables.get("env", {}), _ENTRYPOINT: f"{Path(file).resolve()}:{function}"}
        template = ProcessWorker.get_default_base_job_template()
        job: RegisteredJob = await cls.from_template_and_values(template, variables, client=client)  # type: ignore
        flow = await client.read_flow(flow_run.flow_id)
        job.prepare_for_flow_run(flow_run, deployment, flow, work_pool, worker_name, worker_id)
        return job


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # That it takes the place of the other one is meant.

    class RegisteredWorker(ProcessWorker):
        """Prefect's process worker, for these jobs."""

        job_configuration = RegisteredJob


async def serve() -> None:
    """Run the flow runs that are due in the work pool until SIGINT or SIGTERM."""
    bypass_proxies()
    setup_signal_handlers_worker(os.getpid(), "the worker", print)
    worker = RegisteredWorker(WORK_POOL, create_pool_if_not_found=False)
    with suppress(asyncio.CancelledError):
        await worker.start()


if __name__ == "__main__":
    asyncio.run(serve())
