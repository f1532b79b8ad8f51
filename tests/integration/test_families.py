"""Models whose marks are not `<think>` and `</think>`, as twins on real engines: one request writes what two do, and a
server keeps every budget to the token."""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import chain
from pathlib import Path

import openai
import pytest
from scipy.stats import chi2_contingency

from elastic_core.budget import Budget
from elastic_core.engines.base import drive
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.vllm import VllmEngine
from elastic_core.models.marks import Marks
from elastic_core.models.special_tokens import chat_prompt, load_markers
from elastic_core.models.twins import Family, family_of, make_twin
from elastic_core.strategies import STRATEGIES, Sampling
from elastic_core.trajectory import ThinkFinish, Trajectory
from tests.served import elastic_serve

MODELS = (
    "openai/gpt-oss-20b",
    "moonshotai/Kimi-K3",
    "google/gemma-4-31B-it",
    "ByteDance-Seed/Seed-OSS-36B-Instruct",
    "CohereLabs/command-a-reasoning-08-2025",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3-4B",
)
QUESTIONS = [f"What is {number} and {number + 3}?" for number in range(128)]
ENGINE = EngineParameters(max_model_len=512, max_num_seqs=64)

pytestmark = pytest.mark.slow


def origin(model: str) -> Family:
    """A family's facts; the vocabulary, template and marks of Kimi K3 with Qwen3's architecture, as transformers has
    none for its own."""
    family = family_of(model)
    if family.name != "kimi-k3":
        return family
    config = {**family_of("Qwen/Qwen3-8B").config_of("8B"), "vocab_size": family.config["vocab_size"]}
    return replace(family, config=config)


@pytest.fixture(scope="module", params=MODELS)
def twin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = request.param
    directory = tmp_path_factory.mktemp("twins") / model.rpartition("/")[2]
    make_twin(model, origin(model), directory)
    return directory


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def engine(runner: asyncio.Runner, twin: Path) -> Iterator[VllmEngine]:
    async def start() -> VllmEngine:
        engine = VllmEngine(str(twin), ENGINE, keeps_budgets=True)
        await engine.warm_up()
        return engine

    engine = runner.run(start())
    yield engine
    engine.shutdown()


def decode(
    runner: asyncio.Runner, engine: VllmEngine, twin: Path, name: str, budget: Budget, num_seeds: int
) -> list[Trajectory]:
    """One for each question and seed. Every one has passed `Trajectory.check`."""
    tokenizer, markers = load_markers(twin)
    prompts = [chat_prompt(tokenizer, question) for question in QUESTIONS] * num_seeds

    async def every() -> list[Trajectory]:
        rollouts = (STRATEGIES[name].decode(prompt, budget, markers, Sampling(0.6, 1.0)) for prompt in prompts)
        return await asyncio.gather(*(drive(r, {"policy": engine}, seed) for seed, r in enumerate(rollouts)))

    return [trajectory.check(budget) for trajectory in runner.run(every())]


def p_value(one: Counter[int], two: Counter[int]) -> float:
    """Of two counts being of one distribution; what is rare is counted together."""
    kinds = [kind for kind in one | two if one[kind] + two[kind] >= 20]
    table = [
        [counts[kind] for kind in kinds] + [counts.total() - sum(counts[kind] for kind in kinds)]
        for counts in (one, two)
    ]
    table = [list(column) for column in zip(*table, strict=True) if sum(column)]
    return float(chi2_contingency(table).pvalue) if len(table) > 1 else 1.0


def drawn_anew(one: Sequence[int], two: Sequence[int], alone: Set[int]) -> bool:
    """Whether two thoughts differ only after a token that ends a mark and may stand alone: two requests go on with a
    third one there."""
    same = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), 0)
    return not alone.isdisjoint(one[:same])


