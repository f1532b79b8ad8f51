"""A preset for its rehearsal: twins in place of models, rows in upstream's format where a data set is not here, few and
short rollouts, two processes in place of a node's GPUs. Other settings stay the preset's."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

from elastic_core.budget import TrainingBudget
from elastic_core.data.dataset import Dataset
from elastic_core.data.fetch import bytes_present
from elastic_core.data.registry import STAND_INS, all_datasets, select
from elastic_core.miniature.warm_start import BASE
from elastic_core.models.check import require_usable
from elastic_core.models.twins import make_twin, origin_of
from elastic_core.models.twins.stand_in import write_stand_in
from elastic_core.reasonflux.library import DATASET, PUBLISHED
from elastic_core.strategies import STRATEGIES
from elastic_core.strategies.reasonflux_zero import REASONFLUX_ZERO
from elastic_core.sweep.grid import checkpoints
from flows.runtime.environment import runs_directory
from flows.runtime.settings import Settings
from flows.runtime.stages import mirror_of
from tasks.records.stage_directory import SOURCES, USER_DATASETS

BUDGET, SMALLER = "24+16", "8+16"
PROMPT_TOKENS = 512
CONTEXT = 2048  # Of engines: a problem of Codeforces, with a tokenizer that has few merges, and room for templates.
_SHORT = tomllib.loads(Path(__file__).with_name("rehearsal.toml").read_text(encoding="utf-8"))
STEPS: int = _SHORT["train"]["steps"]
OF_A_GPU = {"rollout_correction", "rollout_seeds"}
"""Settings of training on GPUs that a CPU, which samples in float32, has no use for."""
_LARGEST_BYTES = 8 << 20
"""Of a data set's files that are used; building gigabytes of tests would take a rehearsal's time."""


class Inputs(NamedTuple):
    """Real files of data sets, and thought templates in place of the published ones; None where there are none."""

    mirror: Path | None
    library: Path | None


def models_of(settings: Settings) -> list[str]:
    """The different models that a preset names; the miniature needs no twin."""
    initial = [settings.warm_start.initial] if settings.warm_start.sft is not None else []
    named = dict.fromkeys([settings.base, *initial, *settings.sweep.directories.values()])
    return [model for model in named if model not in ("shipped", "warm-start")]


def twins_of(settings: Settings, directory: Path) -> dict[str, Path]:
    """Directories of a preset's twins, by model."""
    return {model: directory / model.strip("/").replace("/", "--") for model in models_of(settings)}


def make_twins(settings: Settings, directory: Path) -> str:
    """Make the twins that are not there yet; a line that says what from. Raises UserError when a model could not be
    used, or no twin of it can be made."""
    made = []
    for number, (model, twin) in enumerate(twins_of(settings, directory).items()):
        if twin.exists():
            continue
        origin = origin_of(model)
        if isinstance(origin, Path):
            trained = settings.train is not None and model == settings.base
            device = settings.engine.device
            require_usable(origin, name=model, device=device, trained=trained, weights=False, thinks=settings.thinks)
        make_twin(model, origin, twin, seed=number)
        made.append(f"{model}: {origin}")
    return "; ".join(made) or "none needed: the miniature is its own, or made by an earlier attempt"


def prepare_rows(settings: Settings, runs: Path) -> tuple[Inputs, str]:
    """Rows for every data set of a preset in the shortened one's runs directory, and a line that names them. Raises
    UserError when a data set is not here, and no rows can stand in for it."""
    here = runs_directory()
    users, downloads = here / USER_DATASETS, here / SOURCES
    if users.is_dir():
        shutil.copytree(users, runs / USER_DATASETS, dirs_exist_ok=True)
    mirror = mirror_of(settings) or (downloads if downloads.is_dir() else None)
    stand_ins = runs / USER_DATASETS / STAND_INS
    real: list[str] = []
    made: list[str] = []

    def take(entry: Dataset) -> None:
        size = bytes_present(entry, mirror) if mirror else None
        if size is not None and size <= _LARGEST_BYTES:
            real.append(entry.name)
        else:
            write_stand_in(entry, stand_ins)
            made.append(entry.name)

    known, sft = all_datasets(users), settings.warm_start.sft
    names = [*settings.data.train, *settings.data.validation, *settings.data.benchmarks]
    names += [sft.data] if sft and sft.data in known else []
    for entry in select(names, known):
        if entry.files and not (users / f"{entry.name}.json").exists():
            take(entry)
    if REASONFLUX_ZERO in settings.sweep.every_strategy and settings.sweep.templates.library == PUBLISHED:
        take(known[DATASET])
    kinds = {"real rows": real, "made in upstream's format": made}
    listed = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)
    return Inputs(mirror, stand_ins / f"{DATASET}.json" if DATASET in made else None), listed or "generated"


def given_values(settings: Settings) -> dict[str, Any]:
    """Values of a preset file of these settings, without those of Ray and MLflow."""
    return settings.model_dump(mode="json", exclude_unset=True, exclude_none=True, exclude={"preset", "ray", "mlflow"})


