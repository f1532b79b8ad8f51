"""Files and directories: whole or not at all, one process at a time, and what others named."""

import csv
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest
from markdown_it import MarkdownIt

from elastic_core.system.files import (
    LockHeld,
    Markdown,
    escaped,
    exclusive,
    rename_durably,
    replacing,
    replacing_directory,
    write_csv,
    write_text,
)


def test_a_file_is_replaced_when_the_block_succeeds_and_else_stays(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.txt"
    write_text(file, "é\n")
    with pytest.raises(RuntimeError), replacing(file) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert file.read_text(encoding="utf-8") == "é\n" and list(file.parent.iterdir()) == [file]


def test_a_directory_is_replaced_as_a_whole_and_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    directory = tmp_path / "model"
    for name in ("model/old", ".model.tmp/left"):
        write_text(tmp_path / name, "")
    with pytest.raises(RuntimeError), replacing_directory(directory) as temporary:
        raise RuntimeError
    assert [file.name for file in directory.iterdir()] == ["old"] and not temporary.exists()
    with replacing_directory(directory) as temporary:
        assert not list(temporary.iterdir())
        (temporary / "new").touch()
    assert [file.name for file in directory.iterdir()] == ["new"] and list(tmp_path.iterdir()) == [directory]


def test_half_a_directory_never_has_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("model/old", "model/other"):
        write_text(tmp_path / name, "")

    def killed(directory: Path, **_: object) -> None:
        assert not (directory == tmp_path / "model" and directory.exists())

    monkeypatch.setattr(shutil, "rmtree", killed)
    with replacing_directory(tmp_path / "model") as temporary:
        (temporary / "new").touch()
    assert [file.name for file in (tmp_path / "model").iterdir()] == ["new"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_at_the_flush_leaves_the_former_directory(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "model" / "old", "")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(number, "failed")))
    with pytest.raises(OSError, match="failed"), replacing_directory(tmp_path / "model", durable=True) as temporary:
        (temporary / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "old"]


def test_everything_is_on_the_disk_before_it_has_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("draft/a", "draft/sub/b"):
        write_text(tmp_path / name, "")
    flushed: list[tuple[str, bool]] = []
    target = tmp_path / "final"
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: flushed.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, target.exists())),
    )
    rename_durably(tmp_path / "draft", target)
    assert set(flushed) == {*((name, False) for name in ("draft", "a", "sub", "b")), (tmp_path.name, True)}
    assert (target / "sub" / "b").exists()
    flushed.clear()
    write_text(tmp_path / "file", "x", durable=True)
    assert len(flushed) == 2
    write_text(tmp_path / "file", "y")
    assert len(flushed) == 2


# A directory that one process at a time has to itself.


HOLD = """
import sys, pathlib
from elastic_core.system.files import exclusive
with exclusive(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(directory: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that has the directory until its input is closed, or it is killed."""
    command = [sys.executable, "-c", HOLD, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            yield holder
        finally:
            holder.kill()


def test_a_second_process_is_told_who_has_it_and_a_killed_one_does_not_block(tmp_path: Path) -> None:
    with held(tmp_path) as holder:
        for _ in range(2):
            with pytest.raises(LockHeld, match=f"process {holder.pid} on"), exclusive(tmp_path):
                pass
    with exclusive(tmp_path):
        pass


def test_a_process_that_waits_gets_it_when_it_is_left(tmp_path: Path) -> None:
    with held(tmp_path) as holder:
        assert holder.stdin is not None
        holder.stdin.close()
        with exclusive(tmp_path, wait_seconds=-1):
            assert holder.wait() == 0


# Names that others chose, in files that programs interpret.


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
    write_csv(pl.DataFrame({"x": [1, -2]}), tmp_path / "t.csv", 4)
    assert (tmp_path / "t.csv").read_text() == "x\n1\n-2\n", "numbers alone are written too"