@pytest.mark.parametrize("think_budget", [0, 1, 2, 6, 24])
def test_one_request_writes_what_two_do(
    runner: asyncio.Runner, engine: VllmEngine, twin: Path, think_budget: int
) -> None:
    budget, num_seeds = Budget(think_budget, 12), 4 if think_budget == 24 else 1
    one, two = (decode(runner, engine, twin, name, budget, num_seeds) for name in ("separate_native", "separate"))
    for found in (one, two):
        assert all(each.think_tokens <= think_budget and each.solution_tokens <= 12 for each in found)
    thoughts = [
        [(each.response_ids[: each.solution_start], each.think_finish) for each in found] for found in (one, two)
    ]
    # The same seeds: what differs otherwise is where a decoding step and a prefill round differently.
    alone = {mark[-1] for mark in load_markers(twin)[1].think_ends}
    assert sum(a == b or drawn_anew(a[0], b[0], alone) for a, b in zip(*thoughts, strict=True)) >= 0.9 * len(one)
    for measure in (
        lambda each: each.think_tokens,
        lambda each: each.solution_tokens,
        lambda each: each.forced_tokens,
        lambda each: hash(each.response_ids[-2:]) % 11,
    ):
        assert p_value(*(Counter(map(measure, found)) for found in (one, two))) > 1e-4
    if think_budget == 24:
        assert {ThinkFinish.CLOSED, ThinkFinish.FORCED} <= {each.think_finish for each in one}


async def asked(
    client: openai.AsyncOpenAI, model: str, budget: Budget, seed: int
) -> tuple[Budget, list[int], dict[str, int | str]]:
    response = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": random.Random(seed).choice(QUESTIONS)}],
        seed=seed,
        extra_body={
            "return_token_ids": True,
            "vllm_xargs": {"think_budget": budget.think, "solution_budget": budget.solution},
        },
    )
    (choice,) = response.choices
    return budget, choice.token_ids, choice.elastic  # type: ignore[attr-defined]


def test_a_server_keeps_a_hundred_random_budgets(twin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the openai client. What the server tells is what its tokens say, read by the marks."""
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))
    markers, dice = Marks.of(load_markers(twin)[1]), random.Random(3)
    budgets = [Budget(dice.choice([0, 1, 2, 3, 5, 9, 30]), dice.randint(1, 20)) for _ in range(100)]

    async def every(address: str) -> list[tuple[Budget, list[int], dict[str, int | str]]]:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(
                *(asked(client, twin.name, budget, seed) for seed, budget in enumerate(budgets))
            )

    arguments = ("--set", "engine.max_model_len=512", "--set", "engine.max_num_seqs=64")
    with elastic_serve(twin, tmp_path / "log", *arguments) as (address, _):
        try:
            found = asyncio.run(every(address))
        except openai.InternalServerError as error:
            if not any(why in str(error) for why in ("vocab file", "could not decode header")):
                raise
            pytest.skip("vLLM's parser of harmony has no vocabulary here, or refuses headers that random weights write")
    seen: Counter[int | str] = Counter()
    for budget, ids, told in found:
        think, solution, forced = (int(told[f"{name}_tokens"]) for name in ("thinking", "solution", "forced"))
        assert think <= (budget.think or 0) and solution <= (budget.solution or 0)
        assert think + forced + solution == len(ids)
        if told["thought"] != "end_of_text":
            assert markers.mark_before(ids, think + forced), "a mark stands where the server says the thought ended"
            assert ids[-1] in markers.end_of_text or solution == budget.solution
        if told["thought"] == "forced":
            assert think == budget.think
        seen[told["thought"]] += 1
    assert seen["forced"] and seen["closed"]


def test_a_thought_is_shown_without_its_marks(twin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `elastic ask` and the playground show it."""
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))
    on_cpu = ("engine.device=cpu", "engine.dtype=float32", "engine.enforce_eager=true", "engine.max_model_len=512")
    command = [sys.executable, "-m", "flows.commands", "ask", "What is 1 and 1?", "--preset", "evaluate"]
    command += ["--model", str(twin), "--budget", "9+9", *chain.from_iterable(("--set", each) for each in on_cpu)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    said, told = done.stdout.rsplit("tokens: ", 1)
    tokenizer, markers = load_markers(twin)
    # What a twin writes at random into its solution may be marks again.
    thought = said.strip().partition("\n\n")[0]
    assert not any(tokenizer.decode(mark) in thought for mark in (markers.think_start, markers.close))
    assert "of 9" in told