def rehearsal_values(settings: Settings, twins: Mapping[str, Path], inputs: Inputs) -> dict[str, Any]:
    """The values of a preset file that rehearses `settings`, with twins by model."""
    values = given_values(settings)
    if settings.base in twins:
        values["base"] = str(twins[settings.base])
    values["data"] |= {"datasets": []} | ({"mirror": str(inputs.mirror)} if inputs.mirror else {})
    for name, sizes in _SHORT["data"].items():
        if name in values["data"]:
            values["data"][name] |= sizes
    if settings.train is not None:
        values["train"] = _training(settings, values["train"])
    if settings.warm_start.sft is not None:
        values["warm_start"] |= {"initial": str(twins.get(settings.warm_start.initial, settings.warm_start.initial))}
        values["warm_start"]["sft"] |= _SHORT["warm_start"]["sft"]
    if settings.ablation:
        values["ablation"] = _ablation(settings, values["ablation"])
        measured = {*settings.sweep.models, *values["ablation"]}
        if settings.report.pairs:
            values["report"] |= {"pairs": [pair for pair in settings.report.pairs if measured.issuperset(pair)]}
    engine = settings.engine
    context = engine.max_model_len if engine.device == "cpu" else CONTEXT
    values["engine"] = _SHORT["engine"] | {"data_parallel_size": min(2, engine.data_parallel_size)}
    values["engine"] |= {"max_model_len": context} if context else {}
    left_out = settings.ablation.keys() - values.get("ablation", {}).keys()
    values["sweep"] = _sweep(settings, values["sweep"], twins, left_out)
    if inputs.library:
        values["sweep"]["templates"] = values["sweep"].get("templates", {}) | {"library": str(inputs.library)}
    return values


def _training(settings: Settings, values: dict[str, Any]) -> dict[str, Any]:
    p = settings.training
    several = p.nodes > 1
    changed = {
        "budget": _budget(p.budget),
        # The preset's number of updates a step, if there are several.
        "mini_batch_size": 4 if p.mini_batch_size == p.batch_size else 2,
        "prompt_tokens": min(PROMPT_TOKENS, p.prompt_tokens),
        "nodes": 2 if several else 1,
        "gpus_per_node": 1 if several or p.device == "cpu" else 2,
    }
    values = _shortened({**values, **_SHORT["train"], **changed})
    if p.device == "gpu":
        values = {name: value for name, value in values.items() if name not in OF_A_GPU}
    if p.l1 is not None:
        values["l1"] = {**values["l1"], "lengths": "8..40"}
    # One sequence a forward pass: several of them make an update.
    lengths = {name: values[name] for name in ("budget", "prompt_tokens")}
    values["tokens_per_device"] = p.model_copy(update=lengths).context_tokens
    return values


def _shortened(train: dict[str, Any]) -> dict[str, Any]:
    """Settings of a training that cut as many times, in shorter thoughts, and end by their steps."""
    kept = {name: value for name, value in train.items() if name != "max_generated_tokens"}
    if cuts := train.get("cuts"):
        think = TrainingBudget.parse(BUDGET).think.high
        kept["cuts"] = [think * number // len(cuts) for number in range(1, len(cuts) + 1)]
    return kept


def _budget(given: str) -> str:
    return f"8..{BUDGET}" if ".." in given else BUDGET


def _ablation(settings: Settings, values: dict[str, Any]) -> dict[str, Any]:
    """Keep the first variant, and the first that goes on from another, with that one."""
    kept = {next(iter(settings.ablation))}
    kept.update(next(({name, each.after} for name, each in settings.ablation.items() if each.after is not None), ()))
    shortened = {}
    for name in settings.ablation:
        if name in kept:
            train = values[name]["train"]
            budget = {"budget": _budget(train["budget"])} if "budget" in train else {}
            steps = {"steps": STEPS} if "steps" in train else {}
            shortened[name] = {**values[name], "train": _shortened({**train, **budget, **steps})}
    return shortened


def _sweep(settings: Settings, values: dict[str, Any], twins: Mapping[str, Path], left_out: Set[str]) -> dict[str, Any]:
    sweep = settings.sweep
    if "strategies_of" in values:
        own = {name: strategies for name, strategies in values["strategies_of"].items() if name not in left_out}
        values = {**values, "strategies_of": own}
    models = list(values.get("models", sweep.models))
    single = all(set(checkpoints(name)) == {"policy"} for name in models)
    if single and len(models) > 1 and any(len(STRATEGIES[name].roles) > 1 for name in sweep.strategies):
        models.append(f"{models[0]}>{models[1]}")
    # A rehearsal calls no server: the base stands in for the model behind it.
    stand_in = str(twins.get(settings.base, BASE))
    return {
        **{name: value for name, value in values.items() if name != "tokenizers"},
        "models": models,
        "checkpoints": {name: str(twins.get(model, model)) for name, model in sweep.directories.items()}
        | dict.fromkeys(sweep.endpoints, stand_in),
        "budgets": [BUDGET, SMALLER] if len(sweep.budgets) > 1 else [BUDGET],
        **_SHORT["sweep"],
        # Of a response that has no budget.
        **({} if sweep.max_response_tokens is None else {"max_response_tokens": CONTEXT // 4}),
        # Two problems cannot reach the preset's precision.
        **({} if sweep.until_ci is None else {"until_ci": 50}),
    }
