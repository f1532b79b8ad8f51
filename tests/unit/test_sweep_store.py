"""The trajectory table on disk: whole shards, unique keys, one writer, one provenance."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_core.sweep.table import DuplicateKey, Manifest, ManifestMismatch, TableLocked, TrajectoryStore
from elastic_core.trajectory import KEY, SCHEMA

MANIFEST = Manifest(
    {"base": "f1"}, {"base": "e1"}, {"easy": "h1"}, {"temperature": 0.8, "seed": 1}, {"reasonflux_zero": "t1"}
)


def rows(samples: list[int], think_budget: int | None = 16) -> pl.DataFrame:
    filled: dict[str, Any] = dict.fromkeys(SCHEMA, None) | {
        "model": "base",
        "benchmark": "easy",
        "problem": "0",
        "strategy": "separate",
        "think_budget": think_budget,
        "solution_budget": 32,
        "response_ids": [1, 2, 3],
        "forced": [False, True, False],
    }
    return pl.DataFrame([filled | {"sample": sample} for sample in samples], schema=SCHEMA)


def test_rows_are_readable_at_once_by_anyone(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    with store.writing(MANIFEST):
        store.append(rows([0, 1]))
        assert TrajectoryStore(tmp_path).read().height == 2
        assert pl.read_parquet(tmp_path / "*.parquet").schema == SCHEMA
        with pytest.raises(ValueError, match="expected"):
            store.append(rows([3]).drop("score"))
        store.append(rows([2]))
    with pytest.raises(AssertionError, match="writing"):
        store.append(rows([3]))
    assert sorted(TrajectoryStore(tmp_path).finished()["sample"]) == [0, 1, 2]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 12), max_size=5), max_size=5), st.sampled_from([None, 16]))
def test_a_key_never_appears_twice(batches: list[list[int]], think_budget: int | None) -> None:
    with tempfile.TemporaryDirectory() as directory:
        expected: set[int] = set()
        for batch in batches:  # Every batch by a new writer, as after a restart.
            store = TrajectoryStore(Path(directory))
            with store.writing(MANIFEST):
                if expected & set(batch) or len(set(batch)) < len(batch):
                    with pytest.raises(DuplicateKey):
                        store.append(rows(batch, think_budget))
                else:
                    store.append(rows(batch, think_budget))
                    expected |= set(batch)
        table = TrajectoryStore(Path(directory)).read()
        assert sorted(table["sample"]) == sorted(expected)
        assert table.select(KEY).is_unique().all()


def test_a_kill_between_write_and_rename_leaves_no_half_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TrajectoryStore(tmp_path)
    with store.writing(MANIFEST):
        store.append(rows([0]))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), store.writing(MANIFEST):
        patch.setattr(Path, "replace", _killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # Who is killed cleans nothing up.
        store.append(rows([1]))
    assert list(tmp_path.glob("*.tmp"))
    assert store.read()["sample"].to_list() == [0]
    with store.writing(MANIFEST):
        assert not list(tmp_path.glob("*.tmp"))
        store.append(rows([1]))
    assert sorted(store.read()["sample"]) == [0, 1]


def _killed(*_: Path) -> Path:
    raise KeyboardInterrupt


def test_a_new_table_is_empty_and_an_unreadable_manifest_is_named(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        assert TrajectoryStore(place).read().schema == SCHEMA
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ManifestMismatch, match=r"manifest\.json"), TrajectoryStore(tmp_path).writing(MANIFEST):
        pass


def test_a_second_writer_is_told_who_holds_the_table(tmp_path: Path) -> None:
    with (
        TrajectoryStore(tmp_path).writing(MANIFEST),
        pytest.raises(TableLocked, match=f"process {os.getpid()} on"),
        TrajectoryStore(tmp_path).writing(MANIFEST),
    ):
        pass
    with TrajectoryStore(tmp_path).writing(MANIFEST):
        pass


@pytest.mark.parametrize(
    "change, named",
    [
        ({"models": {"base": "f2"}}, "model base = f1, now it is f2"),
        ({"engines": {"base": "e2"}}, "engine base"),
        ({"benchmarks": {"easy": "h2"}}, "benchmark easy"),
        ({"settings": {"temperature": 0.6, "seed": 1}}, "setting temperature = 0.8, now it is 0.6"),
        ({"settings": {"temperature": 0.8}}, "setting seed"),
        ({"settings": {"temperature": 0.8, "seed": 1, "top_k": 5}}, "setting top_k"),
        ({"templates": {"reasonflux_zero": "t2"}}, "template reasonflux_zero = t1, now it is t2"),
    ],
)
def test_rows_of_another_provenance_are_refused(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    store = TrajectoryStore(tmp_path)
    with store.writing(MANIFEST):
        store.append(rows([0]))
    with (
        pytest.raises(ManifestMismatch, match=named),
        store.writing(Manifest(**{**MANIFEST.__dict__, **change})),
    ):
        pass
    with store.writing(MANIFEST):  # The refusal changed nothing and left the table free.
        pass


def test_every_code_that_wrote_to_a_table_is_on_record_and_any_other_goes_on(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    made_by = [{}, {"1, commit a": "lock 1"}, {"1, commit b": "lock 1"}, {"1, commit a": "lock 2"}]
    for sample, written_by in enumerate(made_by):
        with store.writing(replace(MANIFEST, written_by=written_by)):
            store.append(rows([sample]))
    assert store.read().height == len(made_by)
    assert Manifest.load(tmp_path / "manifest.json").written_by == {"1, commit a": "lock 2", "1, commit b": "lock 1"}


def test_a_table_may_gain_models_benchmarks_and_strategies(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    with store.writing(replace(MANIFEST, templates={})):
        pass
    with store.writing(MANIFEST):
        pass
    with store.writing(Manifest({"trained": "f9"}, {"trained": "e1"}, {"hard": "h2"}, MANIFEST.settings)):
        pass
    manifest = Manifest.load(tmp_path / "manifest.json")
    assert manifest.models == {"base": "f1", "trained": "f9"}
    assert manifest.benchmarks == {"easy": "h1", "hard": "h2"}
    assert manifest.templates == {"reasonflux_zero": "t1"}
