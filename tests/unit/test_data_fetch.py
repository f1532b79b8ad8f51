"""Source files of data sets: looked for in order, resumed, verified, and held to what the first fetch found."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest
from huggingface_hub import constants

from elastic_core.data import download
from elastic_core.data.dataset import Dataset, Generated, GitHub, Hub, Local, Source, SourceFile
from elastic_core.data.download import Entry, Pin, read_pins
from elastic_core.data.fetch import bytes_present, fetch, located
from elastic_core.data.registry import REGISTRY
from elastic_core.errors import UserError
from elastic_core.system.files import exclusive
from elastic_core.system.fingerprint import HashCache
from tests.data_server import Answer, Server, serving

COMMIT = "c" * 40
GITHUB = GitHub("owner/repo", COMMIT)
HUB = Hub("owner/repo")
CONTENT = b'[{"question": "1 + 1", "answer": "2"}]' * 1000


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def dataset(*files: SourceFile, source: Source = GITHUB, name: str = "sums") -> Dataset:
    return Dataset(
        name=name,
        description="",
        source=source,
        files=files,
        licence="MIT",
        split="train",
        domain="math",
        map=lambda raw: raw,
    )


def pinned(path: str = "data/a.json", content: bytes = CONTENT) -> SourceFile:
    return SourceFile(path, sha256(content), len(content))


def put(root: Path, path: str, content: bytes = CONTENT) -> Path:
    file = root / "owner" / "repo" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def files_below(directory: Path) -> list[str]:
    """Data in place; not pins, caches and partial downloads."""
    return sorted(str(file.relative_to(directory)) for file in directory.glob("owner/**/*") if file.is_file())


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    return tmp_path / "sources"


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    (tmp_path / "mirror").mkdir()
    return tmp_path / "mirror"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A stand-in for GitHub with one file, and no patience needed for retries."""
    with serving() as running:
        running.files["/data/a.json"] = CONTENT
        monkeypatch.setattr(GitHub, "url", lambda self, path: f"{running.url}/{path}")
        monkeypatch.setattr(download, "FIRST_WAIT", 0.01)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield running


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


# Where files are looked for


def test_the_mirror_comes_before_earlier_downloads_and_those_before_the_network(
    sources: Path, mirror: Path, server: Server, tmp_path: Path
) -> None:
    def found(sources: Path, mirror: Path) -> Path:
        return fetch([dataset(pinned())], sources=sources, mirror=mirror)["sums"].files[0].path

    downloaded = sources / "owner/repo/data/a.json"
    assert found(sources, mirror) == found(sources, mirror) == downloaded
    mirrored = put(mirror, "data/a.json")
    assert found(sources, mirror) == mirrored and len(server.requests) == 1
    assert found(tmp_path / "other", sources).read_bytes() == CONTENT, "downloads are a mirror for another machine"
    assert len(server.requests) == 1


