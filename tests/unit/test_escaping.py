"""Names that others chose, in files that programs interpret."""

import csv
from pathlib import Path

import polars as pl
import pytest
from markdown_it import MarkdownIt

from elastic_core.system.files import Markdown, escaped, write_csv

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "![](https://example.org/seen.png)",
    "[a][b]",
    "`code` **bold** a|b",
    "&lt;b&gt; &#60;",
    "two\nlines\n# heading",
    r"a \| b \\",
    "base>twin",
    "t < 48, t* = 3",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_in_a_markdown_table_reads_as_it_is(name: str) -> None:
    text = f"| {escaped(name)} | second |\n|---|---|\n| {escaped(name)} | second |\n"
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    places = [token for token in tokens if token.type == "inline"]
    assert len(places) == 4
    assert {child.type for place in places for child in place.children or []} <= {"text", "text_special"}
    read = ["".join(child.content for child in place.children or []) for place in places]
    assert read == [" ".join(name.split()), "second"] * 2


def test_what_is_markdown_is_left_alone_and_escaped_once() -> None:
    assert escaped(Markdown("**bold**")) == "**bold**"
    assert escaped(escaped("a|b")) == r"a\|b"
    assert escaped("12.3 [11.0, 13.6]") == "12.3 [11.0, 13.6]"


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_text_in_a_csv_file_is_a_formula(tmp_path: Path, name: str) -> None:
    write_csv(pl.DataFrame({"model": [name, "base", None], name: [-1.5, 2.0, 3.0]}), tmp_path / "t.csv", 4)
    with (tmp_path / "t.csv").open(newline="") as file:
        header, first, *rest = csv.reader(file)
    assert header == ["model", f"'{name}"]
    assert first == [f"'{name}", "-1.5000"]  # a number is a number, whatever its sign
    assert rest == [["base", "2.0000"], ["", "3.0000"]]


def test_numbers_alone_are_written_too(tmp_path: Path) -> None:
    write_csv(pl.DataFrame({"x": [1, -2]}), tmp_path / "t.csv", 4)
    assert (tmp_path / "t.csv").read_text() == "x\n1\n-2\n"
