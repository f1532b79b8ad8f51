"""A reward that sees all rollouts of its problem, and may remember what earlier steps have seen.

The agent loop calls `rewards` once all rollouts of a problem have ended. A reward with a memory gets its problem's
entry, or the one entry of all problems, as it was before the step. After the step the trainer computes the entries
anew, and saves them in every checkpoint, so a training that is killed and resumed goes on with the same rewards.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from elastic_core.errors import UserError

FILE = "reward_memory.json"
"""Of a checkpoint, where the reward has a memory."""


@dataclass(frozen=True)
class Outcome:
    """What a reward sees of a rollout."""

    score: float
    """The grade, in [0, 1]."""
    length: int
    """Sampled tokens of thinking and solution."""
    finished: bool
    """Whether the model ended the solution; a limit ended it otherwise."""

    @property
    def right(self) -> bool:
        return self.score == 1


Group = Sequence[Outcome]
"""All rollouts of a problem in one step; two at least."""


class GroupReward(BaseModel):
    """Rewards of a group. Fields are the method's settings, `train.reward_settings`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    memory_of: ClassVar[Literal["nothing", "problem", "all"]] = "nothing"
    """Whether there is an entry for each problem, or one for all."""

    def rewards(self, group: Group, memory: Any = None) -> list[float]:
        """The reward of each rollout; `memory` is None before the first step that `remember` has seen."""
        raise NotImplementedError

    def remember(self, memory: Any, groups: Sequence[Group]) -> Any:
        """The entry after a step: from the one before, and the step's groups that it is of. It must be the same for any
        order of a group's rollouts, and writable as JSON."""
        raise NotImplementedError


class Memory:
    """Entries of a reward that has a memory, by problem, or under "" the one for all."""

    def __init__(self, name: str, reward: GroupReward) -> None:
        self._name, self._reward = name, reward
        self._entries: dict[str, Any] = {}

    def _place(self, problem: str) -> str:
        return problem if self._reward.memory_of == "problem" else ""

    def of(self, problem: str) -> Any:
        return self._entries.get(self._place(problem))

    def update(self, step: Iterable[tuple[str, Group]]) -> None:
        """Remember the groups of a step, each with its problem."""
        groups: dict[str, list[Group]] = {}
        for problem, group in step:
            groups.setdefault(self._place(problem), []).append(group)
        for place, seen in groups.items():
            self._entries[place] = self._reward.remember(self._entries.get(place), seen)

    def save(self, checkpoint: Path) -> None:
        (checkpoint / FILE).write_text(json.dumps({"reward": self._name, "entries": self._entries}) + "\n")

    def load(self, checkpoint: Path) -> None:
        """Raises UserError unless the checkpoint holds the memory of this reward."""
        file = checkpoint / FILE
        saved: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"reward": "no reward"}
        if saved["reward"] != self._name:
            raise UserError(
                f"{file} has the memory of {saved['reward']}, and train.reward = {self._name} needs its own; train "
                "with the former, or delete the checkpoints to start over"
            )
        self._entries = saved["entries"]
