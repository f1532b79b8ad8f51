"""What a server has done, in the registry that vLLM shows at /metrics."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Counter

from elastic_core.serving.responses import Tally

_REQUESTS = Counter("elastic_requests", "Requests answered.", ["level"])
_ABANDONED = Counter("elastic_abandoned_requests", "Requests whose client left before the response.", ["level"])
_FORCED = Counter("elastic_forced_thoughts", "Thoughts that were closed at their budget.", ["level"])
_CUT = Counter("elastic_cut_solutions", "Solutions that were cut at their budget.", ["level"])
_TOKENS = Counter("elastic_tokens", "Tokens of responses.", ["level", "phase"])


def count(level: str, tallies: Iterable[Tally]) -> None:
    """One request's choices, as far as they came."""
    _REQUESTS.labels(level).inc()
    for tally in tallies:
        _FORCED.labels(level).inc(tally.forced)
        _CUT.labels(level).inc(tally.is_cut)
        _TOKENS.labels(level, "thinking").inc(tally.thinking)
        _TOKENS.labels(level, "solution").inc(tally.solution)
        _TOKENS.labels(level, "forced").inc(tally.forced)


def count_abandoned(level: str) -> None:
    """A request whose tokens are not known: vLLM gave it up and told nothing of it."""
    _ABANDONED.labels(level).inc()
