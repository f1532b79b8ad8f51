"""Data sets of the hub, by its real client, against a server that answers as the hub does."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from elastic_core.data import download
from elastic_core.data.dataset import Dataset, Hub, SourceFile
from elastic_core.data.fetch import fetch as fetch_sets
from elastic_core.errors import UserError
from tests.data_server import Answer, Server, serving
from tests.documents import REPOSITORY as ROOT

COMMIT = "a" * 40
REPOSITORY = "owner/repo"
FILES = {f"data/train-{part}.parquet": os.urandom(200_000) for part in range(2)} | {"README.md": b"# Data"}
FIRST = "data/train-0.parquet"
LISTING = f"/api/datasets/{REPOSITORY}/revision/main"
TOKEN = "hf_secret"

PROGRAM = """
import json, sys
from pathlib import Path
from tests.integration.test_data_hub import fetch
print(json.dumps(fetch(Path(sys.argv[1]), *sys.argv[2:])))
"""


def fetch(sources: Path, *paths: str, repository: str = REPOSITORY) -> dict[str, Any]:
    """What was fetched, or {"error": its message}."""
    files = tuple(map(SourceFile, paths))
    entry = Dataset("sums", "", Hub(repository, "main"), files, "MIT", "train", "math", None, lambda raw: raw)
    try:
        found = fetch_sets([entry], sources=sources)["sums"]
    except UserError as error:
        return {"error": str(error)}
    return {"revision": found.revision, "files": {file.name: str(file.path) for file in found.files}}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A hub that the client of this process calls, as one that is told of it in the environment does."""
    monkeypatch.setattr(download, "FIRST_WAIT", 0.05)
    with serving() as server:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        server.add_hub(REPOSITORY, COMMIT, FILES)
        yield server


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    return tmp_path / "sources"


