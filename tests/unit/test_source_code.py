"""What a module is written as, with all that it imports."""

from pathlib import Path

import pytest

from elastic_core.system import fingerprint

MODULES = {
    "elastic_core/first.py": "from elastic_core.second import thing\nimport json\n",
    "json/__init__.py": "",  # As in an environment that the project is installed in, among others' packages.
    "elastic_core/second.py": "def thing():\n    import elastic_core.rooms.third\n    from elastic_core import first\n",
    "elastic_core/rooms/__init__.py": "",
    "elastic_core/rooms/third.py": "from elastic_core.rooms import fourth\n",
    "elastic_core/rooms/fourth.py": "",
    "elastic_core/unrelated.py": "import elastic_core.first\n",
}


def test_imports_are_followed_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(fingerprint, "_PROJECT", tmp_path)
    found = fingerprint.source_files(["elastic_core.first"])
    assert {file.relative_to(tmp_path).as_posix() for file in found.values()} == MODULES.keys() - {
        "elastic_core/unrelated.py",
        "json/__init__.py",
    }
    part = fingerprint.source_files(["elastic_core.first"], without=["elastic_core.rooms.third"])
    assert part.keys() == {"elastic_core.first", "elastic_core.second"}
