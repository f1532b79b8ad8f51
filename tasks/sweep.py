"""The grid of budget evaluations: engines on Ray, rows into the trajectory table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from prefect import get_run_logger, task

from elastic_core.data.problems import Problem, read_problems
from elastic_core.engines.endpoint import Endpoint
from elastic_core.engines.http import HttpEngine, http_pool
from elastic_core.engines.http_server import ServerLost
from elastic_core.engines.latency import LATENCY_ROUNDS, Latency, Steps, measure_latency
from elastic_core.engines.parameters import EngineParameters
from elastic_core.errors import UserError
from elastic_core.statistics.budgets import anytime_accuracy
from elastic_core.strategies import Sampling
from elastic_core.strategies.reasonflux_zero import Templates
from elastic_core.sweep.cost import Throughput, bytes_per_token
from elastic_core.sweep.executor import SweepIncomplete, SweepResult, run_sweep
from elastic_core.sweep.grid import Samples, first_problems, rows_of, samples_text, within
from elastic_core.sweep.models import SweepModel, sweep_models
from elastic_core.sweep.plan import SweepPlan, known_lengths, longest_first, plan_sweep
from elastic_core.sweep.rows import lacks_published, regrade
from elastic_core.sweep.sound import checked_rows
from elastic_core.sweep.stopping import next_samples, projection, widest
from elastic_core.sweep.table import SweepTable
from elastic_core.system.ray_cluster import RayCluster, connected, running_cluster
from elastic_core.trajectory import KEY
from reports.summary import READ, cell_problems, summarize_problems
from reports.verdict import readable, unreadable
from tasks.records.mlflow_cells import record_cells
from tasks.records.mlflow_tracker import Tracker
from tasks.records.stage_directory import Stage, seconds_to_queue, worth_retrying
from tasks.records.tables import sweep_table
from tasks.records.terminal import TOLD, Progress, progress

if TYPE_CHECKING:
    from elastic_core.engines.ray_engine import RayEngine


@task(name="sweep", retries=1, retry_delay_seconds=5, retry_condition_fn=worth_retrying)
def measure(
    stage: Stage,
    tracker: Tracker,
    parent: str | None,
    engine: EngineParameters,
    cluster: RayCluster | None,
    checkpoints: Mapping[str, Path],
    benchmark_files: Mapping[str, Path],
    templates: Templates | None,
    endpoints: Mapping[str, Endpoint],
) -> dict[str, Any]:
    """Generate and grade the rows that the stage requests and the table lacks, model by model.

    Raises:
        UserError: when the request cannot be run, or another process writes the table, before any engine starts; and
            when a server has gone away for too long.
        SweepIncomplete: at the end, when samples failed.
    """
    stage.prepare()
    built = {name: read_problems(file) for name, file in benchmark_files.items()}
    problems = first_problems(built, stage.request.get("problems"))
    sweep = Sweep.of(stage, engine, checkpoints, problems, templates, endpoints)
    # Inside the lock: another flow that waits for the table must not record it at the same time.
    with sweep.store.writing(seconds_to_queue()):
        began = time.monotonic()
        with tracker.stage(stage, parent, stage.inputs) as run_id:
            before = time.monotonic()
            sweep.run(cluster)
            sweep.grade_earlier(built)
            after = time.monotonic()
            rows = checked_rows(sweep.store.scan(), READ, sweep.store.directory, sweep.store.manifest)
            means = cell_problems(rows)
            servers = {name: str(each.addresses[0]) for name, each in endpoints.items()}
            places: dict[str, Path | str] = {**checkpoints, **servers}
            record_cells(tracker, run_id, parent, stage, places, summarize_problems(means), anytime_accuracy(means))
            for sentence in unreadable(readable(rows)):
                get_run_logger().warning(sentence)
            counts = sweep.totals() | {"bookkeeping_seconds": before - began + time.monotonic() - after}
            if sweep.first_rows_seconds is not None:
                counts["first_rows_seconds"] = sweep.first_rows_seconds
            if sweep.results:
                tracker.log(run_id, metrics=counts)
            if sweep.failures:
                failures = [failure for error in sweep.failures for failure in error.failures]
                raise SweepIncomplete(failures, sweep.failures[-1].result)
    return {"table": str(sweep.store.directory), "mlflow_run": run_id, "samples": sweep.samples, **counts}


@dataclass
class Sweep:
    """The work of a stage, and its progress."""

    stage: Stage
    store: SweepTable
    engine: EngineParameters
    models: Sequence[SweepModel]
    problems: Mapping[str, Sequence[Problem]]
    samples: Samples  # It grows where `until_ci` wants more.
    results: list[SweepResult] = field(default_factory=list)
    failures: list[SweepIncomplete] = field(default_factory=list)
    first_rows_seconds: float | None = None  # From the beginning to the first rows in the table.

    @classmethod
    def of(
        cls,
        stage: Stage,
        engine: EngineParameters,
        checkpoints: Mapping[str, Path],
        problems: Mapping[str, Sequence[Problem]],
        templates: Templates | None,
        endpoints: Mapping[str, Endpoint],
    ) -> Sweep:
        """Raises UserError when the request cannot be run, or another version of vLLM made the table's rows."""
        try:
            given = {**stage.request, **stage.inputs["sampling"]}
            models = sweep_models(given, stage.inputs["models"], checkpoints, problems, engine, templates, endpoints)
        except ValueError as error:
            raise UserError(str(error)) from None
        template_settings = {model.name: dict(model.rows.markers.template) for model in models if not model.chat}
        store = sweep_table(stage, engine, endpoints, template_settings)
        return cls(stage, store, engine, models, problems, stage.request["samples"])

    def run(self, cluster: RayCluster | None) -> None:
        """Every model at the same number of samples, as many as are requested or narrow intervals take. Neither Ray
        nor an engine is started when nothing is missing, nor Ray for a model behind a server. Raises UserError when a
        server is away for too long; finished samples are stored."""
        with ExitStack() as stack:
            shown: Progress | None = None
            on_ray = False
            while behind := [model for model in self.models if self.plan(model).work] or self.widen(self.models):
                if shown is None:
                    shown = stack.enter_context(progress("sweep", self.num_missing(), "rows"))
                if not on_ray and any(not model.endpoints for model in behind):
                    stack.enter_context(connected(stack.enter_context(running_cluster(cluster))))
                    on_ray = True
                for model in behind:
                    try:
                        asyncio.run(self.run_model(model, shown))
                    except ServerLost as error:
                        stored = f"{len(self.store.finished()):,} rows are stored"
                        raise UserError(f"{error}; {stored}, and the same command goes on from there") from None
                self.first_rows_seconds = shown.first_seconds
                if self.failures:
                    return

    def grade_earlier(self, built: Mapping[str, Sequence[Problem]]) -> None:
        """Grade rows as published that an earlier sweep did not, if this one requests it. `built`: all problems."""
        if "grading" not in self.stage.request:
            return
        problems = {name: {problem.id: problem for problem in given} for name, given in built.items()}
        lacking = lacks_published(problems)
        if count := self.store.scan().filter(lacking).select(pl.len()).collect().item():
            with progress("grade-as-published", count, "rows") as shown:
                regrade(
                    self.store, problems, lambda rows: shown.reach(shown.done + rows), as_published=True, only=lacking
                )

    def plan(self, model: SweepModel) -> SweepPlan:
        """The samples of a model that the table lacks."""
        given = {name: self.stage.inputs["sampling"][name] for name in ("seed", "sharing")}
        return plan_sweep(model.cells, self.problems, num_samples=self.samples, finished=self.store.finished(), **given)

    def num_missing(self) -> int:
        return sum(self.plan(model).num_missing for model in self.models)

    def widen(self, models: Sequence[SweepModel]) -> list[SweepModel]:
        """The models, with more samples to take, when an interval is wider than requested and the cap not reached."""
        target, cap = self.stage.request["until_ci"], self.stage.request["max_samples"]
        if target is None:
            return []
        rows, cells = self.scores(), [cell for model in models for cell in model.cells]
        found, following = widest(rows, cells), next_samples(self.samples, cap)
        narrow, at_cap = found.half_width <= target, following == self.samples
        goes_on = "narrow enough" if narrow else "the cap" if at_cap else f"going on to {samples_text(following)}"
        get_run_logger().info(
            "%s: the widest interval is ±%.1f points of %g asked, %s: %s",
            samples_text(self.samples), found.half_width, target, found.cell, goes_on, extra=TOLD,
        )  # fmt: skip
        if narrow or at_cap:
            return []
        if (then := widest(rows, cells, cap)).half_width > target:
            get_run_logger().warning("%s", projection(then, cap))
        self.samples = following
        return list(models)

    def scores(self) -> pl.LazyFrame:
        """Scores of this round's rows, without those that a larger or a killed run left beyond it."""
        ids = {name: [problem.id for problem in given] for name, given in self.problems.items()}
        return self.store.scan().filter(rows_of(ids) & within(self.samples)).select(*KEY, "score")

    async def run_model(self, model: SweepModel, shown: Progress) -> None:
        """One model, with more rounds as long as its intervals need them: its engines are started once."""
        sampling = self.stage.inputs["sampling"]
        async with self.pool(model) as replicas:
            timed = await self.timed(model, replicas[0])
            served = [each.parameters.max_requests for each in model.endpoints.values()]
            max_in_flight = max(served, default=2 * self.engine.max_num_seqs)
            while (plan := self.plan(model)).work:
                before = shown.done
                shown.expect(before + self.num_missing())

                def update(so_far: SweepResult, before: int = before) -> None:
                    shown.reach(before + so_far.rows_written)

                try:
                    result = await run_sweep(
                        longest_first(plan, known_lengths(self.store, model.name)),
                        sampling=Sampling(sampling["temperature"], sampling["top_p"], sampling.get("logprobs", False)),
                        prompts=model.prompts,
                        replicas=replicas,
                        rows=model.rows,
                        store=self.store,
                        max_response_tokens=sampling.get("max_response_tokens"),
                        max_in_flight=max_in_flight,
                        on_progress=update,
                    )
                except SweepIncomplete as error:
                    self.failures.append(error)
                    result = error.result
                self.note(model, result, timed)
                if self.failures or not self.widen([model]):
                    return

    def pool(self, model: SweepModel) -> AbstractAsyncContextManager[Sequence[Mapping[str, RayEngine | HttpEngine]]]:
        """Its engines, as long as the context lasts."""
        if model.endpoints:
            return http_pool(model.endpoints, keeps_budgets=model.keeps_budgets)
        from elastic_core.engines.ray_engine import ray_pool

        return ray_pool(model.checkpoints, self.engine, keeps_budgets=model.keeps_budgets)

    async def timed(
        self, model: SweepModel, engines: Mapping[str, RayEngine | HttpEngine]
    ) -> tuple[Latency, Steps | None] | None:
        """Measure an engine without other load; None for two models that share a response, and behind a chat API, where
        the length of a thought is the server's."""
        if len(engines) > 1 or model.chat:
            return None
        cell = model.cells[0]
        prompts = [model.prompts.ids(each, cell.strategy, cell.budget) for each in self.problems[cell.benchmark]]
        (engine,) = engines.values()
        asked = prompts[: 4 * LATENCY_ROUNDS]
        if isinstance(engine, HttpEngine):  # A server may have other users, and a price.
            return await measure_latency(engine, asked, engine.max_model_len), None
        return await engine.speed(asked, self.engine.max_num_seqs)

    def note(self, model: SweepModel, result: SweepResult, timed: tuple[Latency, Steps | None] | None) -> None:
        self.results.append(result)
        get_run_logger().info(
            "sweep of %s: %d rows in %.0f s (grading %.1f s, beside generation), %d tokens generated, %d answered from "
            "what was known", model.name, result.rows_written, result.seconds, result.grading_seconds,
            result.tokens_generated, result.tokens_reused,
        )  # fmt: skip
        if result.tokens_generated:  # Else no speed was seen.
            Throughput(
                model.rows.model_fingerprint,
                model.rows.engine_fingerprint,
                model.replicas(self.engine),
                result.tokens_per_second,
                bytes_per_token(self.store),
                *(timed or (None, None)),
            ).write(self.stage.directory, model.name)

    def totals(self) -> dict[str, float]:
        """Counts of all models and rounds together."""
        names = ("rows_written", "tokens_generated", "tokens_reused", "grading_seconds", "store_seconds", "seconds")
        return {name: sum(getattr(result, name) for result in self.results) for name in names}
