"""`elastic model`: make a model ready, export it, or serve it with a vLLM that is there already."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any, Literal

import click

from elastic_core.errors import UserError
from elastic_core.models.files import TOKENIZER_FILES, locate
from elastic_core.models.special_tokens import chat_prompt, load_markers
from elastic_core.serving.server import plugin_flags
from elastic_core.sweep import lm_eval
from elastic_core.system.accelerators import count_gpus
from elastic_core.system.files import replacing_directory
from elastic_core.training import model_card
from flows.commands.options import PATH, settings_options
from flows.runtime.run import FlowRun
from flows.runtime.stages import Stages


@click.command()
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

    following = ["elastic", "doctor", "--set", f"base={to}"]
    click.echo(f"{prepare_model(model, to, think, think_end)}\nNext: {shlex.join(following)}")


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
    preset: str, overrides: dict[str, Any], model: Any, to: Path | None, push: str | None, tasks: Path | None
) -> None:
    """Export a trained model in Hugging Face format, with a card.

    The card says what the sweep measured of the model.
    """
    if tasks is not None and (to is not None or push is not None):
        raise UserError("--lm-eval writes tasks and no model; give it without --to and --push")
    run = FlowRun.begin(preset, overrides)
    click.echo(_export_model(run, model, to, push) if tasks is None else _export_lm_eval(run, tasks))


def _export_model(run: Stages, model: str, to: Path | None, push: str | None) -> str:
    """Write the card and the effort levels anew, from a finished sweep; return the model's path or address."""
    run.require_data("train")
    directory, cards = run.trained(model), run.cards
    cards.write_levels(directory)
    model_card.write_card(directory, cards.cells(directory))
    if to is not None:
        _copy(directory, to)
    return str(to or directory) if push is None else _push(directory, push)


def _export_lm_eval(run: Stages, to: Path) -> str:
    """Write the preset's benchmarks as tasks of lm-evaluation-harness, over an earlier export; says how to run them."""
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
        f"lm_eval --model vllm --model_args pretrained=MODEL,max_model_len={context}{given} "
        f"--include_path {shlex.quote(str(to))} --tasks {lm_eval.TAG} --apply_chat_template "
        "--batch_size auto --log_samples --output_path OUT"
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
        said = "elastic model export"
        return str(api.upload_folder(repo_id=repository, folder_path=model, commit_message=said).repo_url)
    except (HFValidationError, HTTPError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"--push {repository}: the hub refused or was not reached: {reason}") from error


@click.command()
@click.argument("model", required=False)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Of vLLM; without it what is here.")
def vllm_flags(model: str | None, device: Literal["cpu", "cuda"] | None) -> None:
    """Print what makes a `vllm serve` of your own keep budgets.

    vllm serve MODEL $(elastic model vllm-flags MODEL)

    Without MODEL, a directory or OWNER/NAME on the hub, vLLM does not parse its thoughts.
    """
    try:
        markers = load_markers(str(locate(model, TOKENIZER_FILES)))[1] if model else None
        flags = plugin_flags(device or ("cuda" if count_gpus() else "cpu"), markers)
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from None
    click.echo(" ".join(flags))
