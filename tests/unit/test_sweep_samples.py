"""`sweep.samples`: one number, or one for each benchmark."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.sweep.grid import OTHERS, samples_of, samples_text, within
from flows import presets
from flows.runtime.run import FlowRun

COUNTS = st.one_of(
    st.integers(1, 4), st.fixed_dictionaries({OTHERS: st.integers(1, 4)}, optional={"a": st.integers(1, 4)})
)


@given(COUNTS)
def test_the_rows_within_are_those_with_smaller_numbers(samples: int | dict[str, int]) -> None:
    rows = pl.DataFrame([{"benchmark": name, "sample": i} for name in "ab" for i in range(6)])
    kept = rows.filter(within(samples)).group_by("benchmark").len()
    assert dict(kept.iter_rows()) == {name: samples_of(samples, name) for name in "ab"}


def test_numbers_are_told_as_they_are_given() -> None:
    assert samples_text(16) == "16 samples"
    assert samples_text({"codeforces": 8, OTHERS: 16}) == "codeforces 8, others 16 samples"
    with pytest.raises(KeyError):
        samples_of({"codeforces": 8}, "livecodebench")


def test_a_number_for_each_benchmark_asks_for_more_or_less_of_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FlowRun, "benchmark_files", {})
    given = {"base": "shipped", "sweep.models": ["base"]}
    counts = {"miniature-easy": 4, OTHERS: 2}
    plain, single = (
        FlowRun(presets.resolve("smoke", given | {"sweep.samples": samples}), tmp_path).sweep for samples in (2, counts)
    )
    assert plain.directory == single.directory and plain.marker != single.marker
    assert (plain.request["samples"], single.request["samples"]) == (2, counts)
