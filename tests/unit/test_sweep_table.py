"""A sweep's table over stores that sweeps have in common: what is known of a model is known to every sweep of it."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from elastic_core.sweep.table import (
    DuplicateKey,
    Manifest,
    ManifestMismatch,
    SweepTable,
    TableLocked,
    TrajectoryStore,
    with_stores,
)
from elastic_core.trajectory import KEY, SCHEMA

SETTINGS = {"preset": "smoke", "vllm": "0.29", "temperature": 0.8, "seed": 1}
MANIFEST = Manifest(
    {"base": "f1", "trained": "f2"}, {"base": "e1", "trained": "e1"}, {"easy": "h1", "hard": "h2"}, SETTINGS
)


def table(runs: Path, key: str, models: list[str], manifest: Manifest = MANIFEST) -> SweepTable:
    directory = runs / "smoke" / "sweep" / key / "table"
    return SweepTable(directory, with_stores(manifest, models, directory, runs / "smoke" / "tables"))


def rows(models: list[str], strategy: str = "separate", samples: int = 2) -> pl.DataFrame:
    fixed: dict[str, Any] = dict.fromkeys(SCHEMA, None) | {"problem": "0", "strategy": strategy, "think_budget": 16}
    return pl.DataFrame(
        [
            fixed | {"model": model, "benchmark": benchmark, "sample": sample}
            for model in models
            for benchmark in ("easy", "hard")
            for sample in range(samples)
        ],
        schema=SCHEMA,
    )


def write(into: SweepTable, what: pl.DataFrame) -> None:
    with into.writing():
        into.append(what)


def models_of(found: SweepTable) -> dict[str, int]:
    return dict(found.scan().group_by("model").len().collect().iter_rows())


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = rows(["base", "trained", "base>trained"])
    write(table(tmp_path, "k1", ["base", "trained", "base>trained"]), written)
    read = SweepTable(tmp_path / "smoke/sweep/k1/table").scan().collect()
    assert read.schema == SCHEMA
    assert read.sort(KEY).equals(written.sort(KEY))


def test_a_model_joins_and_the_others_rows_are_there(tmp_path: Path) -> None:
    write(table(tmp_path, "k1", ["base"]), rows(["base"]))
    joined = table(tmp_path, "k2", ["base", "trained"])
    assert models_of(joined) == {"base": 4}
    assert set(joined.finished()["model"]) == {"base"}
    write(joined, rows(["trained"]))
    assert models_of(joined) == {"base": 4, "trained": 4}
    assert models_of(SweepTable(tmp_path / "smoke/sweep/k1/table")) == {"base": 4}


def test_the_same_weights_under_another_name_are_known(tmp_path: Path) -> None:
    write(table(tmp_path, "k1", ["trained"]), rows(["trained"]))
    renamed = replace(MANIFEST, models={"best": "f2", "trained": "f2"}, engines={"best": "e1", "trained": "e1"})
    both = table(tmp_path, "k2", ["best", "trained"], renamed)
    assert models_of(both) == {"best": 4, "trained": 4}
    with both.writing(), pytest.raises(DuplicateKey):
        both.append(rows(["best"]))


def test_a_further_seed_adds_its_rows_only(tmp_path: Path) -> None:
    write(table(tmp_path, "k1", ["base", "trained"]), rows(["base", "trained"]))
    models = {"base": "f1", "trained@1": "f2", "trained@2": "f3"}
    seeds = table(tmp_path, "k2", list(models), replace(MANIFEST, models=models, engines=dict.fromkeys(models, "e1")))
    assert models_of(seeds) == {"base": 4, "trained@1": 4}
    write(seeds, rows(["trained@2"]))
    assert models_of(seeds) == dict.fromkeys(models, 4)


def test_who_is_trained_again_has_rows_of_its_own(tmp_path: Path) -> None:
    write(table(tmp_path, "k1", ["base", "trained"]), rows(["base", "trained"]))
    again = replace(MANIFEST, models={"base": "f1", "trained": "f3"})
    assert models_of(table(tmp_path, "k2", ["base", "trained"], again)) == {"base": 4}


@pytest.mark.parametrize(
    "change",
    [
        {"engines": {"base": "e2"}},
        {"benchmarks": {"easy": "h9", "hard": "h9"}},
        {"settings": SETTINGS | {"temperature": 0.6}},
        {"settings": SETTINGS | {"seed": 2}},
    ],
)
def test_rows_made_from_something_else_are_others(tmp_path: Path, change: dict[str, Any]) -> None:
    write(table(tmp_path, "k1", ["base"]), rows(["base"]))
    assert models_of(table(tmp_path, "k2", ["base"], replace(MANIFEST, **change))) == {}


def test_other_templates_are_other_rows_of_their_strategy_alone(tmp_path: Path) -> None:
    first, second = (replace(MANIFEST, templates={"reasonflux_zero": name}) for name in ("t1", "t2"))
    write(table(tmp_path, "k1", ["base"], first), rows(["base"]).vstack(rows(["base"], "reasonflux_zero")))
    other = table(tmp_path, "k2", ["base"], second)
    assert other.scan().select("strategy").unique().collect().to_series().to_list() == ["separate"]
    write(other, rows(["base"], "reasonflux_zero", samples=1))
    assert models_of(other) == {"base": 6}
    assert models_of(SweepTable(tmp_path / "smoke/sweep/k1/table")) == {"base": 8}


def test_rows_of_another_vllm_are_refused_with_what_to_do(tmp_path: Path) -> None:
    write(table(tmp_path, "k1", ["base"]), rows(["base"]))
    newer = table(tmp_path, "k2", ["base", "trained"], replace(MANIFEST, settings=SETTINGS | {"vllm": "0.31"}))
    with pytest.raises(ManifestMismatch, match=r"tables/.*vllm = 0.29, now it is 0.31; restore that"):
        newer.check()


def test_rows_of_a_chat_template_that_was_told_something_else_are_refused(tmp_path: Path) -> None:
    """As of a family whose settings have changed. A table of before such settings were recorded takes them."""
    told = {"base": {"reasoning_effort": "high"}}
    write(table(tmp_path, "k1", ["base"]), rows(["base"]))
    with table(tmp_path, "k1", ["base"], replace(MANIFEST, template_settings=told)).writing():
        pass
    found = SweepTable(tmp_path / "smoke/sweep/k1/table").manifest
    assert found.template_settings == told
    table(tmp_path, "k2", ["base"]).check()  # Without loading a tokenizer, as for the status.
    other = table(tmp_path, "k3", ["base"], replace(MANIFEST, template_settings={"base": {"reasoning_effort": "low"}}))
    with pytest.raises(ManifestMismatch, match=r"template_setting base = {'reasoning_effort': 'high'}, now it is"):
        other.check()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"models": 3}, r"models: .* found 3"),
        ({"benchmarks": {"easy": 3}}, r"benchmarks\.easy: "),
        ({"stores": {"base": "x"}}, r"stores\.base: "),
        ({"settings": None}, "settings: "),
        ({"later": {}}, "later: "),
        (None, "maximum recursion"),
    ],
)
def test_a_strangers_manifest_is_refused_in_one_line(tmp_path: Path, change: Any, says: str) -> None:
    file = tmp_path / "manifest.json"
    file.write_text("[" * 100_000 if change is None else json.dumps(asdict(MANIFEST) | change))
    with pytest.raises(ManifestMismatch, match=says) as refused:
        Manifest.load(file)
    assert len(str(refused.value).splitlines()) == 1
    file.write_text(MANIFEST.dumps())
    assert Manifest.load(file) == MANIFEST


def test_one_sweep_at_a_time_writes_what_two_have_in_common(tmp_path: Path) -> None:
    with (
        table(tmp_path, "k1", ["base"]).writing(),
        pytest.raises(TableLocked, match="tables/easy-"),
        table(tmp_path, "k2", ["base", "trained"]).writing(),
    ):
        pass
    with table(tmp_path, "k1", ["base"]).writing(), table(tmp_path, "k2", ["trained"]).writing():
        pass


def test_shards_are_those_of_the_tables_models(tmp_path: Path) -> None:
    both = table(tmp_path, "k1", ["base", "trained"])
    write(both, rows(["base", "trained"]))
    assert len(both.shards()) == 4
    of_base = both.finished().filter(model="base")["shard"].unique()
    assert models_of(both) == {"base": 4, "trained": 4}
    assert set(both.scan(of_base).collect()["model"]) == {"base"}


def test_the_runs_directory_can_be_moved(tmp_path: Path) -> None:
    write(table(tmp_path / "runs", "k1", ["base"]), rows(["base"]))
    (tmp_path / "runs").rename(tmp_path / "moved")
    assert models_of(SweepTable(tmp_path / "moved/smoke/sweep/k1/table")) == {"base": 4}


def test_a_table_that_holds_its_rows_itself_is_read_and_not_added_to(tmp_path: Path) -> None:
    directory = tmp_path / "smoke" / "sweep" / "k1" / "table"
    store = TrajectoryStore(directory)
    with store.writing(MANIFEST):
        store.append(rows(["base"]))
    assert models_of(SweepTable(directory)) == {"base": 4}
    with pytest.raises(ManifestMismatch, match="holds rows itself"):
        table(tmp_path, "k1", ["base"])


def test_a_model_behind_a_server_is_known_whatever_engines_of_ours_measure_beside_it(tmp_path: Path) -> None:
    server = {"served": {"address": "http://host/v1#m", "weights": "not hashed"}}
    beside = replace(
        MANIFEST,
        models=MANIFEST.models | {"served": "f3"},
        engines=MANIFEST.engines | {"served": "e3"},
        servers=server,
    )
    without_ours = {name: value for name, value in SETTINGS.items() if name != "vllm"}
    alone = replace(beside, models={"served": "f3"}, engines={"served": "e3"}, settings=without_ours)
    write(table(tmp_path, "k1", ["served"], alone), rows(["served"]))
    both = table(tmp_path, "k2", ["base", "served"], beside)
    both.check()
    assert models_of(both) == {"served": 4}
    write(both, rows(["base"]))
    again = table(tmp_path, "k3", ["served"], alone)
    again.check()
    assert models_of(again) == {"served": 4}
    store = Path(again.manifest.stores["served"]["easy"]).name
    assert Manifest.load(tmp_path / "smoke" / "tables" / store / "manifest.json").servers == server