def test_local_files_are_read_where_they_are_and_generated_data_sets_have_none(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_bytes(CONTENT)
    own = dataset(pinned("own.jsonl"), source=Local(tmp_path), name="own")
    made = dataset(source=Generated("elastic_core.miniature"), name="made")
    found = fetch([own, made], sources=sources)
    assert found["own"].files[0].path == tmp_path / "own.jsonl"
    assert found["made"].files == ()
    (tmp_path / "own.jsonl").write_bytes(b"edited")
    with pytest.raises(UserError, match=rf"own: own.jsonl .* has sha256 {sha256(b'edited')}"):
        fetch([own], sources=sources)
    (tmp_path / "own.jsonl").unlink()
    with pytest.raises(UserError, match=r"own: own\.jsonl .* missing"):
        fetch([own], sources=sources)


def test_everything_missing_is_reported_at_once_with_the_places_looked(
    sources: Path, mirror: Path, offline: None
) -> None:
    put(mirror, "data/here.json")
    present = dataset(pinned("data/here.json"), name="present")
    absent = dataset(pinned("data/a.json"), pinned("data/b.json"), name="absent")
    with pytest.raises(UserError) as error:
        fetch(
            [present, absent, dataset(SourceFile("x.json"), source=HUB, name="other")], sources=sources, mirror=mirror
        )
    message = str(error.value)
    for name in ("data/a.json", "data/b.json"):
        for place in (mirror / "owner/repo" / name, sources / "owner/repo" / name, GITHUB.url(name)):
            assert str(place) in message
    assert "x.json of huggingface.co/datasets/owner/repo" in message and "HF_HUB_OFFLINE" in message
    assert "present" not in message
    assert all(way in message for way in ("--mirror DIR", "data.mirror", "ELASTIC_DATA_MIRROR", "<owner>/<repository>"))
    with pytest.raises(UserError, match="nowhere"):
        fetch([present], sources=sources, mirror=mirror / "nowhere")


def test_a_host_that_cannot_be_reached_is_named(sources: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GitHub, "url", lambda self, path: f"http://127.0.0.1:9/{path}")  # Nobody listens there.
    with pytest.raises(UserError, match=r"127\.0\.0\.1:9/data/a\.json: cannot reach 127\.0\.0\.1"):
        fetch([dataset(pinned())], sources=sources)


def test_names_cannot_lead_out_of_the_directory(sources: Path, offline: None) -> None:
    with pytest.raises(UserError, match=r"\.\./\.\./\.\./a\.json"):
        fetch([dataset(pinned("../../../a.json"))], sources=sources)


def test_presence_in_a_mirror_is_told_without_reading(mirror: Path) -> None:
    entry = dataset(pinned("data/a.json"), SourceFile("data/train-*.parquet"), source=HUB)
    put(mirror, "data/a.json", b"whatever")
    assert bytes_present(entry, mirror) is None
    put(mirror, "data/train-0.parquet", b"whatever")
    assert bytes_present(entry, mirror) == 16


# What files must be


@pytest.mark.parametrize("recorded", [False, True])
def test_a_tampered_mirror_file_is_refused(sources: Path, mirror: Path, offline: None, recorded: bool) -> None:
    put(mirror, "data/a.json")
    entry = dataset(SourceFile("data/a.json"), source=HUB) if recorded else dataset(pinned())
    fetch([entry], sources=sources, mirror=mirror)
    file = put(mirror, "data/a.json", CONTENT + b" ")
    with pytest.raises(UserError) as error:
        fetch([entry], sources=sources, mirror=mirror)
    message = str(error.value)
    assert all(part in message for part in ("sums", str(file), sha256(CONTENT), sha256(CONTENT + b" ")))
    assert ('delete its entry "hub:owner/repo"' in message) == recorded


@pytest.mark.parametrize(
    "content, named", [(b"\n<!DOCTYPE html><p>Sign in", "HTML"), (b"version https://git-lfs.github.com/spec/v1", "LFS")]
)
def test_what_is_plainly_no_data_is_never_recorded(
    sources: Path, mirror: Path, offline: None, content: bytes, named: str
) -> None:
    put(mirror, "data/a.json", content)
    with pytest.raises(UserError, match=named):
        fetch([dataset(SourceFile("data/a.json"), source=HUB)], sources=sources, mirror=mirror)
    assert read_pins(sources / "sources.lock.json")["hub:owner/repo"].files == {}


@pytest.mark.parametrize("announced", [None, 1 << 40])
@pytest.mark.parametrize("known", [True, False])
def test_a_file_that_does_not_end_is_given_up_and_not_kept(
    sources: Path, server: Server, monkeypatch: pytest.MonkeyPatch, announced: int | None, known: bool
) -> None:
    monkeypatch.setattr(download, "MAX_BYTES", 1 << 20)
    server.endless["/data/a.json"] = announced
    expected = len(CONTENT) if known else 1048576
    with pytest.raises(UserError, match=rf"127\.0\.0\.1: .*{announced or 'more'}.*{expected}"):
        fetch([dataset(pinned() if known else SourceFile("data/a.json"))], sources=sources)
    assert list(sources.rglob("*.part")) == []
    assert len(server.requests) == 1


def test_a_redirect_leads_nowhere_but_to_http(sources: Path, server: Server, tmp_path: Path) -> None:
    put(tmp_path, "data/a.json")
    server.redirects["/data/a.json"] = f"file://{tmp_path}/owner/repo/data/a.json"
    server.headers["/data/a.json"] = {}
    with pytest.raises(UserError, match=r"127\.0\.0\.1: UnsupportedProtocol"):
        fetch([dataset(pinned())], sources=sources)
    assert files_below(sources) == []
    assert len(server.requests) == 1


# Pins


def test_the_first_fetch_records_what_nobody_knew(sources: Path, mirror: Path, offline: None) -> None:
    put(mirror, "data/a.json")
    entry = dataset(SourceFile("data/a.json"), source=HUB)
    assert fetch([entry], sources=sources, mirror=mirror)["sums"].revision is None
    pin = {"sha256": sha256(CONTENT), "bytes": len(CONTENT)}
    assert json.loads((sources / "sources.lock.json").read_text()) == {
        "hub:owner/repo": {"revision": None, "patterns": {}, "files": {"data/a.json": pin}}
    }


def test_only_the_hub_s_files_need_a_record() -> None:
    stored = [entry for entry in REGISTRY.values() if entry.files and not isinstance(entry.source, Hub)]
    assert stored and all(file.sha256 for entry in stored for file in entry.files)


def test_each_revision_has_a_record_of_its_own(sources: Path, mirror: Path, offline: None) -> None:
    for revision, content in (("main", b"[1]"), ("v2", b"[2]")):
        put(mirror, "data/a.json", content)
        entry = dataset(SourceFile("data/a.json"), source=Hub("owner/repo", revision))
        assert fetch([entry], sources=sources, mirror=mirror)["sums"].files[0].sha256 == sha256(content)
    assert read_pins(sources / "sources.lock.json").keys() == {"hub:owner/repo", "hub:owner/repo@v2"}


def test_pins_of_earlier_versions_are_read_and_those_that_cannot_be_are_named(sources: Path) -> None:
    sources.mkdir()
    file = sources / "sources.lock.json"
    old = {"requested": "main", "revision": COMMIT, "files": {"1.json": {"sha256": "a", "bytes": 1}}}
    file.write_text(json.dumps({"hub:a": old}))
    assert read_pins(file) == {"hub:a": Entry(COMMIT, {}, {"1.json": Pin("a", 1)})}
    file.write_text('{"hub:a": 1}')
    with pytest.raises(UserError, match=r"sources\.lock\.json: not a record of sources"):
        fetch([dataset(pinned())], sources=sources)
    assert located(dataset(pinned()), sources=sources, mirror=None) is None


# Patterns


def test_a_pattern_stands_for_the_same_files_ever_after(sources: Path, mirror: Path, offline: None) -> None:
    for name in ("data/train-1.parquet", "data/train-0.parquet", "data/test-0.parquet", "data/more/train-2.parquet"):
        put(mirror, name, name.encode())
    entry = dataset(SourceFile("data/train-*.parquet"), source=HUB)
    found = fetch([entry], sources=sources, mirror=mirror)["sums"]
    assert [file.name for file in found.files] == ["data/train-0.parquet", "data/train-1.parquet"]
    assert located(entry, sources=sources, mirror=mirror) == found
    put(mirror, "data/train-2.parquet")
    with pytest.raises(UserError, match=r"train-1\.parquet, found .*train-1\.parquet, .*train-2\.parquet"):
        fetch([entry], sources=sources, mirror=mirror)
    for name in ("1", "2"):
        (mirror / f"owner/repo/data/train-{name}.parquet").unlink()
    with pytest.raises(UserError, match=r"sums: data/train-1\.parquet .* missing"):
        fetch([entry], sources=sources, mirror=mirror)
    assert located(entry, sources=sources, mirror=mirror) is None


def test_files_of_one_pattern_do_not_pass_for_those_of_another(sources: Path, mirror: Path, offline: None) -> None:
    put(sources, "train-0.parquet")
    put(mirror, "train-0.parquet")
    fetch([dataset(SourceFile("train-0*"), source=HUB)], sources=sources, mirror=mirror)
    with pytest.raises(UserError, match=r"train-\* .* missing"):
        fetch([dataset(SourceFile("train-*"), source=HUB)], sources=sources)


# Looking without fetching


def test_only_what_was_fetched_and_is_unchanged_is_located(sources: Path, mirror: Path, server: Server) -> None:
    entry = dataset(SourceFile("data/a.json"), source=HUB)
    file = put(mirror, "data/a.json")
    assert located(entry, sources=sources, mirror=mirror) is None  # Never fetched: nothing says what it must be.
    fetched = fetch([entry], sources=sources, mirror=mirror)["sums"]
    assert located(entry, sources=sources, mirror=mirror) == fetched
    assert located(entry, sources=mirror, mirror=sources) is None  # Recorded nowhere there.
    file.write_bytes(b"damaged")
    assert located(entry, sources=sources, mirror=mirror) is None
    assert located(dataset(pinned()), sources=sources, mirror=mirror) is None
    assert server.requests == []


def test_a_damaged_download_is_fetched_again(sources: Path, server: Server) -> None:
    fetch([dataset(pinned())], sources=sources)
    put(sources, "data/a.json", b"damaged")
    assert located(dataset(pinned()), sources=sources, mirror=None) is None
    assert fetch([dataset(pinned())], sources=sources)["sums"].files[0].path.read_bytes() == CONTENT
    put(sources, "data/a.json", b"damaged")
    server.files.clear()
    with pytest.raises(UserError, match=r"missing; looked at\n.*data/a\.json has sha256 \w+ \(7 bytes\)"):
        fetch([dataset(pinned())], sources=sources)


# Checksums


def test_a_file_is_hashed_again_only_when_size_or_time_changes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"one")
    stat = file.stat()
    cache = HashCache(tmp_path / "hashes.json")
    assert cache.sha256(file) == sha256(b"one")
    cache.save()
    file.write_bytes(b"two")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert HashCache(tmp_path / "hashes.json").sha256(file) == sha256(b"one")  # Not read again.
    (tmp_path / "link").symlink_to(file)
    assert HashCache(tmp_path / "hashes.json").sha256(tmp_path / "link") == sha256(b"one")  # Nor by a link to it.
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert HashCache(tmp_path / "hashes.json").sha256(file) == sha256(b"two")


