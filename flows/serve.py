"""`elastic serve`: a model over OpenAI's API, every request under a thinking and a solution budget. The server is
vLLM's own."""

from __future__ import annotations

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
from elastic_core.markers import load_markers
from elastic_core.network import reachable, require_free_port
from elastic_core.processes import end_with_parent
from elastic_core.serving import server
from elastic_core.serving.law import Stops
from elastic_core.serving.levels import Levels, levels_beside, no_levels
from elastic_core.serving.offer import Offer
from elastic_core.strategies.base import Sampling
from flows.ask import choose
from flows.playground.access import is_loopback
from flows.settings import SweepSettings

KEY_VARIABLE = "VLLM_API_KEY"
"""vLLM's own: the key that clients have to give."""
_SPECULATIVE = ("--speculative", "--spec-", "-sc")


class Command(NamedTuple):
    """A server to be started: its name for the model, what it runs, and the variables it needs."""

    name: str
    arguments: list[str]
    environment: dict[str, str]


def serve(
    preset: str,
    overrides: Mapping[str, Any],
    model: str,
    *,
    budget: str | None,
    host: str,
    port: int,
    further: Sequence[str],
) -> int:
    """Run vLLM's server until SIGINT or SIGTERM, which it gets too.

    Args:
        model, budget, host, port, further: as of `command`.

    Returns:
        Its exit status.

    Raises:
        UserError: on wrong input.
    """
    require_free_port(host, port, "server", "--port")
    started = command(preset, overrides, model, budget=budget, host=host, port=port, further=further)
    click.echo(f"serving {started.name} at http://{reachable(host)}:{port}/v1; Ctrl-C stops it")
    return _run(started)


def _run(started: Command) -> int:
    """In a process group that is killed at its end: vLLM (0.29), ended while it starts, leaves its engine behind."""
    process = subprocess.Popen(
        started.arguments,
        env={**os.environ, **started.environment},
        start_new_session=True,
        preexec_fn=end_with_parent,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: process.send_signal(received))
    try:
        return process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def command(
    preset: str,
    overrides: Mapping[str, Any],
    model: str,
    *,
    budget: str | None,
    host: str,
    port: int,
    further: Sequence[str],
) -> Command:
    """What is to run.

    Args:
        model: as `choose`.
        budget: of a request that names none, as `Budget.parse`; None leaves it unlimited.
        further: arguments for `vllm serve`.

    Raises:
        UserError: on wrong input.
    """
    if not is_loopback(host) and not os.environ.get(KEY_VARIABLE):
        raise UserError(f"others can reach {host}: set the key that clients give in {KEY_VARIABLE}, or use 127.0.0.1")
    if named := [text for text in further if text.startswith(_SPECULATIVE)]:
        raise UserError(f"{named[0]}: budgets are not served with speculative decoding; leave it out")
    try:
        default = None if budget is None else Budget.parse(budget)
    except ValueError as error:
        raise UserError(f"--budget: {error}") from None
    choices, name = choose(preset, overrides, model)
    directory, parameters, sweep = choices.models[name], choices.settings.engine, choices.settings.sweep
    stops = _stops(directory)
    levels = levels_beside(directory)
    if levels is None:
        click.echo(no_levels(name, directory))
    offered = {str(effort): level.budget for effort, level in levels.levels.items()} if levels else {}
    offer = Offer(stops, default, offered)
    sampling = _sampling(levels, sweep)
    arguments = server.arguments(directory, name, parameters, sampling, stops, host, port)
    return Command(
        name,
        [sys.executable, "-m", server.__name__, *arguments, *further],
        server.environment(parameters, offer),
    )


def _sampling(levels: Levels | None, sweep: SweepSettings) -> Sampling:
    """Of a request that says nothing: as the levels were measured, as far as they say, else as the preset's sweeps."""
    temperature, top_p = (levels.temperature, levels.top_p) if levels else (None, None)
    return Sampling(sweep.temperature if temperature is None else temperature, sweep.top_p if top_p is None else top_p)


def _stops(directory: Path) -> Stops:
    try:
        _, markers = load_markers(directory)
    except (OSError, ValueError) as error:
        raise UserError(f"{directory} cannot be served under budgets: {error}; see `elastic model prepare`") from None
    return Stops.of(markers)
