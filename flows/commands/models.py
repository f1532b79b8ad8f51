"""Models: made ready, exported, served, tried in the terminal or on a page."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from elastic_core.errors import UserError
from elastic_core.system.files import replacing_directory
from flows.commands.options import (
    PATH,
    PORT,
    POSITIVE,
    StrategyType,
    budget_option,
    changes_of,
    family_option,
    settings_options,
)
from flows.runtime import environment

if TYPE_CHECKING:
    from flows.runtime.stages import Stages


@click.group()
def model() -> None:
    """Make a model ready for the pipeline."""


@model.command()
@click.argument("model")
@click.option("--to", type=PATH, required=True, metavar="DIR", help="Where to write the new model.")
@click.option("--think", metavar="TOKEN", help="Token of the model to become <think>. Without it a spare or new one.")
@click.option("--think-end", metavar="TOKEN", help="Token of the model to become </think>.")
def prepare(model: str, to: Path, think: str | None, think_end: str | None) -> None:
    """Make MODEL ready for a budget on its thoughts.

    The new model has <think> and </think> as single tokens, an end-of-text, and a chat template that opens the thought.
    It learns what the markers mean by fine-tuning: docs/own-model.md. MODEL is a Hugging Face checkpoint directory, a
    .gguf file, or OWNER/NAME on the hub.
    """
    from elastic_core.models.prepare import prepare as prepare_model

    click.echo(f"{prepare_model(model, to, think, think_end)}\nNext: elastic doctor --set base={to}")


@click.command()
@settings_options("Settings that the model was trained with.")
@click.option(
    "--model",
    default="trained",
    help="trained: the last checkpoint; best: the one with the highest validation accuracy. If training had several "
    "seeds, with its seed: trained@2.",
)
@click.option("--to", type=PATH, metavar="DIR", help="Copy it to DIR.")
@click.option("--push", metavar="OWNER/NAME", help="Push it to the hub, as a private repository.")
@click.option(
    "--lm-eval",
    "tasks",
    type=PATH,
    metavar="DIR",
    help="Write the preset's benchmarks to DIR as tasks of lm-evaluation-harness, and no model.",
)
def export(
    preset: str, overrides: tuple[str, ...], model: Any, to: Path | None, push: str | None, tasks: Path | None
) -> None:
    """Export a trained model in Hugging Face format, with a card.

    The card says what the sweep measured of the model.
    """
    if tasks is not None and (to is not None or push is not None):
        raise UserError("--lm-eval writes tasks and no model; give it without --to and --push")
    environment.prepare()
    from flows.runtime.run import FlowRun

    run = FlowRun.begin(preset, changes_of(overrides))
    click.echo(_export_model(run, model, to, push) if tasks is None else _export_lm_eval(run, tasks))


def _export_model(run: Stages, model: str, to: Path | None, push: str | None) -> str:
    """Write the card and the effort levels anew, from a finished sweep; return the model's path or address."""
    from elastic_core.training import model_card

    run.require_data("train")
    directory, cards = run.trained(model), run.cards
    cards.write_levels(directory)
    model_card.write_card(directory, cards.cells(directory))
    if to is not None:
        _copy(directory, to)
    return str(to or directory) if push is None else _push(directory, push)


def _export_lm_eval(run: Stages, to: Path) -> str:
    """Write the preset's benchmarks as tasks of lm-evaluation-harness, over an earlier export; says how to run them."""
    from elastic_core.models.special_tokens import chat_prompt, load_markers
    from elastic_core.sweep import lm_eval

    run.require_data()
    directory, engine, sweep = run.tokenizer, run.settings.engine, run.settings.sweep
    tokens, markers = load_markers(directory)
    if not lm_eval.survives_decoding(tokens, markers.close):
        raise UserError(f"{directory}: think-end is a special token there, which lm_eval leaves out of responses")
    problems = run.problems
    longest = {name: max(len(chat_prompt(tokens, each.question)) for each in of) for name, of in problems.items()}
    context = engine.context(str(directory))
    settings = lm_eval.TaskSettings(context, sweep.samples, sweep.temperature, sweep.top_p, sweep.max_response_tokens)
    lm_eval.write_tasks(to, problems, longest, settings)
    given = f",dtype={engine.dtype}"
    for name in ("tensor_parallel_size", "data_parallel_size"):
        if (number := getattr(engine, name)) > 1:
            given += f",{name}={number}"
    return (
        f"{', '.join(map(lm_eval.task_name, problems))} in {to}; run them where lm_eval and this project are: "
        f"lm_eval --model vllm --model_args pretrained=MODEL,max_model_len={context}{given} --include_path {to} "
        f"--tasks {lm_eval.TAG} --apply_chat_template --batch_size auto --log_samples --output_path OUT"
    )


