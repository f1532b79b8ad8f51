"""`elastic model`: make a model ready for the pipeline. Only click is imported here, see `flows.cli`."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def model() -> None:
    """Make a model ready for the pipeline."""


@model.command()
@click.argument("model")
@click.option("--to", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where the new model goes.")
@click.option(
    "--think", metavar="TOKEN", help="Token of the model that becomes <think>; without it a spare or new one."
)
@click.option("--think-end", metavar="TOKEN", help="Token of the model that becomes </think>.")
def prepare(model: str, to: Path, think: str | None, think_end: str | None) -> None:
    """Give MODEL what a budget on thoughts takes: <think> and </think> as single tokens, an end-of-text, and a chat
    template that opens the thought. MODEL is a Hugging Face checkpoint directory, a .gguf file, or OWNER/NAME on the
    hub.

    It learns what the markers mean by fine-tuning: docs/own-model.md.
    """
    from elastic_core.prepared_model import prepare as prepare_model

    click.echo(prepare_model(model, to, think, think_end))
    click.echo(f"Next: elastic doctor --set base={to}")
