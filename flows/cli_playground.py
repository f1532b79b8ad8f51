"""`elastic playground`: try a model under token budgets, in a browser."""

from __future__ import annotations

from pathlib import Path

import click

from flows.cli_options import changes_of, settings_options


@click.command()
@settings_options("Whose models, benchmarks, engine and sampling to take.")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="[NAME=]DIR",
    help="A further model, and the first to be chosen: a checkpoint directory, or OWNER/NAME on the hub.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; others need a password.")
@click.option("--port", type=click.IntRange(1, 65535), default=7860, show_default=True)
@click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    help="File whose first line is the password to ask for; without it $ELASTIC_PLAYGROUND_PASSWORD, if set.",
)
@click.option("--concurrent", type=click.IntRange(1, 64), default=2, show_default=True, help="Runs at the same time.")
def playground(
    preset: str,
    overrides: tuple[str, ...],
    models: tuple[str, ...],
    host: str,
    port: int,
    password_file: Path | None,
    concurrent: int,
) -> None:
    """Try a model under token budgets, strategies side by side, on a page in the browser."""
    from flows.playground import server
    from flows.playground.choices import find_choices
    from flows.playground.parameters import PlaygroundParameters

    server.require_gradio()
    parameters = PlaygroundParameters(host=host, port=port, concurrent=concurrent)
    password = server.require_access(parameters, password_file)
    server.serve(find_choices(preset, changes_of(overrides), models), parameters, password)
