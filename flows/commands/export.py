"""`elastic export`: a trained model as a Hugging Face directory with its card, elsewhere or on the hub if asked; and a
preset's evaluation as tasks of lm-evaluation-harness."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from elastic_core.data import lm_eval
from elastic_core.errors import UserError
from elastic_core.models.special_tokens import chat_prompt, load_markers
from elastic_core.serving.levels import LEVELS, read_levels
from elastic_core.sweep.grid import checkpoint_names
from elastic_core.sweep.table import SweepTable
from elastic_core.system.files import replacing_directory
from elastic_core.training import model_card
from flows.commands.budgets import measured_levels, measured_models, table_fingerprint
from flows.runtime.inputs import Inputs
from flows.runtime.run import FlowRun
from reports.summary import report_rows, summarize
from tasks.records.stage_directory import BEST, MODEL, TABLE


def export_model(
    preset: str, overrides: Mapping[str, Any], model: str, to: Path | None = None, push: str | None = None
) -> str:
    """Write the card and the effort levels anew, from what a finished sweep measured, and say where the model is.

    Args:
        preset, overrides: settings that it was trained with.
        model: "trained", the last checkpoint, or "best", the one with the highest validation accuracy; where training
            had several seeds, of one of them: "trained@2".
        to: directory to copy it to; must not exist.
        push: OWNER/NAME of a repository on the hub; made as a private one if it is not there.

    Returns:
        Path or address.

    Raises:
        UserError: when there is no such model, training has not finished, `to` exists, or the hub refuses.
    """
    inputs = Inputs(FlowRun.begin(preset, overrides))
    directory = exported(inputs, model)
    offered(inputs, directory)
    model_card.write_card(directory, measured(inputs, directory))
    if to is not None:
        _copy(directory, to)
    if push is not None:
        return _push(directory, push)
    return str(to or directory)


def exported(inputs: Inputs, model: str) -> Path:
    """The directory that training left the model in."""
    inputs.data.require_built("train")
    return inputs.trained(model)


def measured(inputs: Inputs, model: Path) -> list[dict[str, Any]]:
    """The model's cells in the finished sweep of these settings; none when there is no such sweep."""
    name = _measured_name(inputs, model)
    if name is None:
        return []
    wanted = (pl.col("model") == name) & inputs.measured_rows
    rows = report_rows(SweepTable(inputs.sweep.directory / TABLE).scan().filter(wanted)).collect()
    return summarize(rows).to_dicts() if rows.height else []


def offered(inputs: Inputs, model: Path) -> list[Path]:
    """Put the effort levels beside the model that the finished sweep of these settings measured budgets of. Those that
    were chosen from the same table stay: somebody may have chosen them by other benchmarks.

    Returns:
        Their file; none where there is no such sweep, or it has no rows of `separate`.
    """
    name, file = _measured_name(inputs, model), model / LEVELS
    if name is None:
        return []
    table = SweepTable(inputs.sweep.directory / TABLE)
    rows = table.scan().filter(inputs.measured_rows)
    if name not in measured_models(rows):
        return []
    if not file.exists() or read_levels(file).table != table_fingerprint(table):
        levels, _ = measured_levels(table, name, [], inputs.run.settings.report.margin / 100, inputs.measured_rows)
        levels.write(file)
    return [file]


def _measured_name(inputs: Inputs, model: Path) -> str | None:
    """What the finished sweep of these settings calls the model; None when there is no such sweep."""
    stage, weights = inputs.sweep, inputs.fingerprint(model)
    names = [name for name, found in stage.inputs["models"].items() if found == weights]
    return names[0] if names and stage.marker.exists() else None


def export_lm_eval(preset: str, overrides: Mapping[str, Any], to: Path) -> str:
    """Write the preset's benchmarks as tasks of lm-evaluation-harness.

    Args:
        to: directory for them; files of an earlier export are replaced.

    Returns:
        Which tasks there are, and where the command to run them is.

    Raises:
        UserError: when no data was built, or the harness could not show the grader where a thought ends.
    """
    inputs = Inputs(FlowRun.begin(preset, overrides))
    inputs.data.require_built()
    directory, engine, sweep = inputs.data.tokenizer, inputs.run.settings.engine, inputs.run.settings.sweep
    tokens, markers = load_markers(directory)
    if not lm_eval.survives_decoding(tokens, markers.think_end):
        raise UserError(f"{directory}: think-end is a special token there, which lm_eval leaves out of responses")
    problems = inputs.problems
    longest = {
        name: max(len(chat_prompt(tokens, problem.question)) for problem in asked) for name, asked in problems.items()
    }
    context = engine.context(str(directory))
    settings = lm_eval.TaskSettings(context, sweep.samples, sweep.temperature, sweep.top_p, sweep.max_response_tokens)
    devices = {"tensor_parallel_size": engine.tensor_parallel_size, "data_parallel_size": engine.data_parallel_size}
    arguments = {"dtype": engine.dtype, **{name: number for name, number in devices.items() if number > 1}}
    text = lm_eval.readme(
        preset,
        _places(inputs),
        list(problems),
        settings,
        "".join(f",{name}={value}" for name, value in arguments.items()),
    )
    files = lm_eval.write_tasks(to, problems, longest, settings, text)
    return f"{', '.join(file.stem for file in files)}: see {to / 'README.md'}"


def _places(inputs: Inputs) -> dict[str, str | None]:
    """The checkpoints that the sweep measures, as --model_args takes them; None where one has not been made yet.
    Nothing is downloaded."""
    settings = inputs.run.settings
    given = settings.sweep.directories
    if settings.base not in ("shipped", "warm-start"):
        given["base"] = settings.base
    return {name: given.get(name) or _made(inputs, name) for name in checkpoint_names(settings.models)}


def _made(inputs: Inputs, name: str) -> str | None:
    try:
        return str(inputs.base if name == "base" else inputs.trained(name))
    except UserError:
        return None


def write_cards(inputs: Inputs) -> None:
    """The cards and effort levels of every model of this preset's trainings that the sweep measured, here and in
    MLflow's registry."""
    run = inputs.run
    trainings = run.runs / run.settings.preset / "train"
    left = {path.parent for path in inputs.checkpoints.values() if path.parents[1] == trainings}
    for stage, name in product(sorted(left), (MODEL, BEST)):
        if (stage / name / model_card.RECORD).exists() and (cells := measured(inputs, stage / name)):
            files = [*offered(inputs, stage / name), model_card.write_card(stage / name, cells)]
            # None when the tracking store was changed since.
            if training := run.tracker.find(stage.relative_to(run.runs).as_posix()):
                for file in files:
                    run.tracker.renew(training, file)


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
