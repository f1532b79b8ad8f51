"""Data sets are built one by one: a change builds what depends on it, and nothing else."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from elastic_core.data.build import TABLES, DataBuild, build, code_fingerprint
from elastic_core.data.dataset import Dataset
from elastic_core.data.fetch import fetch
from elastic_core.data.problems import Manifest, read_problems
from elastic_core.data.registry import REGISTRY
from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.system.files import exclusive
from tests.unit.test_data import local

SHARED = "Is this question measured?"


class Workplace:
    """A store, and what was written into it by each build."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.store, self.num_builds = directory, directory / "store", 0
        self._seen: dict[Path, int] = {}

    def build(self, *entries: Dataset, **changes: Any) -> tuple[Manifest, set[str]]:
        """The manifest, and which tables were written: NAME, or clean/NAME."""
        self.num_builds += 1
        # Every build has a lock of its own: what a file holds may change from one to the next.
        fetched = fetch(entries, sources=self.directory / f"sources-{self.num_builds}", mirror=self.directory)
        plan = replace(DataBuild(entries, fetched, BASE, max_prompt_tokens=10_000), **changes)
        manifest = build(plan, self.built, store=self.store)
        found = {file: file.stat().st_mtime_ns for file in self.store.rglob("*.parquet") if file.stem != "removed"}
        written = {
            f"clean/{file.parent.name}" if file.stem.startswith("clean-") else file.stem
            for file, at in found.items()
            if self._seen.get(file) != at
        }
        self._seen = found
        return manifest, written

    @property
    def built(self) -> Path:
        return self.directory / f"data-{self.num_builds}"


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def train(directory: Path, *questions: str) -> Dataset:
    return local(REGISTRY["math-train"], directory, [{"problem": question, "answer": "1"} for question in questions])


def measured(name: str, directory: Path, *questions: str) -> Dataset:
    answer: Any = 1 if name == "amc" else "1"
    rows = [{"problem": question, "answer": answer, "unique_id": question} for question in questions]
    return local(REGISTRY[name], directory, rows)


def test_a_data_set_that_joins_is_built_and_the_training_sets_are_held_against_it(
    workplace: Workplace, tmp_path: Path
) -> None:
    trained, math500 = train(tmp_path, SHARED, "Another one?"), measured("math500", tmp_path, "What else?")
    first, written = workplace.build(trained, math500)
    assert written == {"math-train", "clean/math-train", "math500", "clean/math500"}
    amc = measured("amc", tmp_path, SHARED)
    second, written = workplace.build(trained, math500, amc)
    assert written == {"amc", "clean/amc", "math-train"}
    assert [problem.question[:12] for problem in read_problems(workplace.built / "math-train.parquet")] == [
        "Another one?"
    ]
    assert second["datasets"]["math500"] == first["datasets"]["math500"]
    assert pl.read_parquet(workplace.built / "removed.parquet")["evaluation"].to_list() == ["amc"]
    again, written = workplace.build(trained, math500)
    assert again == first and not written, "what was built before is still there"


def test_a_data_set_that_changes_is_built_alone(workplace: Workplace, tmp_path: Path) -> None:
    trained, math500 = train(tmp_path, "One?"), measured("math500", tmp_path, "Two?")
    workplace.build(trained, math500)
    _, written = workplace.build(train(tmp_path, "Three?"), math500)
    assert written == {"math-train", "clean/math-train"}
    _, written = workplace.build(train(tmp_path, "Three?"), replace(math500, prompt="plain-v1"))
    assert written == {"math500"}
    assert read_problems(workplace.built / "math500.parquet")[0].question == "Two?"


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"common_ngrams": 3}, {"math-train"}),
        ({"decontaminate": False}, {"math-train"}),
        ({"trained": frozenset({"math-train"}), "max_tests": 3}, {"math-train"}),
        ({"trained": frozenset({"math-train"})}, {"math-train"}),
        ({"max_prompt_tokens": 5}, set()),  # Of what is not trained on.
    ],
)
def test_a_setting_builds_what_reads_it(
    workplace: Workplace, tmp_path: Path, changes: dict[str, Any], written: set[str]
) -> None:
    entries = train(tmp_path, "One?"), measured("math500", tmp_path, "Two?")
    workplace.build(*entries)
    assert workplace.build(*entries, **changes)[1] == written


def test_what_a_user_chose_for_a_file_is_part_of_what_it_is(workplace: Workplace, tmp_path: Path) -> None:
    math500 = measured("math500", tmp_path, "Two?")
    workplace.build(math500)
    assert workplace.build(replace(math500, chosen={"answer": "other"}))[1] == {"math500", "clean/math500"}


def test_a_changed_table_builds_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = code_fingerprint()
    for table in TABLES.glob("*.toml"):
        shutil.copy(table, tmp_path)
    monkeypatch.setattr("elastic_core.data.build.TABLES", tmp_path)
    assert code_fingerprint() == before
    prompts = tmp_path / "prompts.toml"
    prompts.write_text(prompts.read_text().replace("Let's think", "Think"))
    assert code_fingerprint() != before


def test_a_file_that_was_changed_where_it_is_read_is_built_again(workplace: Workplace, tmp_path: Path) -> None:
    """Its names are links to one file."""
    math500 = measured("math500", tmp_path, "Two?")
    first, _ = workplace.build(math500)
    pl.read_parquet(workplace.built / "math500.parquet").head(0).write_parquet(workplace.built / "math500.parquet")
    second, written = workplace.build(math500)
    assert second == first and written == {"math500"}
    assert len(read_problems(workplace.built / "math500.parquet")) == 1


def test_a_file_system_without_links_has_copies(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.link", refused)
    workplace.build(measured("math500", tmp_path, "Two?"))
    assert len(read_problems(workplace.built / "math500.parquet")) == 1


def test_a_data_set_that_another_process_is_building_is_waited_for_and_said(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastic_core.data.build.WAIT_SECONDS", 0.0)
    with (
        exclusive(workplace.store / "math500"),
        pytest.raises(UserError, match=r"store/math500: process \d+ "),
    ):
        workplace.build(measured("math500", tmp_path, "Two?"))
