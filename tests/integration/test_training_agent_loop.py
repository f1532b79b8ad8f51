"""Rollouts through verl's agent loop, with a server that writes fixed tokens."""

import asyncio
import json
from typing import Any

import pytest

from elastic_core.rewards.truth import CodeTest, CodeTruth
from elastic_core.seeds import group_seed, rollout_seed
from tests.training_rollouts import BOX, END, EOS, SAMPLING, TOKENIZER, WORD, Server, rollout, worker_and_row

CREDIT = {"of": "segment", "own_baseline": True, "divisor": "none"}
CUTS = {"credit": CREDIT, "at": [2, 6], "weights": [0.5, 0.5], "answers": 2, "thoughts": 3}


@pytest.mark.parametrize(
    ("written", "response", "mask"),
    [
        ((WORD, END, *BOX, EOS), (WORD, END, *BOX, EOS), [1] * (len(BOX) + 3)),
        ((WORD,) * 6 + (*BOX, EOS), (WORD,) * 6 + (END, *BOX, EOS), [1] * 6 + [0] + [1] * (len(BOX) + 1)),
        # verl reports a stop token and exhausted tokens alike.
        ((WORD,) * 5 + (END, *BOX, EOS), (WORD,) * 5 + (END, *BOX, EOS), [1] * (len(BOX) + 7)),
        ((WORD, EOS, *BOX, EOS), (WORD, END, *BOX, EOS), [1, 0] + [1] * (len(BOX) + 1)),
        ((WORD, END) + (WORD,) * 50, (WORD, END) + (WORD,) * 8, [1] * 10),
    ],
    ids=["closed", "forced", "closed as its last token", "end of text in the thought", "solution cut"],
)
def test_what_is_forced_gets_mask_0_and_logprob_0_and_nothing_else_is_invented(
    written: tuple[int, ...], response: tuple[int, ...], mask: list[int]
) -> None:
    server = Server(*written)
    output = rollout(server)
    assert output.response_ids == list(response)
    assert output.response_mask == mask
    assert output.response_logprobs == [-0.5 * sampled for sampled in mask]
    assert output.reward_score == float(EOS in response)
    assert [request["sampling_params"]["max_tokens"] for request in server.requests] == [6, 8]
    thought = [*output.prompt_ids, *response[: response.index(END) + 1]]
    assert server.requests[1]["prompt_ids"] == thought, "unused thinking is not transferred"
    measured = output.extra_fields["reward_extra_info"]
    assert measured["think_tokens"] == sum(mask[: response.index(END) + 1])
    assert (measured["acc"], measured["forced"]) == (output.reward_score, mask.count(0))
    assert measured["solution_cut"] == float(EOS not in response)


def test_a_model_of_qwens_architecture_may_have_another_tokenizer() -> None:
    assert "<|im_end|>" not in TOKENIZER.get_vocab()
    assert rollout(Server(WORD, END, *BOX, EOS), model_type="qwen2").reward_score == 1.0


def test_in_one_pass_the_servers_think_end_counts_as_forced_and_its_last_token_is_dropped() -> None:
    server = Server(*[WORD] * 6, END, *[WORD] * 8, EOS)
    output = rollout(server, strategy="separate_native")
    assert output.response_ids == [*[WORD] * 6, END, *[WORD] * 8]
    assert output.response_mask == [1] * 6 + [0] + [1] * 8
    assert output.response_logprobs == [-0.5] * 6 + [0.0] + [-0.5] * 8
    (request,) = server.requests
    assert request["sampling_params"]["extra_args"] == {"think_budget": 6, "solution_budget": 8}


def thinking_limits(**where: int | str) -> list[int]:
    """max_tokens of the thoughts of four rollouts of one problem."""
    servers = [Server(WORD, END, *BOX, EOS) for _ in range(4)]
    for session, server in enumerate(servers):
        rollout(server, budget="100..900+8", session=session, response_length=1000, **where)
    return [server.requests[0]["sampling_params"]["max_tokens"] for server in servers]


def test_a_drawn_budget_is_one_per_problem_and_step_and_drawn_again_alike() -> None:
    limits = [thinking_limits(step=step) for step in range(1, 6)]
    assert all(len(set(of_group)) == 1 for of_group in limits)
    assert len({of_group[0] for of_group in limits}) > 1
    assert all(100 <= of_group[0] <= 900 for of_group in limits)
    assert limits == [thinking_limits(step=step) for step in range(1, 6)]


def test_a_validation_problem_keeps_its_draw_over_the_steps() -> None:
    assert thinking_limits(step=1, split="validation") == thinking_limits(step=9, split="validation")


