"""A sweep on real vLLM in a Ray actor, with the miniature's base model: budgets, determinism, a killed engine."""

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
import ray

import elastic_core.miniature
from elastic_core.budget import parse_grid
from elastic_core.data.problems import Problem
from elastic_core.engines.base import Engine, EngineLost
from elastic_core.engines.parameters import EngineParameters
from elastic_core.engines.ray_engine import RayEngine, ray_pool
from elastic_core.miniature.problems import generate
from elastic_core.models.special_tokens import load_markers
from elastic_core.strategies import Completion, Finish, Generate, Sampling
from elastic_core.sweep.executor import SweepResult, run_sweep
from elastic_core.sweep.grid import Cell, build_cells
from elastic_core.sweep.models import Prompts
from elastic_core.sweep.plan import Sharing, plan_sweep
from elastic_core.sweep.rows import RowBuilder
from elastic_core.sweep.table import Manifest, TrajectoryStore
from elastic_core.trajectory import KEY
from tests.exactness import broken_rules

MODEL = Path(elastic_core.miniature.__file__).parent / "base"
CONTEXT = 320
PARAMETERS = EngineParameters(max_model_len=CONTEXT, max_num_seqs=64)
SAMPLING = Sampling(temperature=0.8, top_p=0.95)
CELLS = build_cells(
    ["base"],
    ["miniature-easy"],
    ["vanilla", "budget_forcing", "budget_forcing_wait1", "separate", "l1_exact", "l1_max", "unconstrained"],
    parse_grid(["0+24", "16+24", "48+24"]),
)
PAIR = build_cells(["base>twin"], ["miniature-easy"], ["separate"], parse_grid(["16+24", "48+24"]))
PROBLEMS = {
    "miniature-easy": [
        Problem("miniature-easy", str(i), chain.question, str(chain.answer), "math")
        for i, chain in enumerate(generate("easy", 8, seed=5, split="tune"))
    ]
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=3, num_gpus=0, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def engine(cluster: None, runner: asyncio.Runner) -> Iterator[RayEngine]:
    engine = RayEngine(str(MODEL), PARAMETERS)
    runner.run(engine.__aenter__())
    yield engine
    runner.run(engine.__aexit__(None, None, None))


def sweep(
    runner: asyncio.Runner,
    engine: Engine,
    directory: Path,
    cells: Sequence[Cell] = CELLS,
    sharing: Sharing = "memo",
    beside: Sequence[Engine] = (),
) -> tuple[pl.DataFrame, SweepResult]:
    """The whole table, sorted, and what this run did.

    Args:
        beside: engines that share the samples with the first.
    """
    tokenizer, markers = load_markers(MODEL)
    store = TrajectoryStore(directory)
    with store.writing(Manifest({"base": "model"}, {"base": PARAMETERS.fingerprint}, {}, {})):
        plan = plan_sweep(cells, PROBLEMS, num_samples=2, seed=3, finished=store.finished(), sharing=sharing)
        result = runner.run(
            run_sweep(
                plan,
                sampling=SAMPLING,
                prompts=Prompts(tokenizer),
                replicas=[{"base": each, "twin": each} for each in (engine, *beside)],
                rows=RowBuilder(tokenizer, markers, "model", PARAMETERS.fingerprint),
                store=store,
            )
        )
    return store.read().sort(KEY), result


@pytest.fixture(scope="module")
def table(runner: asyncio.Runner, engine: RayEngine, tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    return sweep(runner, engine, tmp_path_factory.mktemp("table"))[0]


def test_every_row_is_there_and_keeps_its_budget(table: pl.DataFrame) -> None:
    assert table.height == len(CELLS) * 8 * 2
    assert broken_rules(table) == {}
    assert set(table["think_finish"]) >= {"closed", "forced", "length"}


def test_forced_cells_are_those_of_independent_sampling_token_by_token(
    table: pl.DataFrame, runner: asyncio.Runner, engine: RayEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine draws reproducibly and, with one seed for all cells of a sample, both draw thought and forced solution
    from the same places. A solution after a thought that closed by itself is part of the thought's draw in the one and
    a draw of its own in the other."""
    monkeypatch.setattr("elastic_core.sweep.plan.cell_seed", lambda seed, *_: seed)
    independent, result = sweep(runner, engine, tmp_path, sharing="independent")
    forced = table.filter(pl.col("think_finish") == "forced", ~pl.col("strategy").str.contains("wait"))
    assert forced.height > 50
    assert independent.join(forced, on=KEY, how="semi", nulls_equal=True).equals(forced)
    thoughts = [*KEY, "prompt_tokens", "think_tokens", "think_finish", "seed"]
    shared_strategies = ~pl.col("strategy").str.contains("wait")
    assert independent.filter(shared_strategies)[thoughts].equals(table.filter(shared_strategies)[thoughts])
    assert result.tokens_reused == 0
    assert broken_rules(independent) == {}


def test_two_models_share_a_thought_with_each_alone(
    table: pl.DataFrame, runner: asyncio.Runner, engine: RayEngine, tmp_path: Path
) -> None:
    sweep(runner, engine, tmp_path)
    both, result = sweep(runner, engine, tmp_path, PAIR)
    pair = both.filter(model="base>twin")
    assert pair.height == len(PAIR) * 8 * 2
    alone = table.join(pair, on=[name for name in KEY if name != "model"], how="semi")
    assert pair["think_tokens"].to_list() == alone["think_tokens"].to_list()
    assert result.tokens_reused >= pair["think_tokens"].sum(), "every thought was known from the table"
    assert broken_rules(pair) == {}


def test_more_thinking_answers_more(table: pl.DataFrame) -> None:
    scores = {row["strategy"]: row["score"] for row in table.group_by("strategy").agg(pl.mean("score")).to_dicts()}
    assert scores["unconstrained"] > max(scores["separate"], scores["vanilla"])


def test_the_same_seed_gives_the_same_table(
    table: pl.DataFrame, runner: asyncio.Runner, engine: RayEngine, tmp_path: Path
) -> None:
    assert sweep(runner, engine, tmp_path)[0].equals(table)


@dataclass
class Counted:
    engine: Engine
    requests: int = 0

    async def generate(self, request: Generate, seed: int) -> Completion:
        self.requests += 1
        return await self.engine.generate(request, seed)


@pytest.mark.slow  # A second engine.
def test_two_engines_share_the_samples_and_make_the_same_table(
    table: pl.DataFrame, runner: asyncio.Runner, engine: RayEngine, tmp_path: Path
) -> None:
    pool = ray_pool({"base": str(MODEL)}, PARAMETERS.model_copy(update={"data_parallel_size": 2}))
    replicas = [Counted(replica["base"]) for replica in runner.run(pool.__aenter__())]
    try:
        pooled, _ = sweep(runner, replicas[0], tmp_path, beside=replicas[1:])
    finally:
        runner.run(pool.__aexit__(None, None, None))
    assert len(replicas) == 2 and min(replica.requests for replica in replicas) > 50
    assert pooled.equals(table)


def test_exactly_the_stop_ids_end_a_completion(runner: asyncio.Runner, engine: RayEngine) -> None:
    _, markers = load_markers(MODEL)
    free = runner.run(engine.generate(Generate(markers.think_start, None, (), SAMPLING), 1))
    assert (len(free.tokens), free.finish) == (CONTEXT - 1, Finish.LENGTH)
    stop = free.tokens[20]
    ended = runner.run(engine.generate(Generate(markers.think_start, None, (stop,), SAMPLING), 1))
    assert ended.tokens == free.tokens[: free.tokens.index(stop) + 1]
    assert ended.finish == Finish.STOP


def test_a_full_context_gives_an_empty_completion_and_a_nearly_full_one_is_clipped(
    runner: asyncio.Runner, engine: RayEngine
) -> None:
    full = runner.run(engine.generate(Generate((5,) * CONTEXT, 4, (), SAMPLING), 1))
    assert full == Completion((), Finish.LENGTH)
    nearly = runner.run(engine.generate(Generate((5,) * (CONTEXT - 3), 9, (), Sampling(logprobs=True)), 1))
    assert len(nearly.tokens) == 3
    assert nearly.logprobs is not None
    assert all(logprob <= 0 for logprob in nearly.logprobs)


class KillingEngine:
    """Kills the engine's actor, as the out-of-memory killer would, after a number of completions."""

    def __init__(self, engine: RayEngine, after: int) -> None:
        self.engine = engine
        self.completions = 0
        self.after = after

    async def generate(self, request: Generate, seed: int) -> Completion:
        completion = await self.engine.generate(request, seed)
        self.completions += 1
        if self.completions == self.after:
            os.kill(self.engine.process_id, signal.SIGKILL)
        return completion


@pytest.mark.slow  # A second start; what becomes of requests is in test_sweep_executor too.
def test_a_killed_engine_costs_no_row(
    table: pl.DataFrame, runner: asyncio.Runner, engine: RayEngine, tmp_path: Path
) -> None:
    before = engine.process_id
    assert sweep(runner, KillingEngine(engine, after=60), tmp_path)[0].equals(table)
    assert engine.process_id != before


def test_an_actor_that_finds_no_place_says_what_it_waited_for(cluster: None, runner: asyncio.Runner) -> None:
    parameters = EngineParameters(device="cuda", start_timeout_seconds=2)
    with pytest.raises(EngineLost, match=r"no engine after 2 s: waited for Ray to place an actor with .*'GPU': 1"):
        runner.run(RayEngine("nowhere", parameters).__aenter__())


@pytest.mark.slow  # An actor that imports vLLM; a checkpoint is looked at before a sweep begins.
def test_a_checkpoint_that_is_not_there_is_named(cluster: None, runner: asyncio.Runner, tmp_path: Path) -> None:
    with pytest.raises(EngineLost, match=rf"vLLM did not start for {tmp_path}"):
        runner.run(RayEngine(str(tmp_path), PARAMETERS).__aenter__())
