"""Which of a sweep's models are behind servers, and what its settings must say of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from elastic_core.engines.endpoint import CHAT, EXAMPLE, Address, is_endpoint, parse_addresses
from elastic_core.strategies.chat import CHAT_STRATEGIES
from elastic_core.strategies.effort import EFFORT, EFFORTS, STRATEGY
from elastic_core.sweep.grid import checkpoints


def endpoints_of(places: Mapping[str, str | list[str]]) -> dict[str, tuple[Address, ...]]:
    """Addresses of those places that are servers, by name.

    Raises:
        ValueError: when one cannot be read.
    """
    found = {}
    for name, place in places.items():
        if isinstance(place, list) or is_endpoint(place):
            try:
                found[name] = parse_addresses(place)
            except ValueError as error:
                raise ValueError(f"checkpoints.{name}: {error}") from None
    return found


def check_endpoints(
    endpoints: Mapping[str, Sequence[Address]], tokenizers: Collection[str], strategies: Mapping[str, Sequence[str]]
) -> None:
    """Raise ValueError when a model could not be measured as asked.

    Args:
        strategies: of each model of the sweep.
    """
    chat = {name for name, addresses in endpoints.items() if addresses[0].chat}
    with_ids = endpoints.keys() - chat
    for name in sorted(with_ids.difference(tokenizers)):
        raise ValueError(
            f"tokenizers.{name} is missing; expected the directory of the tokenizer that the server has for {name}, or "
            "OWNER/NAME on the hub"
        )
    for name in sorted(set(tokenizers) - with_ids):
        raise ValueError(
            f"tokenizers.{name} has no effect: checkpoints has no server of that name that takes token ids"
        )
    for model, chosen in strategies.items():
        _check(model, chosen, with_ids, chat)


def _check(model: str, strategies: Sequence[str], with_ids: Collection[str], chat: Collection[str]) -> None:
    names = set(checkpoints(model).values())
    in_text = names.intersection(chat)
    if len(names) > 1 and (in_text or len(names.intersection(with_ids)) == 1):
        raise ValueError(
            f'"{model}" is two models of different kinds; expected both behind servers that take token ids'
        )
    if in_text and (refused := [name for name in strategies if name not in CHAT_STRATEGIES]):
        raise ValueError(
            f"{refused[0]} works on token ids, and {model} is asked in text; expected vanilla, unconstrained or "
            f"{EFFORT}: give it its own in strategies_of.{model}"
        )
    if not in_text and (refused := [name for name in strategies if name in map(STRATEGY.format, EFFORTS)]):
        raise ValueError(
            f"{refused[0]} is for models behind a chat API ({CHAT}{EXAMPLE}), and {model} is none; give those that are "
            "strategies_of of their own"
        )


def with_levels(strategies: Sequence[str]) -> list[str]:
    """Strategies by name, "effort" in its levels."""
    levels = [STRATEGY.format(level) for level in EFFORTS]
    return [each for name in strategies for each in (levels if name == EFFORT else [name])]