def test_l1_asks_in_the_prompt_and_pays_for_the_length() -> None:
    l1 = {"form": "exact", "lengths": "11", "penalty": 0.01}
    response = (WORD, END, *BOX, EOS)
    output = rollout(Server(*response), strategy="vanilla", l1=l1, prompt_length=64)
    assert TOKENIZER.decode(output.prompt_ids).startswith("<bos><|user|>10+2=? Think for 11 tokens.<|assistant|>")
    assert output.reward_score == pytest.approx(1 - 0.01 * abs(11 - len(response)))
    measured = output.extra_fields["reward_extra_info"]
    assert (measured["acc"], measured["asked_tokens"], measured["length_error"]) == (1.0, 11.0, 11.0 - len(response))


def rewards_of_a_group(reward: str, **settings: Any) -> list[float]:
    """Of a right rollout and of one with two words more, which ends first."""
    responses = (WORD, END, *BOX, EOS), (WORD, WORD, WORD, END, *BOX, EOS)
    workers = [
        worker_and_row(Server(*tokens), reward=reward, session=session, n=2, **settings)
        for session, tokens in enumerate(responses)
    ]

    async def run() -> list[Any]:
        return await asyncio.gather(
            *(worker._agent_loop.run_training(SAMPLING, **row) for worker, row in workers[::-1])
        )

    outputs = asyncio.run(run())[::-1]
    assert [output.extra_fields["outcome"]["length"] for output in outputs] == [len(tokens) for tokens in responses]
    return [output.reward_score for output in outputs]


def test_a_method_sees_all_rollouts_of_a_problem_and_its_memory() -> None:
    short, long = len((WORD, END, *BOX, EOS)), len((WORD, WORD, WORD, END, *BOX, EOS))
    assert rewards_of_a_group("shorterbetter", reward_settings={"beta": 0.25}) == [2.0, 1.5]
    assert rewards_of_a_group("laser_d", reward_settings={"targets": [short, long]}, memory="null") == [1.5, 1.5]
    memory = json.dumps({"high": short})
    assert rewards_of_a_group("laser_d", reward_settings={"targets": [short, long]}, memory=memory) == [1.5, 1.0]


def test_validation_has_the_grade_and_waits_for_no_group() -> None:
    settings: dict[str, Any] = {"reward": "shorterbetter", "reward_settings": {"beta": 0.25}, "n": 2}
    assert rollout(Server(WORD, END, *BOX, EOS), split="validation", **settings).reward_score == 1.0


def test_a_method_without_a_group_or_without_its_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hapo compares the rollouts of a problem: rollout.n = 1, expected 2 or more"):
        rollout(Server(EOS), reward="hapo", n=1)
    with pytest.raises(ValueError, match=r"hapo has a memory, which verl's own trainer does not keep; expected"):
        rollout(Server(EOS), reward="hapo", n=2)


def test_rollouts_of_a_group_are_asked_for_one_length_and_have_seeds_of_their_own() -> None:
    l1 = {"form": "max", "lengths": "1..4000", "penalty": 0.01}
    servers = [Server(WORD, END, *BOX, EOS) for _ in range(4)]
    outputs = [
        rollout(server, strategy="vanilla", l1=l1, session=session, prompt_length=64)
        for session, server in enumerate(servers)
    ]
    assert len({tuple(output.prompt_ids) for output in outputs}) == 1
    assert len({server.requests[0]["sampling_params"]["seed"] for server in servers}) == 4


def test_groups_draw_apart_from_each_other() -> None:
    places = [(step, index) for step in range(10) for index in range(10)]
    assert len({group_seed(0, step=s, source="miniature", index=i) for s, i in places}) == len(places)


def test_no_credit_without_a_solution() -> None:
    output = rollout(Server(*BOX, *[WORD] * 50), strategy="vanilla")
    assert output.reward_score == 0.0


def test_requests_are_seeded_and_stay_on_one_replica() -> None:
    first, second = Server(WORD, END, *BOX, EOS), Server(WORD, END, *BOX, EOS)
    rollout(first), rollout(second)
    seeds = [[request["sampling_params"]["seed"] for request in server.requests] for server in (first, second)]
    assert seeds[0] == seeds[1] and len(set(seeds[0])) == 2
    assert len({request["request_id"] for request in first.requests}) == 1


