"""Records of Every Eval Ever, held against its schema, which is theirs."""

import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import polars as pl
import pytest

from reports.bundle import file_name, write_records
from reports.content import ReportSources
from reports.summary import summarize
from tests.report_tables import HOSTILE
from tests.unit.test_report_summary import make_rows

SCHEMA = json.loads((Path(__file__).parents[1] / "schemas" / "every_eval_ever.json").read_text())
WHEN = datetime(2026, 11, 23, tzinfo=UTC)
DATA = {
    "datasets": {"hard": {"source": "huggingface.co/datasets/some/set", "revision": "abc"}, "easy": {"source": "x"}}
}


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    return make_rows(budgets=[16, 48], num_problems=4, num_samples=2)


@pytest.fixture(scope="module")
def sources(rows: pl.DataFrame) -> ReportSources:
    provenance = {"models": {"base": "1f2e"}, "sampling": {"temperature": 0.6, "top_p": 0.95, "vllm": "vllm 0.29.0"}}
    return ReportSources(rows.lazy(), provenance=provenance, documents={"data of d": DATA, "sweep": {}}, preset="p")


def test_records_keep_the_schema_of_every_eval_ever(rows: pl.DataFrame, sources: ReportSources, tmp_path: Path) -> None:
    summary = summarize(rows)
    files = write_records(summary, sources, WHEN, tmp_path)
    assert len(files) == 2
    for file in files:
        record = json.loads(file.read_text())
        jsonschema.validate(record, SCHEMA)
        assert record["schema_version"] == SCHEMA["version"]
        assert file.relative_to(tmp_path).parts[0] == "data" and len(file.relative_to(tmp_path).parts) == 5
        assert len(record["evaluation_results"]) == summary.filter(model=record["model_info"]["name"]).height


def test_a_record_says_budget_strategy_interval_and_data(
    rows: pl.DataFrame, sources: ReportSources, tmp_path: Path
) -> None:
    file, _ = write_records(summarize(rows), sources, WHEN, tmp_path)
    results = {one["evaluation_result_id"]: one for one in json.loads(file.read_text())["evaluation_results"]}
    limited, free = results["hard/separate/48+32"], results["easy/unconstrained/unlimited"]
    assert limited["generation_config"]["generation_args"]["max_tokens"] == 80
    assert limited["generation_config"]["additional_details"] | {"sampling": ""} == {
        "strategy": "separate", "think_budget": "48", "solution_budget": "32", "sampling": "",
    }  # fmt: skip
    assert limited["source_data"]["hf_repo"] == "some/set"
    assert limited["score_details"]["uncertainty"]["confidence_interval"]["confidence_level"] == 0.95
    assert "max_tokens" not in free["generation_config"]["generation_args"]
    assert free["source_data"] == {"dataset_name": "easy", "source_type": "other"}


def test_the_same_results_make_the_same_record(rows: pl.DataFrame, sources: ReportSources, tmp_path: Path) -> None:
    first, again = (write_records(summarize(rows), sources, WHEN, tmp_path / name) for name in ("a", "b"))
    assert [file.name for file in first] == [file.name for file in again]
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in again]


@pytest.mark.parametrize("name", [*HOSTILE, "..", "", "a/b", "base>mine"])
def test_no_name_leaves_its_directory(name: str) -> None:
    assert "/" not in file_name(name) and file_name(name) not in ("", ".", "..")


def test_names_that_differ_lie_apart() -> None:
    assert len({file_name(name) for name in ("a/b", "a_b", "a:b")}) == 3
