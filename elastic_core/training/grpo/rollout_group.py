"""Rollouts of one problem that wait for each other, to be rewarded together; where one fails, the others do."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from elastic_core.training.methods.base import Outcome


@dataclass
class RolloutGroup:
    """Rollouts of one problem, each of which runs `with` it. `rewards` takes the outcomes of all `size` of them."""

    size: int
    rewards: Callable[[Sequence[Outcome]], list[float]]
    _outcomes: dict[int, Outcome] = field(default_factory=dict)
    _rewarded: "asyncio.Future[dict[int, float]]" = field(default_factory=asyncio.Future)

    def __enter__(self) -> "RolloutGroup":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is not None and not self._rewarded.done():
            self._rewarded.set_exception(RuntimeError(f"another rollout of the problem failed: {error}"))

    async def reward(self, session: int, outcome: Outcome) -> float:
        """The reward of rollout `session`, once all have ended."""
        self._outcomes[session] = outcome
        if len(self._outcomes) == self.size:
            self._rewarded.set_result(
                dict(zip(self._outcomes, self.rewards(list(self._outcomes.values())), strict=True))
            )
        return (await self._rewarded)[session]
