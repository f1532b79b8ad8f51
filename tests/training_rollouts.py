"""Rollouts through verl's agent loop, with a server that writes fixed tokens, and the configuration of trainings."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf

import elastic_core.miniature
from elastic_core.models.special_tokens import load_markers
from elastic_core.training.grpo.agent_loop import RolloutWorker
from elastic_core.training.grpo.config import compose
from elastic_core.training.grpo.parameters import GrpoParameters

BASE = Path(elastic_core.miniature.__file__).parent / "base"
TOKENIZER, MARKERS = load_markers(BASE)
END, EOS = MARKERS.close[0], MARKERS.end_of_text[0]
WORD = TOKENIZER.encode("we", add_special_tokens=False)[0]
BOX = tuple(TOKENIZER.encode("\\boxed{12}", add_special_tokens=False))
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}


def composed(parameters: GrpoParameters, directory: Path = Path("job"), **job: Any) -> Any:
    """verl's configuration of a training with its files in the directory."""
    files = {f"{split}_files": [directory / f"{split}.parquet"] for split in ("train", "validation")}
    return compose(parameters, **{"model": BASE, **files, "out_dir": directory / "out", "run_name": "test", **job})


class Server:
    """Continues with `stream` across requests, stopping as vLLM does: after a stop id or max_tokens."""

    def __init__(self, *stream: int, stop_reason: str = "completed") -> None:
        self.stream = list(stream)
        self.stop_reason = stop_reason
        self.requests: list[dict[str, Any]] = []

    async def generate(self, **request: Any) -> SimpleNamespace:
        self.requests.append(request)
        params = request["sampling_params"]
        tokens: list[int] = []
        while self.stream and len(tokens) < params["max_tokens"]:
            tokens.append(self.stream.pop(0))
            if tokens[-1] in params["stop_token_ids"]:
                break
        version = len(self.requests)
        return SimpleNamespace(
            token_ids=tokens,
            log_probs=[-0.5] * len(tokens) if params["logprobs"] else None,
            stop_reason=self.stop_reason,
            extra_fields={"min_global_steps": version, "max_global_steps": version},
        )


def rollout(server: Server, *, split: str = "train", **settings: Any) -> Any:
    """What the loop returns in training; in validation where the split is "validation"."""
    worker, row = worker_and_row(server, split=split, **settings)
    loop = worker._agent_loop
    return asyncio.run((loop.run_training if split == "train" else loop.run)(SAMPLING, **row))


def worker_and_row(
    server: Server,
    *,
    budget: str = "6+8",
    strategy: str = "separate",
    l1: dict[str, Any] | None = None,
    reward: str | None = None,
    reward_settings: dict[str, Any] | None = None,
    memory: str | None = None,
    masks: dict[str, bool] | None = None,
    split: str = "train",
    step: int = 1,
    session: int = 0,
    model_type: str = "llama",
    cuts: dict[str, Any] | None = None,
    rollout_seeds: str = "request",
    grader: str = "math",
    truth: str = "12",
    **lengths: int,
) -> tuple[Any, dict[str, Any]]:
    """A rollout worker, and a problem as verl gives it."""
    rollouts = {"prompt_length": 32, "response_length": 15} | lengths
    seeds = {"rollout_seeds": rollout_seeds}
    reward = reward or (f"l1_{l1['form']}" if l1 else "correctness")
    of_loss = {"mask_truncated_samples": False, "train_on_forced_end": False, "as_published": False} | (masks or {})
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"model": {"path": str(BASE)}, "rollout": rollouts},
            "elastic": {"strategy": strategy, "budget": budget, "l1": l1, "seed": 3, "cuts": cuts, "reward": reward}
            | of_loss
            | seeds
            | ({"reward_settings": reward_settings} if reward_settings else {}),
            "data": {},
        }
    )
    worker = RolloutWorker.__new__(RolloutWorker)  # Its constructor wants a cluster.
    vars(worker).update(
        config=config,
        llm_client=server,
        tokenizer=TOKENIZER,
        processor=None,
        dataset_cls=None,
        hf_model_type=model_type,
    )
    row = {
        "raw_prompt": [{"role": "user", "content": "10+2=?"}],
        "data_source": "miniature",
        "extra_info": {"grader": grader, "split": split},
        "reward_model": {"ground_truth": truth},
        "index": 0,
        "session_id": session,
        "global_steps": step,
        "uid": "a",
    } | ({} if memory is None else {"reward_memory": memory})
    return worker, row
