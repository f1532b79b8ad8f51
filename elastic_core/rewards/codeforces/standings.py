"""Standings of Codeforces contests: from the public API, kept as one file per contest.

The API is https://codeforces.com/apiHelp. It refuses with a JSON object that has a comment, at HTTP 400 or 200, and
throttles in several ways: HTTP 429 or 403, or a comment. `contest.standings` takes no parameter but the contest
(others are refused to anonymous callers), gives official participants only, and answers with megabytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from elastic_core.errors import UserError, first_fault
from elastic_core.rewards.codeforces import Standings
from elastic_core.system.files import replacing
from elastic_core.system.network import DownloadError, TooLarge, pieces
from elastic_core.system.retry import retrying

if TYPE_CHECKING:
    import httpx

API = "https://codeforces.com/api"
API_VARIABLE = "ELASTIC_CODEFORCES_API"  # environment variable with another address of the API
SECONDS_BETWEEN_REQUESTS = 2.0  # as the API asks
NUM_ATTEMPTS = 6
FIRST_WAIT = 2.0  # seconds before the second attempt; doubled before each further one
CONNECT_TIMEOUT, READ_TIMEOUT = 10.0, 60.0  # seconds until a connection stands, and until the next bytes come
MAX_BYTES = 256 << 20  # of an answer; those of the largest contests have some 30 MiB
THROTTLED = "Call limit exceeded"
WITHOUT_DATA = ("not found", "Rating changes are unavailable")
"""In the API's comments on contests that will never have what a rating needs."""


class NoData(Exception):
    """A contest has no standings to rate by, and never will; the message says why."""


class _Transient(DownloadError):
    """Worth another attempt; the response, where there is one, may say when."""

    def __init__(self, message: str, response: httpx.Response | None = None) -> None:
        super().__init__(message)
        self.response = response


class _Saved(BaseModel):
    """A file of the cache: standings, or the reason why there are none."""

    model_config = ConfigDict(extra="forbid")

    contest: int
    problems: dict[str, float | None] = {}
    ratings: list[float] = []
    points: list[float] = []
    penalties: list[float] = []
    without_data: str | None = None

    @model_validator(mode="after")
    def _either(self) -> _Saved:
        if (self.without_data is None) == (not self.ratings):
            raise ValueError("expected either participants or the reason why there are none")
        return self


def from_api(standings: Any, rating_changes: Any) -> Standings:
    """The `result` of contest.standings and of contest.ratingChanges as one, for the official participants with a
    rating change (of a team its first member). ValueError names the missing key; NoData when none was rated."""
    try:
        before = {change["handle"]: change["oldRating"] for change in rating_changes}
        official = [row for row in standings["rows"] if row["party"]["participantType"] == "CONTESTANT"]
        handles = [row["party"]["members"][0]["handle"] for row in official]
        rated = [(before[handle], row) for handle, row in zip(handles, official, strict=True) if handle in before]
        if not rated:
            raise NoData(f"contest is unrated: none of {len(official)} official participants has a rating change")
        return Standings(
            contest=standings["contest"]["id"],
            problems={problem["index"]: problem.get("points") for problem in standings["problems"]},
            ratings=np.array([rating for rating, _ in rated], float),
            points=np.array([row["points"] for _, row in rated], float),
            penalties=np.array([row["penalty"] for _, row in rated], float),
        )
    except KeyError as error:
        raise ValueError(f"the API's standings or rating changes have no {error}") from error
    except (AttributeError, IndexError, TypeError) as error:
        raise ValueError(f"the API's standings or rating changes are not as documented: {error}") from error


def save(directory: Path, contest: int, standings: Standings | NoData) -> None:
    """Keep the standings of a contest, or that there are none: the file appears complete or not at all."""
    content = {"without_data": str(standings)} if isinstance(standings, NoData) else vars(standings)
    content = {"contest": contest} | content
    with replacing(directory / f"{contest}.json") as temporary:
        temporary.write_bytes(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY))


def load(directory: Path, contests: Iterable[int]) -> tuple[dict[int, Standings], list[int]]:
    """Standings by contest, and the contests that were never fetched. Contests that are known to have no data are in
    neither. A broken file is a UserError."""
    found: dict[int, Standings] = {}
    missing = []
    for contest in sorted(set(contests)):
        path = directory / f"{contest}.json"
        if not path.exists():
            missing.append(contest)
        elif isinstance(standings := _read(path, contest), Standings):
            found[contest] = standings
    return found, missing