@pytest.mark.parametrize("content", ["{", "[]", '{"%s": 5}', '{"%s": ["a", "b", "c"]}'])
def test_a_corrupt_cache_costs_a_hash_and_is_written_anew(tmp_path: Path, content: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"one")
    (tmp_path / "hashes.json").write_text(content.replace("%s", str(file)))
    cache = HashCache(tmp_path / "hashes.json")
    assert cache.sha256(file) == sha256(b"one")
    cache.save()
    assert json.loads((tmp_path / "hashes.json").read_text())[str(file)][2] == sha256(b"one")


def test_caches_of_two_processes_are_merged(tmp_path: Path) -> None:
    caches = [HashCache(tmp_path / "hashes.json") for _ in range(2)]
    for number, cache in enumerate(caches):
        (tmp_path / str(number)).write_bytes(b"")
        cache.sha256(tmp_path / str(number))
    for cache in caches:
        cache.save()
    assert set(json.loads((tmp_path / "hashes.json").read_text())) == {str(tmp_path / "0"), str(tmp_path / "1")}


# Downloads


@pytest.mark.parametrize(
    "fault",
    [Answer(429, {"Retry-After": "0"}), Answer(503), Answer(500), Answer(drop_after=0), Answer(drop_after=5000)],
    ids=["429", "503", "500", "dropped at once", "dropped midway"],
)
def test_passing_faults_are_survived(sources: Path, server: Server, fault: Answer) -> None:
    server.faults["/data/a.json"] = [fault, fault]
    assert fetch([dataset(pinned())], sources=sources)["sums"].files[0].path.read_bytes() == CONTENT
    assert len(server.requests) == 3
    if fault.drop_after:
        assert server.asked("/data/a.json") == [None, "bytes=5000-", "bytes=10000-"]


