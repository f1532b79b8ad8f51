"""`elastic serve`: a model over OpenAI's API, each request under a thinking and a solution budget, by vLLM's server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import click

from elastic_core.budget import Budget
from elastic_core.errors import UserError
from elastic_core.models.files import tensors
from elastic_core.models.special_tokens import load_markers
from elastic_core.serving import server
from elastic_core.serving.levels import EFFORTS, LEVELS, Effort, Levels, levels_beside, no_levels
from elastic_core.serving.load import FEWEST, Goal
from elastic_core.serving.requests import ServeConfiguration, Unmeasured
from elastic_core.strategies.base import Sampling
from elastic_core.system.accelerators import installed_gpus
from elastic_core.system.network import LOCAL_PAGES, is_loopback, reachable, require_free_port
from elastic_core.system.processes import PYTHON, end_with_parent
from flows.commands.doctor.machine import installed_build, installed_versions, require
from flows.commands.doctor.resources import GpuDemand, check_gpus, cuda_version
from flows.commands.options import POSITIVE, address_options, budget_option, family_option, settings_options
from flows.runtime.models import choose_model, require_room
from flows.runtime.settings import SweepSettings

KEY_VARIABLE = "VLLM_API_KEY"  # vLLM's: the key that clients have to give.


class Command(NamedTuple):
    """A server to be started: its name for the model, its command line, and its variables."""

    name: str
    arguments: list[str]
    environment: dict[str, str]


@click.command()
@settings_options("Preset whose models, engine and sampling are taken.")
@click.option(
    "--model",
    default="trained",
    metavar="MODEL",
    help="One of the preset's (trained, best, base, ...), a checkpoint directory, or OWNER/NAME on the hub.",
)
@family_option
@budget_option('Budget of requests that name none, like "512+256". Without it they are unlimited.')
@click.option(
    "--unmeasured",
    type=click.Choice(["nearest", "default", "refuse"]),
    default="nearest",
    help="What an effort level gets that was not measured: the nearest one, the default budget, or a refusal.",
)
@click.option(
    "--latency",
    type=POSITIVE,
    metavar="SECONDS",
    help="Under load give new requests less thought, so that 95 of 100 responses take at most so long.",
)
@click.option(
    "--tokens-per-second",
    type=POSITIVE,
    metavar="TOKENS",
    help="Likewise, so that all responses together take at most so many tokens a second.",
)
@click.option(
    "--floor",
    type=click.Choice(["minimal", "low", "medium", "high"]),
    default="minimal",
    metavar="LEVEL",
    help="The effort level below which load lowers no budget.",
)
@click.option("--reasoning-content", is_flag=True, help="Give the thought by its older name reasoning_content too.")
@address_options("$VLLM_API_KEY", 8000)
@click.argument("further", nargs=-1, metavar="[-- VLLM_ARGUMENTS...]")
def serve(preset: str, overrides: dict[str, Any], model: str, host: str, port: int, **options: Any) -> None:
    """Serve a model under budgets, over OpenAI's and Anthropic's APIs.

    A request names its budget, "vllm_xargs": {"think_budget": 512, "solution_budget": 256}, or one of the levels that
    were measured, "reasoning_effort": "low"; the names of other servers are read too (docs/serve.md). If
    $VLLM_API_KEY is set, clients have to give this key.
    """
    require_free_port(host, port, "server", "--port")
    started = command(preset, overrides, model, host=host, port=port, **options)
    click.echo(f"starting {started.name}, to answer at http://{reachable(host)}:{port}/v1; Ctrl-C stops it")
    sys.exit(run(started))


def run(started: Command) -> int:
    """Run the server until SIGINT or SIGTERM: then responses under way end, and a second signal kills it.
    Return its exit status, never 0 when it ended without a signal."""
    # In a process group that is killed at its end: vLLM (0.29), ended while it starts, leaves its engine behind.
    environment = {**os.environ, **started.environment}
    process = subprocess.Popen(started.arguments, env=environment, start_new_session=True, preexec_fn=end_with_parent)
    received: list[int] = []

    def end(number: int, frame: object) -> None:
        process.send_signal(signal.SIGKILL if received else number)
        received.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        status = process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if status == 0 and not received:
        click.echo("error: the server ended without a signal, as when its engine dies: see above", err=True)
        return 1
    return status


def command(
    preset: str,
    overrides: Mapping[str, Any],
    model: str,
    *,
    family: str | None = None,
    budget: Budget | None,
    unmeasured: Unmeasured = "nearest",
    reasoning_content: bool = False,
    latency: float | None = None,
    tokens_per_second: float | None = None,
    floor: Effort = "minimal",
    host: str,
    port: int,
    further: Sequence[str],
) -> Command:
    """The command that serves a model of `choose_model` with a `ServeConfiguration`; `budget` is its default, and
    `further` are arguments for `vllm serve`. Raises UserError on wrong input."""
    if not is_loopback(host) and not os.environ.get(KEY_VARIABLE):
        raise UserError(f"others can reach {host}: set the key that clients give in {KEY_VARIABLE}, or use 127.0.0.1")
    models, name = choose_model(preset, overrides, model, family)
    directory, parameters, sweep = models.directories[name], models.settings.engine, models.settings.sweep
    if parameters.num_gpus:
        replicas = parameters.data_parallel_size
        demand = GpuDemand("serve", "engine.data_parallel_size", replicas, parameters.num_gpus, False)
        require(*check_gpus(installed_build(), installed_gpus(), [demand], cuda_version(installed_versions())))
    try:
        _, markers = load_markers(directory)
    except (OSError, ValueError) as error:
        raise UserError(f"{directory} cannot be served under budgets: {error}; see `elastic model prepare`") from None
    tensors(directory)  # Which names a file that is cut off; vLLM would after its start.
    levels = levels_beside(directory)
    if levels is None:
        click.echo(no_levels(name, directory))
    offered = levels.offered if levels else {}
    goal = None if latency is tokens_per_second is None else _goal(directory, levels, floor, latency, tokens_per_second)
    config = ServeConfiguration(
        budget, unmeasured=unmeasured, reasoning_content=reasoning_content, goal=goal, **offered
    )
    # Budgets that no request could have, as a prompt takes a token at least.
    context = parameters.context(str(directory))
    of_levels = {f"{directory / LEVELS}: its level {effort}": given for effort, given in config.levels.items()}
    for what, given in {"--budget": budget, **of_levels}.items():
        if given:
            require_room(what, given, context)
    arguments = server.arguments(directory, name, parameters, _sampling(levels, sweep), markers, host, port)
    if not os.environ.get(KEY_VARIABLE):  # A browser opens any page, and vLLM answers all of them.
        arguments += ["--allowed-origins", json.dumps([LOCAL_PAGES])]
    if goal:  # vLLM would start one for each replica, and each would assume all of the engine.
        arguments += ["--api-server-count", "1"]
    return Command(
        name,
        [*PYTHON, "-m", server.__name__, *arguments, "--", *further],
        server.environment(parameters, config),
    )


def _goal(model: Path, levels: Levels | None, floor: Effort, latency: float | None, speed: float | None) -> Goal:
    """Goal of the server under load, with the measured budgets from the floor to the highest level."""
    file = model / LEVELS
    if levels is None:
        raise UserError(f"--latency and --tokens-per-second lower budgets by what was measured: {file} is missing")
    least, most = levels.budget(floor).think or 0, levels.budgets[max(levels.budgets, key=EFFORTS.index)].think
    given = tuple(each for each in levels.measured if least <= each.think and (most is None or each.think <= most))
    if len(given) < FEWEST:
        raise UserError(
            f"{file}: {len(given)} measured budgets from the level {floor} up; expected {FEWEST} or more to choose "
            "from under load: sweep more sweep.budgets, and write the file again with elastic plan budgets"
        )
    return Goal(given, latency, speed)


def _sampling(levels: Levels | None, sweep: SweepSettings) -> Sampling:
    """Sampling of a request that sets none: as the levels were measured, else as the preset's sweeps."""
    temperature, top_p = (levels.temperature, levels.top_p) if levels else (None, None)
    return Sampling(sweep.temperature if temperature is None else temperature, sweep.top_p if top_p is None else top_p)