def start(hub: Server, sources: Path, *paths: str, **environment: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING_FACE_"))}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(sources), *paths],
        env={**kept, "HF_ENDPOINT": hub.url, "HF_HOME": str(sources.parent / "home"), **environment},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def fetch_elsewhere(hub: Server, sources: Path, *paths: str, **environment: str) -> dict[str, Any]:
    """The same in a process of its own, which tells no secret."""
    output, logged = start(hub, sources, *paths, **environment).communicate(timeout=600)
    assert output, logged
    for secret in (TOKEN, "Signature"):
        assert secret not in output + logged
    return dict(json.loads(output))


def pins(sources: Path) -> dict[str, Any]:
    return json.loads((sources / "sources.lock.json").read_text())["hub:owner/repo"]


def bodies(hub: Server) -> list[str]:
    """Paths of the requests for file contents."""
    return [path for path, _ in hub.requests if not path.startswith("/api/")]


def storage(name: str) -> str:
    return f"/storage/{hashlib.sha256(FILES[name]).hexdigest()}"


def in_place(sources: Path) -> dict[str, bytes]:
    root = sources / REPOSITORY
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def test_a_pattern_is_fetched_recorded_and_then_never_asked_for_again(hub: Server, sources: Path) -> None:
    found = fetch_elsewhere(hub, sources, "data/train-*.parquet")
    assert found["revision"] == COMMIT
    trained = {name: content for name, content in FILES.items() if name.startswith("data/")}
    assert {name: Path(path).read_bytes() for name, path in found["files"].items()} == trained
    assert in_place(sources) == trained
    assert pins(sources) == {
        "revision": COMMIT,
        "patterns": {"data/train-*.parquet": sorted(trained)},
        "files": {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
            for name, content in trained.items()
        },
    }
    hub.requests.clear()
    assert fetch_elsewhere(hub, sources, "data/train-*.parquet") == found
    assert hub.requests == []


def test_a_file_is_held_to_the_size_that_the_hub_lists(hub: Server, sources: Path) -> None:
    hub.endless[storage(FIRST)] = None
    message = fetch(sources, FIRST)["error"]
    assert f"bytes came and more would have; expected {len(FILES[FIRST])}" in message
    assert list(sources.rglob("*.part")) == []
    assert hub.sent < 64 << 20


def test_a_moved_branch_changes_nothing_and_a_changed_file_is_refused(hub: Server, sources: Path) -> None:
    fetch(sources, FIRST)
    hub.add_hub(REPOSITORY, "b" * 40, {FIRST: b"new"})  # "main" is another commit now.
    (sources / REPOSITORY / FIRST).unlink()
    assert fetch(sources, FIRST)["revision"] == COMMIT
    assert in_place(sources) == {FIRST: FILES[FIRST]}

    hub.add_hub(REPOSITORY, COMMIT, {FIRST: b"changed"})  # The recorded commit itself has other content.
    (sources / REPOSITORY / FIRST).unlink()
    message = fetch(sources, FIRST)["error"]
    for content in (FILES[FIRST], b"changed"):
        assert hashlib.sha256(content).hexdigest() in message
    assert all(part in message for part in ("sums", FIRST, "sources.lock.json", 'delete its entry "hub:owner/repo"'))
    assert in_place(sources) == {}

    (sources / "sources.lock.json").write_text("{}")
    assert fetch(sources, FIRST)["revision"] == COMMIT
    assert in_place(sources) == {FIRST: b"changed"}


def test_files_outside_lfs_are_held_to_what_came_first(hub: Server, sources: Path) -> None:
    hub.add_hub(REPOSITORY, COMMIT, {"a.json": b"[1]"}, lfs=False)
    fetch(sources, "a.json")
    hub.add_hub(REPOSITORY, COMMIT, {"a.json": b"[2]"}, lfs=False)
    (sources / REPOSITORY / "a.json").unlink()
    assert hashlib.sha256(b"[2]").hexdigest() in fetch(sources, "a.json")["error"]
    assert in_place(sources) == {}


def test_content_that_is_not_what_the_hub_lists_is_refused(hub: Server, sources: Path) -> None:
    hub.files[storage(FIRST)] = b"<html>Sign in</html>"
    message = fetch(sources, FIRST)["error"]
    assert all(part in message for part in ("HTML page", f"expected sha256 {storage(FIRST)[-64:]}"))
    assert in_place(sources) == {}
    hub.files[storage(FIRST)] = FILES[FIRST]
    fetch(sources, FIRST)
    assert in_place(sources) == {FIRST: FILES[FIRST]}


def test_the_hub_and_its_storage_may_stumble(hub: Server, sources: Path) -> None:
    hub.faults = {
        LISTING: [Answer(429, {"RateLimit": '"api";r=0;t=1'})],
        f"/datasets/{REPOSITORY}/resolve/{COMMIT}/{FIRST}": [Answer(429, {"Retry-After": "1"})],
        storage(FIRST): [Answer(drop_after=70_000), Answer(503)],
    }
    begun = time.monotonic()
    fetch(sources, FIRST)
    assert time.monotonic() - begun >= 2
    assert in_place(sources) == {FIRST: FILES[FIRST]}
    assert hub.asked(storage(FIRST)) == [None, "bytes=70000-", "bytes=70000-"]


def test_what_stands_in_the_way_is_told(hub: Server, sources: Path) -> None:
    gated = Answer(403, {"X-Error-Code": "GatedRepo"}, b'{"error": "Access to data set is restricted"}')
    hub.faults[f"/datasets/{REPOSITORY}/resolve/{COMMIT}/{FIRST}"] = [gated]
    message = fetch(sources, FIRST)["error"]
    page = f"https://huggingface.co/datasets/{REPOSITORY}"
    assert all(part in message for part in ("sums", "gated", page, "hf auth login", "HF_TOKEN"))
    assert len(bodies(hub)) == 1  # Asking again would not help.

    hub.faults["/api/datasets/owner/none/revision/main"] = [Answer(404, {"X-Error-Code": "RepoNotFound"})]
    assert "owner/none: no such data set" in fetch(sources, FIRST, repository="owner/none")["error"]
    hub.faults[LISTING] = [Answer(404, {"X-Error-Code": "RevisionNotFound"})]
    assert "does not have the revision main" in fetch(sources.with_name("other"), FIRST)["error"]
    nothing = fetch(sources, "taco/train-*.parquet")["error"]
    assert f"{REPOSITORY} has no file that matches taco/train-*.parquet" in nothing
    assert f"{REPOSITORY} has no file none.json" in fetch(sources, "none.json")["error"]


def test_the_login_goes_to_the_hub_but_is_never_told(hub: Server, sources: Path) -> None:
    with serving() as elsewhere:  # Another origin, as the hub's storage is.
        elsewhere.files[storage(FIRST)] = FILES[FIRST]
        resolved = f"/datasets/{REPOSITORY}/resolve/{COMMIT}/{FIRST}"
        hub.redirects[resolved] = elsewhere.url + hub.redirects[resolved]
        fetch_elsewhere(hub, sources, FIRST, HF_TOKEN=TOKEN)
        logins = dict(hub.logins)
        assert logins[LISTING] == logins[resolved] == f"Bearer {TOKEN}"
        assert elsewhere.logins == [(storage(FIRST), None)]
    assert in_place(sources) == {FIRST: FILES[FIRST]}


def test_offline_nobody_is_asked(hub: Server, sources: Path) -> None:
    message = fetch_elsewhere(hub, sources, FIRST, HF_HUB_OFFLINE="1")["error"]
    assert "not asked, because HF_HUB_OFFLINE" in message
    assert "--mirror DIR" in message
    assert hub.requests == []