def test_a_lasting_fault_ends_after_a_few_attempts(sources: Path, server: Server) -> None:
    server.faults["/data/a.json"] = [Answer(503)] * 50
    with pytest.raises(UserError, match=r"127\.0\.0\.1 .*503"):
        fetch([dataset(pinned())], sources=sources)
    assert len(server.requests) == download.NUM_ATTEMPTS
    with pytest.raises(UserError, match="404"):
        fetch([dataset(pinned("data/none.json"))], sources=sources)
    assert len(server.requests) == download.NUM_ATTEMPTS + 1, "what is not there is requested once"


@pytest.mark.parametrize("asked", ["1", "date"])
def test_the_server_says_how_long_to_wait(sources: Path, server: Server, asked: str) -> None:
    start = time.monotonic()
    value = formatdate(time.time() + 2, usegmt=True) if asked == "date" else asked
    server.faults["/data/a.json"] = [Answer(429, {"Retry-After": value})]
    fetch([dataset(pinned())], sources=sources)
    assert time.monotonic() - start >= 0.95


def part_file(sources: Path) -> Path:
    file = sources / ".partial/owner/repo" / COMMIT / "data/a.json.part"
    file.parent.mkdir(parents=True)
    return file


@pytest.mark.parametrize(
    "part, ranges, asked",
    [
        (CONTENT[:700], True, ["bytes=700-"]),
        (CONTENT[:700], False, ["bytes=700-"]),
        (CONTENT, True, []),
        (CONTENT + b"more", True, [f"bytes={len(CONTENT) + 4}-", None]),
        (b"wrong" + CONTENT[5:700], True, ["bytes=700-", None]),
    ],
    ids=["goes on", "server sends all", "was complete", "too long", "wrong bytes"],
)
def test_a_partial_download_is_used(
    sources: Path, server: Server, part: bytes, ranges: bool, asked: list[str | None]
) -> None:
    part_file(sources).write_bytes(part)
    server.ranges = ranges
    assert fetch([dataset(pinned())], sources=sources)["sums"].files[0].path.read_bytes() == CONTENT
    assert server.asked("/data/a.json") == asked
    assert not list(sources.rglob("*.part"))