def _copy(model: Path, to: Path) -> None:
    if to.exists():
        raise UserError(f"--to {to}: is there already; give a directory that is not")
    with replacing_directory(to) as temporary:
        shutil.copytree(model, temporary, dirs_exist_ok=True)


def _push(model: Path, repository: str) -> str:
    from httpx import HTTPError
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HFValidationError

    if repository.count("/") != 1:
        raise UserError(f"--push {repository}: expected OWNER/NAME")
    if get_token() is None:
        raise UserError(f"--push {repository}: not logged in to the hub; run first: hf auth login")
    try:
        api = HfApi()
        api.create_repo(repository, private=True, exist_ok=True)
        return str(api.upload_folder(repo_id=repository, folder_path=model, commit_message="elastic export").repo_url)
    except (HFValidationError, HTTPError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"--push {repository}: the hub refused or was not reached: {reason}") from error


@click.command()
@click.argument("question")
@settings_options("Preset whose models, engine and sampling are taken.")
@click.option(
    "--model",
    metavar="MODEL",
    help="One of the preset's, a checkpoint directory, OWNER/NAME on the hub, or a server's address, "
    "http://host:8000/v1#MODEL, or two of these, as NAVIGATOR>SOLVER. Without it the preset's base.",
)
@family_option
@click.option(
    "--strategy", type=StrategyType(), default="separate", help="How the budget is spent: docs/strategies.md."
)
@budget_option('Thinking + solution tokens, like "512+256" or "1k+1k". Without it what the preset trains under.')
@click.option("--sample", type=click.IntRange(0, 2**31 - 1), default=0, help="Another number draws another one.")
def ask(question: str, preset: str, overrides: tuple[str, ...], **options: Any) -> None:
    """Ask a model QUESTION under a token budget, in the terminal.

    The thought is dimmed, what was cut is marked, forced text is in ⟦brackets⟧; tokens are counted at the end.
    """
    # vLLM's own messages would stand in the response; read when it is imported.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from rich.console import Console

    from flows.commands.ask import ask as answer

    answer(question, preset=preset, overrides=changes_of(overrides), console=Console(), **options)


@click.command()
@settings_options("Preset whose models, benchmarks, engine and sampling are taken.")
@click.option(
    "--model",
    "named",
    multiple=True,
    metavar="[NAME=]DIR",
    help="A further model, and the first to be chosen: a checkpoint directory, OWNER/NAME on the hub, or a server's "
    "address, http://host:8000/v1#MODEL.",
)
@family_option
@click.option("--host", default="127.0.0.1", help="Address to listen on; others need a password.")
@click.option("--port", type=PORT, default=7860)
@click.option(
    "--password-file",
    type=PATH,
    help="File whose first line is the password to ask for; without it $ELASTIC_PLAYGROUND_PASSWORD, if set.",
)
@click.option("--concurrent", type=click.IntRange(1, 64), default=2, help="Runs at the same time.")
def playground(preset: str, overrides: tuple[str, ...], host: str, port: int, concurrent: int, **options: Any) -> None:
    """Try a model under token budgets, on a page in the browser.

    Strategies answer side by side.
    """
    from flows.commands.playground import PlaygroundParameters, run

    run(PlaygroundParameters(host, port, concurrent), preset=preset, overrides=changes_of(overrides), **options)


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
@click.option("--host", default="127.0.0.1", help="Address to listen on; others need $VLLM_API_KEY.")
@click.option("--port", type=PORT, default=8000)
@click.argument("further", nargs=-1, metavar="[-- VLLM_ARGUMENTS...]")
def serve(preset: str, overrides: tuple[str, ...], model: str, **options: Any) -> None:
    """Serve a model under budgets over OpenAI's and Anthropic's APIs, with vLLM.

    A request names its budget, "vllm_xargs": {"think_budget": 512, "solution_budget": 256}, or one of the levels that
    were measured, "reasoning_effort": "low"; the names of other servers are read too (docs/serve.md). If
    $VLLM_API_KEY is set, clients have to give this key.
    """
    from flows.commands.serve import serve as run

    sys.exit(run(preset, changes_of(overrides), model, **options))


@click.command("vllm-flags")
@click.argument("model", required=False)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Of vLLM; without it what is here.")
def vllm_flags(model: str | None, device: Literal["cpu", "cuda"] | None) -> None:
    """Print what makes a `vllm serve` of your own keep budgets.

    vllm serve MODEL $(elastic vllm-flags MODEL)

    Without MODEL, a directory or OWNER/NAME on the hub, vLLM is not told how to read its thoughts.
    """
    from elastic_core.models.special_tokens import load_markers
    from elastic_core.serving.server import plugin_flags
    from elastic_core.system.accelerators import count_gpus

    try:
        flags = plugin_flags(device or ("cuda" if count_gpus() else "cpu"), load_markers(model)[1] if model else None)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(str(error)) from None
    click.echo(" ".join(flags))
