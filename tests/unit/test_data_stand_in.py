"""Rows that stand in for a data set's own go through its mapping, and what a twin says is right for some."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from elastic_core.data.clean import clean_batches, file_batches
from elastic_core.data.dataset import Dataset, Form
from elastic_core.data.registry import REGISTRY, STAND_INS, all_datasets
from elastic_core.errors import UserError
from elastic_core.models.twins import ANSWERS
from elastic_core.models.twins.stand_in import ROWS, write_stand_in
from elastic_core.rewards import grade
from flows import presets


def of_presets() -> list[str]:
    """Data sets with files that a preset names."""
    data = [presets.resolve(preset).data for preset in presets.names()]
    named = {name for each in data for name in (*each.train, *each.validation, *each.benchmarks)}
    return sorted(name for name in named | {"reasonflux-f1-sft"} if name in REGISTRY and REGISTRY[name].files)


def rows(name: str, directory: Path) -> tuple[Dataset, pl.DataFrame]:
    """A data set with stand-in rows, and its clean table."""
    write_stand_in(REGISTRY[name], directory / STAND_INS)
    entry = all_datasets(directory)[name]
    files = [directory / STAND_INS / file.path for file in entry.files]
    ids = pl.Series([f"{i}A" for i in range(ROWS)]) if entry.ids else None
    return entry, pl.concat(list(clean_batches(entry, file_batches(entry, files), ids)))


@pytest.mark.parametrize("name", of_presets())
def test_rows_stand_in_for_every_data_set_of_a_preset(name: str, tmp_path: Path) -> None:
    entry, table = rows(name, tmp_path)
    assert table.height == ROWS
    assert (entry.map, entry.grader, entry.prompt) == (REGISTRY[name].map, REGISTRY[name].grader, REGISTRY[name].prompt)


@pytest.mark.parametrize("name", [name for name in of_presets() if REGISTRY[name].grader == "math"])
def test_what_a_twin_boxes_is_right_for_some_and_wrong_for_others(name: str, tmp_path: Path) -> None:
    entry, table = rows(name, tmp_path)
    assert entry.grader is not None
    scores = {
        answer: [grade(entry.grader, f"</think>{answer}", truth).score for truth in table["truth"][:4]]
        for answer in ANSWERS
    }
    assert [scores[answer] for answer in ANSWERS[:2]] == [[1, 0, 1, 0], [0, 1, 0, 1]]


def test_without_stand_ins_a_data_set_is_itself_and_one_whose_rows_are_unknown_is_refused(tmp_path: Path) -> None:
    assert all_datasets(tmp_path)["deepscaler"] == REGISTRY["deepscaler"]
    entry = replace(REGISTRY["deepscaler"], name="mine", map=lambda raw: raw, form=Form.PROBLEMS)
    with pytest.raises(UserError, match="mine: its files are not here"):
        write_stand_in(entry, tmp_path)
