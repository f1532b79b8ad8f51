"""Files and directories that appear whole or not at all."""

import os
from pathlib import Path

import pytest

from elastic_core.system.files import rename_durably, replacing, replacing_directory, write_text


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
