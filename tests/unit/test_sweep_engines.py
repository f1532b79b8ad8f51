"""Engine settings, and the actor's side of the transport, without Ray and vLLM."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from elastic_core.engines.base import EngineLost, RequestFailed
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.ray_engine import MAX_REDOS, EngineActor, RayEngine
from elastic_core.engines.request_groups import Numbered, Replies
from elastic_core.strategies import Completion, Finish, Generate, Sampling


class DelayedEngine:
    """Answers after as many turns of the event loop as the seed says; the request's last token names a failure."""

    async def generate(self, request: Generate, seed: int) -> Completion:
        for _ in range(seed):
            await asyncio.sleep(0)
        if request.prefix == (1,):
            raise RequestFailed("refused")
        if request.prefix == (2,):
            raise KeyError("a defect")
        if request.prefix == (3,):
            raise EngineLost("dead")
        return Completion((seed,), Finish.LENGTH)


async def replies(asked: list[Numbered]) -> list[Numbered]:
    actor = EngineActor()
    actor._engine = DelayedEngine()  # type: ignore[assignment]
    await actor.submit(asked)
    received: list[Numbered] = []
    while len(received) < len(asked):
        async with asyncio.timeout(600):
            received += await actor.collect()
    return received


def ask(number: int, seed: int, token: int = 9) -> Numbered:
    return number, (Generate((token,), 1, (), Sampling()), seed)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=30))
def test_every_request_is_answered_once_however_they_overlap(delays: list[int]) -> None:
    received = asyncio.run(replies([ask(i, delay) for i, delay in enumerate(delays)]))
    assert sorted(received) == [(i, Completion((delay,), Finish.LENGTH)) for i, delay in enumerate(delays)]


def test_what_is_answered_after_a_group_has_left_is_in_a_later_one() -> None:
    async def answered(when: asyncio.Event) -> bool:
        return await when.wait()

    async def groups() -> list[list[Numbered]]:
        far, events = Replies(answered), [asyncio.Event(), asyncio.Event()]
        far.submit(list(enumerate(events)))
        found = []
        for event in events:
            event.set()
            found.append(await far.collect())
        return found

    assert asyncio.run(groups()) == [[(0, True)], [(1, True)]]


def test_a_failing_request_is_answered_with_the_reason() -> None:
    received = asyncio.run(replies([ask(0, 1, token=1), ask(1, 2, token=2), ask(2, 3)]))
    found = dict(received)
    assert isinstance(found[0], RequestFailed) and isinstance(found[1], RequestFailed)
    assert (str(found[0]), str(found[1])) == ("refused", "KeyError: 'a defect'")
    assert found[2] == Completion((3,), Finish.LENGTH)


def test_a_dead_engine_is_told_to_whoever_waits() -> None:
    with pytest.raises(EngineLost, match="dead"):
        asyncio.run(replies([ask(0, 1, token=3), ask(1, 2)]))


def test_an_engine_that_keeps_dying_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each death asks a new actor once more; then the request and all later ones fail."""
    started: list[SimpleNamespace] = []

    async def collect() -> None:
        raise EngineLost("dead")

    async def start(self: RayEngine) -> SimpleNamespace:
        asked: list[Numbered] = []
        started.append(SimpleNamespace(asked=asked, submit=SimpleNamespace(remote=asked.extend)))
        started[-1].collect = SimpleNamespace(remote=collect)
        return started[-1]

    async def stop(self: RayEngine) -> None:
        self._actor = None

    monkeypatch.setattr(RayEngine, "_start", start)
    monkeypatch.setattr(RayEngine, "_stop", stop)

    async def twice() -> None:
        async with RayEngine("model", EngineParameters()) as engine:
            for _ in range(2):
                with pytest.raises(EngineLost, match=r"died 3 times in a row without finishing a request: dead"):
                    await engine.generate(Generate((9,), 1, (), Sampling()), 1)

    asyncio.run(twice())
    assert len(started) == 1 + MAX_REDOS
    assert sum(len(actor.asked) for actor in started) == 1 + MAX_REDOS


@pytest.mark.parametrize(
    "values, named",
    [
        ({"tensor_parallel_size": 2}, "on a CPU"),
        ({"gpu_memory_utilization": 0.5}, "no effect"),
        ({"device": "cuda", "gpu_memory_utilization": 0.5, "kv_cache_gib": 1}, "no effect"),
        ({"max_num_seq": 4}, "Extra inputs"),
        ({"max_num_seqs": 0}, "greater than"),
        ({"model_runner": "v2"}, "model_runner is v2 on a CPU"),
        ({"vllm": {"dtype": "float16"}}, "vllm.dtype is a setting of its own; give engine.dtype"),
        ({"vllm": {"logits_processors": []}}, "vllm.logits_processors is set by what measures budgets"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        EngineParameters(**values)


def test_the_fingerprint_knows_what_can_change_a_token_and_nothing_else() -> None:
    plain = EngineParameters()
    assert EngineParameters(max_num_seqs=8, start_timeout_seconds=3).fingerprint == plain.fingerprint
    assert EngineParameters(dtype="bfloat16").fingerprint != plain.fingerprint
    assert EngineParameters(max_model_len=64).fingerprint != plain.fingerprint
    assert EngineParameters(vllm={"quantization": "fp8"}).fingerprint != plain.fingerprint
    cuda = EngineParameters(device="cuda")
    assert EngineParameters(device="cuda", model_runner="v2").fingerprint != cuda.fingerprint
    assert {"vllm", "model_runner"}.isdisjoint(cuda.model_dump()), "keys stay what they were"


def test_a_gpu_prefills_in_large_steps_and_compiles_no_fused_all_reduce() -> None:
    one, two = (EngineParameters(device="cuda", tensor_parallel_size=number).arguments("model") for number in (1, 2))
    assert one["max_num_batched_tokens"] == two["max_num_batched_tokens"] == 8192
    assert "compilation_config" not in one and two["compilation_config"]["pass_config"] == {"fuse_allreduce_rms": False}
    given = EngineParameters(device="cuda", vllm={"max_num_batched_tokens": 16384, "swap_space": 8})
    assert given.arguments("model").items() >= {"max_num_batched_tokens": 16384, "swap_space": 8}.items()
    assert given.model_copy(update={"model_runner": "v2"}).environment["VLLM_USE_V2_MODEL_RUNNER"] == "1"


def test_every_setting_is_described() -> None:
    assert all(field.description for field in EngineParameters.model_fields.values())
