"""`elastic report --bundle DIR`: several reports, an index that grows, and results in the formats of others."""

import json
from pathlib import Path
from typing import Any

import pytest

from elastic_core.errors import UserError
from reports.bundle import write_index
from tests.bench.bench_report import Shape, write_table
from tests.elastic_command import elastic_here

SHAPE = Shape({"hard": 4}, samples=2, thought=48, solution=32, max_seconds=0, max_gib=0)


def test_a_site_grows_by_one_report_after_another(tmp_path: Path) -> None:
    runs, site = tmp_path / "runs", tmp_path / "site"
    for key in ("one", "two"):
        table = runs / "mine" / "sweep" / key / "table"
        write_table(SHAPE, table)
        done = elastic_here("report", "--from", str(table), "--bundle", str(site), runs=runs)
        assert done.returncode == 0, done.stdout
        assert done.stdout.splitlines()[-1] == (site / "index.html").as_uri()
    index = (site / "index.html").read_text()
    for name in ("mine-one", "mine-two"):
        assert f'href="{name}/report.html"' in index and (site / name / "report.html").exists()
        card = json.loads((site / name / "card.json").read_text())
        assert " ".join(card["brief"]).split(",")[0] in index
        assert all((site / name / file).exists() for file in card["records"]) and len(card["records"]) == 2
        assert str(runs) not in (site / name / "report.html").read_text()
    assert "<script" not in index


def test_several_tables_need_a_bundle(tmp_path: Path) -> None:
    done = elastic_here("report", "--from", str(tmp_path), "--from", str(tmp_path), runs=tmp_path)
    assert done.returncode == 2 and "--bundle" in done.stdout


@pytest.mark.parametrize("change", [None, {"models": 3}, {"date": 2026}, {"num_trajectories": "many"}])
def test_a_card_that_is_none_is_one_sentence(tmp_path: Path, change: dict[str, Any] | None) -> None:
    (tmp_path / "mine").mkdir()
    card = {"name": "a", "brief": [], "date": "2026-11-29", "models": [], "benchmarks": [], "num_trajectories": 1}
    text = json.dumps([] if change is None else card | {"records": []} | change)
    (tmp_path / "mine" / "card.json").write_text(text)
    with pytest.raises(UserError, match=r"card\.json: found no card of a report; expected"):
        write_index(tmp_path)
