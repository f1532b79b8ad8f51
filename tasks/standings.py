"""Fetching the standings of Codeforces contests, which ratings are computed from."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from elastic_core.codeforces import standings


@task(name="fetch-standings", cache_policy=NO_CACHE)
def fetch_standings(
    contests: Iterable[int],
    directory: Path,
    base_url: str = standings.API,
    seconds_between: float = standings.SECONDS_BETWEEN_REQUESTS,
) -> list[int]:
    """Have the standings of every contest below `directory`. Returns the contests without data.

    ELASTIC_CODEFORCES_API, where it is set, is asked instead of `base_url`. Requests are retried one by one, so the
    task itself is not.

    Raises:
        UserError: when the API cannot be reached; what was fetched stays.
    """
    return standings.fetch(contests, directory, os.environ.get(standings.API_VARIABLE) or base_url, seconds_between)