@pytest.mark.parametrize("cuts", [None, CUTS])
def test_seeds_may_be_left_to_the_engine(cuts: dict[str, Any] | None) -> None:
    server = Server(WORD, END, *BOX, EOS)
    rollout(server, cuts=cuts, rollout_seeds="engine")
    assert {request["sampling_params"]["seed"] for request in server.requests} == {None}


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


class Thinker(Server):
    """Thinks words, in the first of three thoughts one only; the answer is right after a cut at 6."""

    async def generate(self, **request: Any) -> Any:
        prefix, first = request["prompt_ids"], not self.requests
        if END in prefix:
            self.stream = [*BOX, EOS] if prefix[-2] == WORD == prefix[-7] else [WORD, EOS]
        else:
            self.stream = [WORD, END] if first else [WORD] * 6
        return await super().generate(**request)


def test_where_thoughts_are_cut_a_problem_leaves_rows_with_advantages() -> None:
    server = Thinker()
    rows = rollout(server, cuts=CUTS)
    thoughts = [row for row in rows if row.extra_fields["score"] is None]
    assert [len(row.response_ids) for row in thoughts] == [2, 6, 6]
    assert len(rows) == 3 + 2 + 4 + 4
    assert all(row.response_mask == [1] * len(row.response_ids) for row in rows)
    # R = (0, 1, 1) / 2 of both segments and V2 = 1/3; V1 = 0 halves what the second one is compared with.
    assert thoughts[1].advantages == pytest.approx([1 / 2 - 1 / 3] * 2 + [1 / 2 - 1 / 6] * 4)
    assert thoughts[0].advantages == pytest.approx([-1 / 3] * 2)
    assert thoughts[1].as_dict()["rm_scores"].tolist() == pytest.approx(thoughts[1].advantages)
    assert "advantages" not in thoughts[1].as_dict()
    limits = [request["sampling_params"]["max_tokens"] for request in server.requests]
    assert sorted(limits) == [6] * 3 + [8] * 10, "each thought is drawn once"


def test_rows_tell_of_their_thought_once_and_of_the_tokens_that_were_sampled() -> None:
    server = Thinker()
    found = [row.extra_fields for row in rollout(server, cuts=CUTS)]
    measured = [fields["measured"] for fields in found if fields["measured"]]
    assert [of_thought["anytime_acc"] for of_thought in measured] == [0.0, 0.5, 0.5]
    assert [of_thought["acc_at_2"] for of_thought in measured] == [0.0, 0.0, 0.0]
    assert [of_thought["acc"] for of_thought in measured] == [0.0, 1.0, 1.0]
    assert sum(fields["generated_tokens"] for fields in found) == 2 + 6 + 6 + 6 * 2 + 4 * (len(BOX) + 1)


class Programmer(Thinker):
    """Writes the program after a cut at 6, else a word."""

    async def generate(self, **request: Any) -> Any:
        output = await super().generate(**request)
        if output.token_ids[:-1] == list(BOX):
            output.token_ids = [*TOKENIZER.encode("```python\nprint(12)\n```", add_special_tokens=False), EOS]
            output.log_probs = [-0.5] * len(output.token_ids)
        return output


def test_programs_are_run_for_every_cut() -> None:
    truth = CodeTruth("stdin", (CodeTest("", "12"),)).encode()
    rows = rollout(Programmer(), cuts=CUTS, budget="6+64", response_length=71, grader="code", truth=truth)
    accuracy = [fields["measured"]["acc_at_6"] for row in rows if (fields := row.extra_fields)["measured"]]
    assert accuracy == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("validates", [False, True])
def test_the_tests_of_a_program_are_not_stored_with_its_rollouts(validates: bool) -> None:
    stored: list[dict[str, Any]] = []

    async def store(output: Any, validate: bool, **row: Any) -> None:
        stored.append(row)

    truth = CodeTruth("stdin", (CodeTest("", "12"),)).encode()
    worker, row = worker_and_row(Server(WORD, END, *BOX, EOS), grader="code", truth=truth)
    worker._agent_loop_postprocess = store
    asyncio.run(worker._run_agent_loop(SAMPLING, {"validate": validates}, agent_name="elastic", trace=False, **row))
    assert stored == [row | {"reward_model": {"ground_truth": None}}]
    assert row["reward_model"]["ground_truth"] == truth, "other rollouts of the problem are graded by it"


def test_validation_is_one_rollout_under_the_whole_budget_though_training_cuts() -> None:
    output = rollout(Server(*[WORD] * 6, *BOX, EOS), cuts=CUTS, split="validation")
    assert output.reward_score == 1.0 and output.extra_fields["reward_extra_info"]["think_tokens"] == 6.0
