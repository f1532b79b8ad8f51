"""Rollouts through verl's agent loop, with a server that writes fixed tokens."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap

import elastic_core.miniature
from elastic_core.markers import load_markers
from elastic_core.training.agent_loop import ElasticAgentLoop, rollout_seed

BASE = Path(elastic_core.miniature.__file__).parent / "base"
TOKENIZER, MARKERS = load_markers(BASE)
END, EOS = MARKERS.think_end, MARKERS.end_of_text[0]
WORD = TOKENIZER.encode("we", add_special_tokens=False)[0]
BOX = tuple(TOKENIZER.encode("\\boxed{12}", add_special_tokens=False))


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


def rollout(server: Server, *, think: int = 6, solution: int = 8, strategy: str = "separate", **lengths: int) -> Any:
    rollouts = {"prompt_length": 32, "response_length": think + 1 + solution} | lengths
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"model": {"path": str(BASE)}, "rollout": rollouts},
            "elastic": {"strategy": strategy, "think_tokens": think, "solution_tokens": solution, "seed": 3},
            "data": {},
        }
    )
    loop = ElasticAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=server,
        tokenizer=TOKENIZER,
        processor=None,
        dataset_cls=None,
        data_config=DictConfigWrap(config.data),
        hf_model_type="llama",
    )
    row = {
        "raw_prompt": [{"role": "user", "content": "10+2=?"}],
        "data_source": "miniature",
        "extra_info": {"grader": "math"},
        "reward_model": {"ground_truth": "12"},
        "index": 0,
        "session_id": 0,
        "global_steps": 1,
    }
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
    return asyncio.run(loop.run(sampling, **row))


def test_a_thought_that_closes_itself_is_all_sampled() -> None:
    output = rollout(Server(WORD, END, *BOX, EOS))
    assert output.response_ids == [WORD, END, *BOX, EOS]
    assert output.response_mask == [1] * len(output.response_ids)
    assert output.reward_score == 1.0


def test_a_forced_think_end_gets_mask_0_and_logprob_0() -> None:
    output = rollout(Server(*[WORD] * 6, *BOX, EOS))
    assert output.response_ids == [*[WORD] * 6, END, *BOX, EOS]
    assert output.response_mask == [1] * 6 + [0] + [1] * (len(BOX) + 1)
    assert output.response_logprobs == [-0.5] * 6 + [0.0] + [-0.5] * (len(BOX) + 1)
    assert (
        output.extra_fields["reward_extra_info"] | {"acc": 1.0, "think_tokens": 6.0, "forced": 1.0}
        == (output.extra_fields["reward_extra_info"])
    )


def test_think_end_as_the_last_token_of_the_budget_is_the_models_own() -> None:
    # verl reports a stop token and exhausted tokens alike.
    output = rollout(Server(*[WORD] * 5, END, *BOX, EOS))
    assert output.response_ids[:6] == [*[WORD] * 5, END]
    assert 0 not in output.response_mask
    assert output.extra_fields["reward_extra_info"]["forced"] == 0.0


def test_end_of_text_inside_the_thought_is_removed_and_think_end_forced() -> None:
    output = rollout(Server(WORD, EOS, *BOX, EOS))
    assert output.response_ids == [WORD, END, *BOX, EOS]
    assert output.response_mask[:2] == [1, 0]


def test_budgets_hold_exactly_and_unused_thinking_is_not_transferred() -> None:
    server = Server(WORD, END, *[WORD] * 50)
    output = rollout(server)
    assert [request["sampling_params"]["max_tokens"] for request in server.requests] == [6, 8]
    assert len(output.response_ids) == 2 + 8
    assert output.extra_fields["reward_extra_info"]["solution_cut"] == 1.0
    assert server.requests[1]["prompt_ids"] == [*output.prompt_ids, WORD, END]


def test_no_credit_without_a_solution() -> None:
    output = rollout(Server(*BOX, *[WORD] * 50), strategy="vanilla")
    assert output.reward_score == 0.0


def test_requests_are_seeded_and_stay_on_one_replica() -> None:
    first, second = Server(WORD, END, *BOX, EOS), Server(WORD, END, *BOX, EOS)
    rollout(first), rollout(second)
    seeds = [[request["sampling_params"]["seed"] for request in server.requests] for server in (first, second)]
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == 2
    assert len({request["request_id"] for request in first.requests}) == 1


def test_rollouts_of_a_run_have_seeds_of_their_own() -> None:
    places = [(step, index, session) for step in range(5) for index in range(5) for session in range(5)]
    seeds = {rollout_seed(0, step=s, source="miniature", index=i, session=n) for s, i, n in places}
    assert len(seeds) == len(places)


def test_weight_versions_span_all_requests() -> None:
    output = rollout(Server(WORD, END, *BOX, EOS))
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (1, 2)


def test_an_aborted_request_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="aborted"):
        rollout(Server(WORD, stop_reason="aborted"))


def test_lengths_verl_was_not_configured_for_are_errors() -> None:
    with pytest.raises(ValueError, match=r"a prompt of .* at most 2"):
        rollout(Server(WORD), prompt_length=2)
    with pytest.raises(ValueError, match=r"a response of .* at most 3"):
        rollout(Server(WORD, END, *BOX, EOS), response_length=3)
