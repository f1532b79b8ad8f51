"""verl's own data set reads what we build."""

import json
import os
from dataclasses import replace
from pathlib import Path

import polars as pl

from elastic_core.data.build import DataBuild, build
from elastic_core.data.dataset import Hub
from elastic_core.data.fetch import fetch
from elastic_core.data.registry import REGISTRY
from elastic_core.miniature.problems import TRAIN, MiniatureParameters
from elastic_core.miniature.warm_start import BASE
from tests.processes import python
from tests.upstream import UPSTREAM, needs_upstream

LOAD = """
import json, sys
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

model, cache, *files = sys.argv[1:]
config = OmegaConf.create({"cache_dir": cache, "max_prompt_length": 100_000, "filter_overlong_prompts": True,
                           "filter_overlong_prompts_workers": 1, "return_raw_chat": True})
tokenizer = AutoTokenizer.from_pretrained(model)
for file in files:
    rows = RLHFDataset(file, tokenizer, config)
    batch = collate_fn([rows[0], rows[len(rows) - 1]])
    print(json.dumps({"rows": len(rows), "data_source": list(batch["data_source"]),
                      "raw_prompt": [list(prompt) for prompt in batch["raw_prompt"]],
                      "truth": [model["ground_truth"] for model in batch["reward_model"]],
                      "index": [int(index) for index in batch["index"]]}))
"""


def load(files: list[Path], cache: Path) -> list[dict[str, object]]:
    environment = {"VERL_PLATFORM": "cpu", "HF_HOME": str(cache), "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    said = python(LOAD, BASE, cache, *files, environment=os.environ | environment).stdout
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def mirror_hub_rows(name: str, file: str, rows: list[dict[str, object]], mirror: Path) -> None:
    """Rows in upstream's format, where a mirror has the data set's file."""
    source = REGISTRY[name].source
    assert isinstance(source, Hub)
    target = mirror / source.repository / file
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix == ".json":
        target.write_text(json.dumps(rows))
    else:
        pl.DataFrame(rows).write_parquet(target)


@needs_upstream
def test_verl_loads_each_training_parquet(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    rows = [{"problem": f"{i}+1=?", "answer": str(i + 1), "solution": "add"} for i in range(3)]
    mirror_hub_rows("deepscaler", "deepscaler.json", rows, mirror)
    stdin = json.dumps([{"input": "1\n", "output": "2\n", "testtype": "stdin"}])
    rows = [{"problem": "Add.", "starter_code": "", "tests": stdin, "metadata": {"func_name": None}}]
    mirror_hub_rows("deepcoder-lcbv5", "lcbv5/train-00000-of-00001.parquet", rows, mirror)
    tests = json.dumps([{"type": "stdin_stdout", "input": "1\n", "output": "2\n"}])
    mirror_hub_rows(
        "deepcoder-primeintellect",
        "primeintellect/train-00000-of-00001.parquet",
        [{"problem": "Add one.", "tests": tests}],
        mirror,
    )
    tests = json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]})
    mirror_hub_rows(
        "deepcoder-taco", "taco/train-00000-of-00001.parquet", [{"problem": "Add two.", "tests": tests}], mirror
    )
    (mirror / "agentica-project").symlink_to(UPSTREAM / "agentica-project")
    names = ["deepscaler", "deepcoder-lcbv5", "deepcoder-primeintellect", "deepcoder-taco", "aime-1983-2023", TRAIN]
    entries = [replace(REGISTRY[name], rows=None) for name in names]
    plan = DataBuild(
        entries,
        fetch(entries, sources=tmp_path / "sources", mirror=mirror),
        BASE,
        max_prompt_tokens=100_000,
        miniature=MiniatureParameters(num_train=20, problems_per_benchmark=1, evaluation_seed=0),
    )
    manifest = build(plan, tmp_path / "data")
    loaded = load([tmp_path / "data" / f"{name}.parquet" for name in names], tmp_path / "cache")
    for name, found in zip(names, loaded, strict=True):
        built = pl.read_parquet(tmp_path / "data" / f"{name}.parquet")
        ends = [built.row(0, named=True), built.row(-1, named=True)]
        assert found == {
            "rows": manifest["datasets"][name]["kept_rows"],
            "data_source": [name, name],
            "raw_prompt": [row["prompt"] for row in ends],
            "truth": [row["reward_model"]["ground_truth"] for row in ends],
            "index": [0, built.height - 1],
        }
