from pathlib import Path

import polars as pl
import pytest

from elastic_core.data.build import benchmarks, build_miniature, read_manifest
from elastic_core.data.problems import VERL_SCHEMA, Problem, read_problems, to_verl

SIZES = {"num_train": 40, "hard_fraction": 0.5, "seed": 3, "problems_per_benchmark": 12, "evaluation_seed": 4}


def test_problems_survive_the_table(tmp_path: Path) -> None:
    problems = [Problem("bench", str(i), f"{i}+1=?", str(i + 1), "math") for i in range(5)]
    to_verl(problems, "evaluation").write_parquet(tmp_path / "bench.parquet")
    assert read_problems(tmp_path / "bench.parquet") == problems


def test_another_schema_is_refused_by_name(tmp_path: Path) -> None:
    pl.DataFrame({"question": ["1+1"]}).write_parquet(tmp_path / "odd.parquet")
    with pytest.raises(ValueError, match=r"odd\.parquet.*expected"):
        read_problems(tmp_path / "odd.parquet")


def test_the_manifest_says_what_each_file_holds(tmp_path: Path) -> None:
    manifest = build_miniature(tmp_path, **SIZES)
    assert read_manifest(tmp_path) == manifest
    assert benchmarks(manifest) == {f"miniature-{level}": f"miniature-{level}.parquet" for level in ("easy", "hard")}
    for entry in manifest.values():
        frame = pl.read_parquet(tmp_path / entry["file"])
        assert frame.schema == VERL_SCHEMA
        assert frame.height == entry["rows"]


def test_building_again_gives_the_same_contents(tmp_path: Path) -> None:
    first, second = (build_miniature(tmp_path / name, **SIZES) for name in ("a", "b"))
    assert first == second


def test_no_problem_is_both_trained_on_and_reported(tmp_path: Path) -> None:
    manifest = build_miniature(tmp_path, **SIZES)
    questions = {name: {p.question for p in read_problems(tmp_path / e["file"])} for name, e in manifest.items()}
    reported = questions["miniature-easy"] | questions["miniature-hard"]
    assert not reported & (questions["train"] | questions["validation"])
    assert not questions["train"] & questions["validation"]