def fetch(
    contests: Iterable[int], directory: Path, base_url: str = API, seconds_between: float = SECONDS_BETWEEN_REQUESTS
) -> list[int]:
    """Have every contest in the cache; each is saved as soon as it is there. Returns the contests without data.
    UserError when the API cannot be reached or refuses, or a file of the cache is broken."""
    from tqdm import tqdm

    wanted = sorted(set(contests))
    missing = load(directory, wanted)[1]
    client = Client(base_url.rstrip("/"), seconds_between)
    for contest in tqdm(missing, desc="standings", unit="contest", disable=None, dynamic_ncols=True):
        try:
            # The smaller answer first: unrated contests need no other.
            rating_changes = client.call("contest.ratingChanges", contest)
            save(directory, contest, from_api(client.call("contest.standings", contest), rating_changes))
        except NoData as reason:
            save(directory, contest, reason)
        except (DownloadError, ValueError) as error:
            num_cached = len(wanted) - len(load(directory, wanted)[1])
            raise UserError(
                f"contest {contest}: {error}. {num_cached} of {len(wanted)} contests are cached in {directory}; "
                f"the same command goes on from there ({API_VARIABLE} names another address of the API)"
            ) from error
    found = load(directory, wanted)[0]
    return [contest for contest in wanted if contest not in found]


@dataclass
class Client:
    """The API at an address, with `seconds_between` requests, and retries where they may help."""

    base_url: str
    seconds_between: float
    _last: float = -np.inf

    def call(self, method: str, contest: int) -> Any:
        """A method's result for a contest. NoData when it has none; DownloadError when the API is away or refuses."""
        again = retrying(lambda error: isinstance(error, _Transient), NUM_ATTEMPTS, FIRST_WAIT)
        return again(self._ask, method, contest)

    def _ask(self, method: str, contest: int) -> Any:
        import httpx

        time.sleep(max(0.0, self._last + self.seconds_between - time.monotonic()))
        timeout = httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT)
        try:
            address = f"{self.base_url}/{method}"
            with httpx.stream("GET", address, params={"contestId": contest}, timeout=timeout) as response:
                body = b"".join(pieces(response, MAX_BYTES))
        except TooLarge as error:
            raise DownloadError(f"{method}: {error}; expected no more than {MAX_BYTES}") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise DownloadError(f"{self.base_url} is not the address of an API: {error}") from error
        except httpx.RequestError as error:
            raise _Transient(f"cannot reach {self.base_url}: {error or type(error).__name__}") from error
        finally:
            self._last = time.monotonic()
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            answer = None
        answer = answer if isinstance(answer, dict) else {}
        if answer.get("status") == "OK" and "result" in answer:
            return answer["result"]
        # It is read whatever the status: nothing else tells refusals apart.
        comment = str(answer.get("comment", ""))
        if any(words in comment for words in WITHOUT_DATA):
            raise NoData(comment)
        said = f"{method} answered HTTP {response.status_code}: {comment or 'not the JSON of the API'}"
        # What throttles in front of the API and pages about maintenance (HTTP 200) have no comment.
        throttled = THROTTLED in comment if comment else response.status_code in (200, 403, 408)
        if throttled or response.status_code == 429 or response.status_code >= 500:
            raise _Transient(said, response)
        raise DownloadError(said)


def _read(path: Path, contest: int) -> Standings | NoData:
    try:
        saved = _Saved.model_validate_json(path.read_bytes())
        if saved.contest != contest:
            raise ValueError(f"it is of contest {saved.contest}")
        if saved.without_data is not None:
            return NoData(saved.without_data)
        columns = (np.array(column) for column in (saved.ratings, saved.points, saved.penalties))
        return Standings(contest, saved.problems, *columns)
    except (OSError, ValueError) as error:
        # Of thousands of numbers the first that is wrong will do.
        why = first_fault(error) if isinstance(error, ValidationError) else error
        raise UserError(f"{path} is broken: {why}; delete it and fetch the standings again") from error
