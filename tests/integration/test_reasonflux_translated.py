"""Navigator and solver with different tokenizers on real vLLM: the miniature, and the same model with its tokens
numbered the other way round. Decoded greedily, the pair says what the model says alone."""

import asyncio
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
import ray

from elastic_core.data.problems import Problem
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.ray_engine import ray_pool
from elastic_core.miniature.problems import generate
from elastic_core.miniature.warm_start import BASE
from elastic_core.reasonflux.library import MINIATURE_FILE, read_library
from elastic_core.strategies import Sampling
from elastic_core.strategies.reasonflux_zero import TemplateParameters, Templates
from elastic_core.sweep.executor import run_sweep
from elastic_core.sweep.models import SweepModel, sweep_models
from elastic_core.sweep.plan import plan_sweep
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.trajectory import KEY
from tests.exactness import broken_rules

PARAMETERS = EngineParameters(max_model_len=768, max_num_seqs=16)
TEMPLATES = Templates(
    read_library(MINIATURE_FILE),
    TemplateParameters(library="miniature", query="joined", wording="miniature"),
    Path("unused"),
)
REQUEST = {"strategies": ["reasonflux_zero"], "budgets": ["160+24", "96+24", "30+24"]}
PROBLEMS = {
    "miniature-easy": [
        Problem("miniature-easy", str(i), chain.question, str(chain.answer), "math")
        for i, chain in enumerate(generate("easy", 12, seed=5, split="tune"))
    ]
}

# Two engines; the conversation between two tokenizers is in the unit tests too.
pytestmark = pytest.mark.slow


def renumbered(directory: Path) -> Path:
    """The shipped base, whose token i is here the last but i."""
    from safetensors.torch import load_file, save_file

    copy = Path(shutil.copytree(BASE, directory))
    weights = load_file(copy / "model.safetensors")
    (embedding,) = [name for name in weights if "embed_tokens" in name]  # The output layer is tied to it.
    weights[embedding] = weights[embedding].flip(0).contiguous()
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    last = len(weights[embedding]) - 1
    file = copy / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"] = {token: last - i for token, i in tokenizer["model"]["vocab"].items()}
    for token in tokenizer["added_tokens"]:
        token["id"] = last - token["id"]
    tokenizer["added_tokens"].sort(key=lambda token: token["id"])
    file.write_text(json.dumps(tokenizer))
    for name in ("config.json", "generation_config.json"):
        values = json.loads((copy / name).read_text())
        ids = {key: last - value for key, value in values.items() if key.endswith("token_id")}
        (copy / name).write_text(json.dumps(values | ids))
    return copy


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, pl.DataFrame]]:
    """Of the renumbered model alone, and led by the one that was not."""
    paths = {"base": BASE, "other": renumbered(tmp_path_factory.mktemp("models") / "other")}
    request = REQUEST | {"models": ["other", "base>other"]}
    models = sweep_models(request, dict.fromkeys(paths, "f"), paths, PROBLEMS, PARAMETERS, TEMPLATES)
    directories = [tmp_path_factory.mktemp("table") for _ in models]
    ray.init(address="local", num_cpus=3, num_gpus=0, include_dashboard=False, log_to_driver=False)
    yield asyncio.run(measure(models, {name: str(path) for name, path in paths.items()}, directories))
    ray.shutdown()


async def measure(
    models: Sequence[SweepModel], checkpoints: Mapping[str, str], directories: Sequence[Path]
) -> dict[str, pl.DataFrame]:
    tables = {}
    async with ray_pool(checkpoints, PARAMETERS) as replicas:
        for model, directory in zip(models, directories, strict=True):
            store = TrajectoryStore(directory)
            with store.writing(Manifest({}, {}, {}, {})):
                await run_sweep(
                    plan_sweep(model.cells, PROBLEMS, num_samples=1, seed=3, finished=store.finished()),
                    sampling=Sampling(temperature=0.0),
                    prompts=model.prompts,
                    replicas=replicas,
                    rows=model.rows,
                    store=store,
                )
            tables[model.name] = store.read().sort(KEY)
    return tables


def test_the_pair_says_what_the_model_says_alone(tables: dict[str, pl.DataFrame]) -> None:
    alone, pair = tables["other"], tables["base>other"]
    same = ["problem", "think_budget", "response_ids", "forced", "navigator_tokens", "think_finish", "score"]
    assert pair.select(same).equals(alone.select(same))
    assert {role for row in pair["turns"] for role in row.struct.field("role")} == {"translated_navigator", "solver"}
    assert set(pair["think_finish"]) == {"closed", "forced"}
    assert pair["score"].mean() > 0.5


def test_every_row_keeps_its_budget(tables: dict[str, pl.DataFrame]) -> None:
    assert broken_rules(tables["base>other"]) == {}
