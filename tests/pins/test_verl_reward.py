"""verl scores with our grader and with nothing of its own."""

import json
import os
from pathlib import Path

from elastic_core.miniature.warm_start import BASE
from tests.processes import python

SCORE = r"""
import asyncio, json, sys
from pathlib import Path
import numpy as np, torch
from transformers import AutoTokenizer
from tensordict import TensorDict
import verl.utils.reward_score as scorers
from verl import DataProto

def forbidden(*args, **kwargs):
    raise AssertionError("a scorer of verl's was called")

# Wherever verl looks its own scorers up.
for name in ("default_compute_score", "get_default_compute_score"):
    original = getattr(scorers, name)
    for path, module in list(sys.modules.items()):
        if path.startswith("verl") and getattr(module, name, None) is original:
            setattr(module, name, (lambda *a, **k: forbidden) if name.startswith("get") else forbidden)
import verl.trainer.ppo.reward as reward
reward.get_default_compute_score = lambda *a, **k: forbidden
from elastic_core.training.grpo.config import compose
from elastic_core.training.grpo.parameters import GrpoParameters

model, directory = sys.argv[1:]
parameters = GrpoParameters(budget="48+32", steps=1, batch_size=8, group_size=4, mini_batch_size=8, prompt_tokens=32,
                            kl_coefficient=0.0, device="cpu", gpus_per_node=1)
config = compose(parameters, model=Path(model), train_files=[Path(directory) / "t.parquet"],
                 validation_files=[Path(directory) / "v.parquet"], out_dir=Path(directory), run_name="test")
tokenizer = AutoTokenizer.from_pretrained(model)
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)  # The manager keeps the one it finds.
manager = reward.load_reward_manager(config, tokenizer)
scores = []
for text in sys.stdin.read().splitlines():
    ids = torch.tensor([tokenizer.encode(json.loads(text), add_special_tokens=False)])
    data = DataProto(
        batch=TensorDict({"responses": ids, "attention_mask": torch.ones_like(ids)}, batch_size=1),
        non_tensor_batch={"data_source": np.array(["openai/gsm8k"], dtype=object),
                          "reward_model": np.array([{"ground_truth": "12", "style": "rule"}], dtype=object),
                          "extra_info": np.array([{"grader": "math"}], dtype=object)},
    )
    scores.append(loop.run_until_complete(manager.run_single(data))["reward_score"])
print(json.dumps(scores))
"""


def test_no_scorer_of_verl_is_reachable(tmp_path: Path) -> None:
    responses = ["10+2 = 12</think>\\boxed{12}", "</think>\\boxed{13}", "\\boxed{12}", "</think>__import__('os')"]
    given, environment = "\n".join(map(json.dumps, responses)), os.environ | {"VERL_PLATFORM": "cpu"}
    said = python(SCORE, BASE, tmp_path, given=given, environment=environment).stdout
    assert json.loads(said.splitlines()[-1]) == [1.0, 0.0, 0.0, 0.0]
