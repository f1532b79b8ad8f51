"""Dynamic sampling: which problems a step trains on, and what becomes of the others."""

from typing import Any

import pytest

from elastic_core.training.grpo import replay_buffer
from elastic_core.training.grpo.replay_buffer import StrictReplayBuffer

TEACHES, EQUAL = (0.0, 1.0), (1.0, 1.0)


class Buffer(StrictReplayBuffer):
    """Whose rollouts end at once, with the scores of `problems` one after the other."""

    current: "Buffer"

    def __init__(self, problems: list[tuple[float, ...]], batch_size: int, max_batches: int) -> None:
        self.problems = problems
        self.submitted, self.discarded, self.asked, self._max_batches = [], [], list[int](), max_batches
        self.partitions, self.failure_keys = {"train": dict[str, Any]()}, {"train": set[str]()}
        self.cleared, self.refill_fn = set[str](), self.refill
        self.refill(batch_size)

    def refill(self, number: int) -> None:
        self.asked.append(number)
        for _ in range(number):
            place = len(self.submitted)
            self.submitted.append(f"p{place}")
            self.partitions["train"] |= {f"p{place}_{i}_0": {} for i in range(len(self.problems[place]))}

    def _sync_metadata_from_transfer_queue(self) -> None:
        self.finished_keys = {"train": set(self.submitted)}

    def _clear_groups(self, partition_id: str, uids: set[str]) -> None:
        self.cleared |= uids

    def _materialize_batch(self, partition_id: str, chosen: list[str], snapshot: Any) -> Any:
        return chosen


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_keys(partition_id: str, keys: list[str]) -> Any:
        parts = {key: key.split("_") for key in keys}
        return {
            key: (problem, {"score": Buffer.current.problems[int(problem[1:])][int(session)], "generated_tokens": 5})
            for key, (problem, session, _) in parts.items()
        }

    monkeypatch.setattr(replay_buffer, "extra_fields", of_keys)


def sampled(problems: list[tuple[float, ...]], batch_size: int, max_batches: int = 10) -> Any:
    Buffer.current = buffer = Buffer(problems, batch_size, max_batches)
    batch, metrics = buffer.sample(1, "train", batch_size)
    assert {problem for problem, _ in buffer.discarded} == buffer.cleared == set(buffer.submitted) - set(batch)
    assert metrics == {"rollout/groups_discarded": len(buffer.submitted) - batch_size}
    return batch, buffer


def test_problems_that_teach_nothing_are_replaced_by_the_next_of_the_data() -> None:
    batch, buffer = sampled([TEACHES, EQUAL, TEACHES, EQUAL, EQUAL, TEACHES, TEACHES, TEACHES], 4)
    assert buffer.asked == [4, 4] and batch == ["p0", "p2", "p5", "p6"]
    assert sum(extra["generated_tokens"] for _, extra in buffer.discarded) == 4 * 2 * 5


def test_nothing_is_sampled_again_where_all_teach() -> None:
    batch, buffer = sampled([TEACHES] * 4, 4)
    assert buffer.asked == [4] and batch == ["p0", "p1", "p2", "p3"] and not buffer.discarded


def test_at_the_limit_the_step_takes_what_there_is() -> None:
    batch, buffer = sampled([EQUAL] * 7 + [TEACHES] + [EQUAL], 3, max_batches=3)
    assert sum(buffer.asked) == 9 and batch == ["p7", "p0", "p1"]
