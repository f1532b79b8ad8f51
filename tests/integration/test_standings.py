"""Standings from a local server that answers, throttles and fails as the Codeforces API does."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elastic_core.errors import UserError
from elastic_core.rewards import codeforces as rating
from elastic_core.rewards.codeforces import standings
from elastic_core.rewards.codeforces.standings import NoData, fetch, from_api, load, save
from elastic_core.statistics.intervals import mean_share
from tasks.report import fetch_standings
from tests.data_server import Answer, Server, serving

CHANGES, STANDINGS = "contest.ratingChanges", "contest.standings"
PROBLEMS = [{"contestId": 1, "index": "A", "name": "Sums", "points": 500.0}, {"contestId": 1, "index": "B1"}]


def failed(comment: str, status: int = 400) -> Answer:
    return Answer(status, body=json.dumps({"status": "FAILED", "comment": comment}).encode())


def ok(result: Any) -> bytes:
    return json.dumps({"status": "OK", "result": result}).encode()


def at(method: str, contest: int) -> str:
    """Other parameters are refused to anonymous callers."""
    return f"/api/{method}?contestId={contest}"


def row(handle: str, points: float, penalty: int = 0, kind: str = "CONTESTANT") -> dict[str, Any]:
    return {
        "party": {"contestId": 1, "members": [{"handle": handle}], "participantType": kind, "ghost": False},
        "rank": 1,
        "points": points,
        "penalty": penalty,
        "problemResults": [{"points": points, "rejectedAttemptCount": 0, "type": "FINAL"}],
    }


def change(handle: str, old: int) -> dict[str, Any]:
    return {"contestId": 1, "handle": handle, "rank": 1, "oldRating": old, "newRating": old + 10}


def contest(number: int, num: int = 250) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Results of both methods for a rated contest of `num`."""
    rows = [row(f"user{i}", float(num - i), i) for i in range(num)]
    table = {"contest": {"id": number, "name": "Round", "type": "CF"}, "problems": PROBLEMS, "rows": rows}
    return table, [change(f"user{i}", 2500 - 5 * i) for i in range(num)]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The API at a local address, with contests 1 to 3, and no patience needed for retries."""
    monkeypatch.setattr(standings, "FIRST_WAIT", 0.01)
    monkeypatch.delenv(standings.API_VARIABLE, raising=False)
    with serving() as server:
        for number in (1, 2, 3):
            for method, result in zip((STANDINGS, CHANGES), contest(number), strict=True):
                server.files[at(method, number)] = ok(result)
        server.faults[at(CHANGES, 99)] = [failed("contestId: Contest with id 99 not found")]
        server.url += "/api"
        yield server


def cached(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())


# What the API's answers mean


def test_only_official_and_rated_participants_count() -> None:
    table, changes = contest(1, num=2)
    table["rows"] += [row("guest", 900.0, kind="OUT_OF_COMPETITION"), row("unrated", 800.0)]
    changes += [change("guest", 3000), change("absent", 1000)]
    found = from_api(table, changes)
    assert (found.contest, found.problems) == (1, {"A": 500.0, "B1": None})
    assert found.ratings.tolist() == [2500, 2495]
    assert found.points.tolist() == [2, 1]
    assert found.penalties.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ((), "contest"),
        ((), "problems"),
        ((), "rows"),
        (("contest",), "id"),
        (("problems", 0), "index"),
        (("rows", 0), "party"),
        (("rows", 0), "points"),
        (("rows", 0), "penalty"),
        (("rows", 0, "party"), "participantType"),
        (("rows", 0, "party", "members", 0), "handle"),
    ],
)
def test_what_is_missing_is_named(path: tuple[str | int, ...], key: str) -> None:
    table, changes = contest(1, num=2)
    table = deepcopy(table)
    place: Any = table
    for step in path:
        place = place[step]
    del place[key]
    with pytest.raises(ValueError, match=f"no '{key}'"):
        from_api(table, changes)


def test_answers_of_another_form_are_refused() -> None:
    table, changes = contest(1, num=2)
    for broken in (None, [], [{"handle": "user0"}], [{**changes[0], "oldRating": None}]):
        with pytest.raises((ValueError, NoData)):
            from_api(table, broken)
    with pytest.raises(ValueError, match="'oldRating'"):
        from_api(table, [{"handle": "user0"}])
    with pytest.raises(ValueError, match="not as documented"):
        from_api(None, changes)


def test_a_contest_without_rating_changes_is_unrated() -> None:
    table, _ = contest(1, num=2)
    with pytest.raises(NoData, match="unrated: none of 2"):
        from_api(table, [])


# The cache


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    saved = from_api(*contest(7))
    save(tmp_path, 7, saved)
    save(tmp_path, 8, NoData("unrated"))
    found, missing = load(tmp_path, [9, 8, 7, 7])
    assert (list(found), missing) == ([7], [9])
    assert found[7].problems == saved.problems
    for column in ("ratings", "points", "penalties"):
        np.testing.assert_array_equal(getattr(found[7], column), getattr(saved, column))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"contest": 1',
        b'{"contest": 1}',
        b'{"contest": 2, "without_data": "unrated"}',
        b'{"contest": 1, "ratings": [1500], "points": [1], "penalties": []}',
        b'{"contest": 1, "ratings": [null], "points": [1], "penalties": [0]}',
        b'{"contest": 1, "ratings": [1500], "points": [1], "penalties": [0], "more": 1}',
        b'{"contest": 1, "ratings": [1500], "points": [1], "penalties": [0], "without_data": "unrated"}',
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "1.json").write_bytes(content)
    with pytest.raises(UserError, match=rf"{tmp_path / '1.json'} is broken: .*delete it"):
        load(tmp_path, [1])


# Fetching


def test_contests_are_fetched_once_and_can_be_rated(tmp_path: Path, api: Server) -> None:
    assert fetch([2, 1, 1], tmp_path, api.url, 0) == []
    asked = [at(method, number) for number in (1, 2) for method in (CHANGES, STANDINGS)]
    assert [path for path, _ in api.requests] == asked
    assert fetch([1, 2], tmp_path, api.url, 0) == []
    assert len(api.requests) == 4
    found, _ = load(tmp_path, [1, 2])
    rated = rating.rating({"1A": [True], "2A": [False]}, found, {1500: 1}, mean_share)
    assert rated.contests[1] > rated.contests[2]


def test_requests_keep_their_distance(tmp_path: Path, api: Server) -> None:
    api.faults[at(CHANGES, 1)] = [Answer(500)]
    fetch([1, 2], tmp_path, api.url, 0.15)
    assert len(api.times) == 5
    assert min(np.diff(api.times)) > 0.14
    assert standings.SECONDS_BETWEEN_REQUESTS == 2


@pytest.mark.parametrize(
    "fault",
    [
        failed("Call limit exceeded", 400),
        failed("Call limit exceeded", 200),
        Answer(429),
        Answer(403, body=b"Forbidden"),
        Answer(503, body=b"<html>"),
        Answer(body=b"<html>Codeforces is temporarily unavailable</html>"),
        Answer(drop_after=100),
        Answer(drop_after=0),
    ],
)
def test_passing_faults_are_asked_again(tmp_path: Path, api: Server, fault: Answer) -> None:
    api.faults[at(STANDINGS, 1)] = [fault, fault]
    assert fetch([1], tmp_path, api.url, 0) == []
    assert [path for path, _ in api.requests] == [at(CHANGES, 1)] + [at(STANDINGS, 1)] * 3


def test_a_server_that_does_not_answer_is_asked_again(
    tmp_path: Path, api: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standings, "READ_TIMEOUT", 1.0)
    api.seconds = [3.0]
    assert fetch([1], tmp_path, api.url, 0) == []
    assert api.seconds == []


def test_contests_without_data_are_recorded_and_not_asked_again(tmp_path: Path, api: Server) -> None:
    api.faults[at(CHANGES, 2)] = [failed("contestId: Rating changes are unavailable for this contest")]
    api.files[at(CHANGES, 3)] = ok([])
    assert fetch([1, 2, 3, 99], tmp_path, api.url, 0) == [2, 3, 99]
    asked = len(api.requests)
    assert [len(api.asked(at(CHANGES, number))) for number in (2, 3, 99)] == [1, 1, 1]
    assert fetch([99, 3, 2, 1], tmp_path, api.url, 0) == [2, 3, 99]
    assert len(api.requests) == asked
    assert json.loads((tmp_path / "99.json").read_text())["without_data"] == "contestId: Contest with id 99 not found"


def test_an_api_that_stays_away_is_an_error_that_says_how_to_go_on(tmp_path: Path, api: Server) -> None:
    api.faults[at(STANDINGS, 2)] = [Answer(503)] * standings.NUM_ATTEMPTS
    with pytest.raises(UserError, match=r"contest 2: .*HTTP 503.* 1 of 3 contests are cached .* same command goes on"):
        fetch([1, 2, 3], tmp_path, api.url, 0)
    assert len(api.asked(at(STANDINGS, 2))) == standings.NUM_ATTEMPTS
    assert cached(tmp_path) == ["1.json"]
    assert fetch([1, 2, 3], tmp_path, api.url, 0) == []
    assert len(api.asked(at(STANDINGS, 1))) == 1


def test_an_address_that_nobody_listens_at_is_named(tmp_path: Path, api: Server) -> None:
    with pytest.raises(UserError, match=r"cannot reach http://127\.0\.0\.1:9/api.* 0 of 1 contests are cached"):
        fetch([1], tmp_path, "http://127.0.0.1:9/api", 0)


def test_an_answer_larger_than_any_contest_is_given_up(
    tmp_path: Path, api: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standings, "MAX_BYTES", 100)
    with pytest.raises(UserError, match=r"bytes are announced; expected no more than 100"):
        fetch([1], tmp_path, api.url, 0)
    assert len(api.requests) == 1


def test_what_is_no_address_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standings, "NUM_ATTEMPTS", 2)
    monkeypatch.setattr(standings, "FIRST_WAIT", 3600.0)
    with pytest.raises(UserError, match=r"codeforces\.com/api is not the address"):
        fetch([1], tmp_path, "codeforces.com/api", 0)


@pytest.mark.parametrize(
    "answer",
    [
        failed("contestId: Non-gym contest standings are available only with no extra parameters"),
        Answer(404, body=b"<html>"),
        Answer(body=ok({"contest": {"id": 1}, "problems": []})),
    ],
)
def test_refusals_and_unknown_answers_are_neither_repeated_nor_recorded(
    tmp_path: Path, api: Server, answer: Answer
) -> None:
    api.faults[at(STANDINGS, 1)] = [answer]
    with pytest.raises(UserError, match=r"no extra parameters|HTTP 404|no 'rows'"):
        fetch([1], tmp_path, api.url, 0)
    assert len(api.asked(at(STANDINGS, 1))) == 1
    assert cached(tmp_path) == []


FETCH = "import sys; from pathlib import Path; from elastic_core.rewards.codeforces.standings import fetch; "
FETCH += "fetch([1, 2, 3], Path(sys.argv[1]), sys.argv[2], 0)"


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGINT])
def test_an_interruption_loses_at_most_one_contest(tmp_path: Path, api: Server, ended_by: signal.Signals) -> None:
    api.faults[at(STANDINGS, 2)] = [Answer(429, {"Retry-After": "100"})]
    command = [sys.executable, "-c", FETCH, str(tmp_path), api.url]
    fetching = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not api.asked(at(STANDINGS, 2)):
        assert fetching.poll() is None
        time.sleep(0.01)
    fetching.send_signal(ended_by)
    assert fetching.wait() != 0
    assert cached(tmp_path) == ["1.json"]
    assert fetch([1, 2, 3], tmp_path, api.url, 0) == []
    assert len(api.asked(at(STANDINGS, 1))) == 1
    assert cached(tmp_path) == ["1.json", "2.json", "3.json"]


def test_the_task_asks_where_the_environment_says(tmp_path: Path, api: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(standings.API_VARIABLE, api.url)
    assert fetch_standings.fn([1, 99], tmp_path, "http://127.0.0.1:9/api", 0) == [99]
    monkeypatch.delenv(standings.API_VARIABLE)
    assert fetch_standings.fn([2], tmp_path, api.url, 0) == []
    assert cached(tmp_path) == ["1.json", "2.json", "99.json"]