def test_a_part_that_a_server_does_not_continue_is_not_spliced(sources: Path, server: Server) -> None:
    part_file(sources).write_bytes(CONTENT[:700])
    elsewhere = Answer(206, {"Content-Range": f"bytes 0-9/{len(CONTENT)}"}, CONTENT[:10])
    server.faults["/data/a.json"] = [elsewhere]
    entry = dataset(SourceFile("data/a.json"))  # No checksum would tell.
    assert fetch([entry], sources=sources)["sums"].files[0].path.read_bytes() == CONTENT
    assert server.asked("/data/a.json") == ["bytes=700-", None]


def test_a_file_that_data_sets_or_processes_share_is_downloaded_once(sources: Path, server: Server) -> None:
    found = fetch([dataset(pinned(), name="one"), dataset(pinned(), name="two")], sources=sources / "other")
    assert found["one"].files == found["two"].files and len(server.requests) == 1
    server.requests.clear()
    fetching = [subprocess.Popen([sys.executable, "-c", FETCH, server.url, str(sources)]) for _ in range(2)]
    assert [process.wait() for process in fetching] == [0, 0]
    assert len(server.requests) == 1
    assert files_below(sources) == ["owner/repo/data/a.json"]


def test_another_process_that_fetches_is_named(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic_core.data.fetch.WAIT_SECONDS", 0)
    with exclusive(sources), pytest.raises(UserError, match=rf"sources: process {os.getpid()} .* has been fetching"):
        fetch([dataset(pinned())], sources=sources)


def test_wrong_content_leaves_nothing_in_place(sources: Path, server: Server) -> None:
    server.files["/data/a.json"] = b"<html>Please sign in</html>"
    server.files["/data/b.json"] = CONTENT
    with pytest.raises(UserError) as error:
        fetch([dataset(pinned(), pinned("data/b.json"))], sources=sources)
    found = sha256(b"<html>Please sign in</html>")
    assert all(part in str(error.value) for part in ("sums: data/a.json", sha256(CONTENT), found, "HTML page"))
    assert files_below(sources) == ["owner/repo/data/b.json"]  # What succeeded stays.
    assert not list(sources.rglob("*.part"))
    assert len(server.asked("/data/a.json")) == 1  # Nothing was resumed, so asking again would not help.


def test_a_full_disk_is_named_and_leaves_no_half_file(sources: Path, server: Server) -> None:
    part_file(sources).symlink_to("/dev/full")
    with pytest.raises(UserError, match=rf"sums: data/a\.json .*{sources}.* full"):
        fetch([dataset(pinned())], sources=sources)
    assert files_below(sources) == []


FETCH = """
import sys
from pathlib import Path
from elastic_core.data.dataset import GitHub
from elastic_core.data.fetch import fetch
from tests.unit import test_data_fetch as test
GitHub.url = lambda self, path: f"{sys.argv[1]}/{path}"
fetch([test.dataset(test.pinned())], sources=Path(sys.argv[2]))
"""


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_fetch_goes_on_where_it_stopped(sources: Path, server: Server, ended_by: signal.Signals) -> None:
    server.faults["/data/a.json"] = [Answer(drop_after=5000), Answer(429, {"Retry-After": "100"})]
    fetching = subprocess.Popen([sys.executable, "-c", FETCH, server.url, str(sources)], stderr=subprocess.DEVNULL)
    while len(server.requests) < 2:
        assert fetching.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)
    fetching.send_signal(ended_by)
    assert fetching.wait() != 0
    assert files_below(sources) == []
    assert fetch([dataset(pinned())], sources=sources)["sums"].files[0].path.read_bytes() == CONTENT
    assert server.asked("/data/a.json")[-1] == "bytes=5000-"
