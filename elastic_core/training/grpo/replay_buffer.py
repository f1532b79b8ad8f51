"""The trainer's wait for a step's rollouts: none may be missing, and with dynamic sampling all teach something."""

import time
from collections.abc import Iterable
from math import ceil
from typing import Any

import transfer_queue
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

Extra = tuple[str, dict[str, Any]]
"""A row's problem, and what `agent_loop.of_row` says of it."""


class StrictReplayBuffer(ReplayBuffer):  # type: ignore[misc]
    """Refuses groups with a failed rollout; verl would pad the batch and train on the rest.

    With dynamic sampling (DAPO, Yu et al. 2025, 2503.14476) the problems with equal rewards of all rollouts are
    replaced. verl 0.9.1 asks for more whenever one is found and takes what ends first: which problems are trained on,
    and where the data goes on, would then differ from run to run. Here all rollouts of a round end, and the first
    problems of the data that teach something are taken.
    """

    def __init__(self, *args: Any, max_batches: int | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._max_batches = max_batches  # of one step, with dynamic sampling
        self.submitted: list[str] = []  # problems of this step, in the order of the data
        self.discarded: list[Extra] = []  # rows of those that are not trained on

    def _sampleable_terminal_keys(self, partition_id: str, eviction_reasons: Any) -> set[str]:
        failed = self.failure_keys[partition_id]
        if failed:
            raise RuntimeError(
                f"rollouts of {len(failed)} problems failed in partition {partition_id}; "
                'the first reason is above, after "Error in _run_prompt"'
            )
        terminal: set[str] = super()._sampleable_terminal_keys(partition_id, eviction_reasons)
        return terminal

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """The rows of `batch_size` problems, and metrics; the others are in `discarded`."""
        if partition_id == "val" or self._max_batches is None:
            sampled: tuple[KVBatchMeta, dict[str, Any]] = super().sample(global_steps, partition_id, batch_size)
            return sampled
        while True:
            rows = self._all_rows(partition_id)
            taught = set(with_variance(rows.values()))
            wanted = to_sample(len(taught), len(self.submitted), batch_size, self._max_batches)
            if not wanted:
                break
            self.refill_fn(wanted)
        # Where too few teach, others complete the batch: their advantages are 0.
        chosen = sorted(self.submitted, key=lambda problem: problem not in taught)[:batch_size]
        self.discarded = [extra for extra in rows.values() if extra[0] not in chosen]
        self._clear_groups(partition_id, {problem for problem, _ in self.discarded})
        batch = self._materialize_batch(partition_id, chosen, dict(self.partitions[partition_id]))
        return batch, {"rollout/groups_discarded": float(len(self.submitted) - len(chosen))}

    def _all_rows(self, partition_id: str) -> dict[str, Extra]:
        """Wait until all rollouts of this step have ended; their rows by key."""
        reported = time.time()
        while True:
            self._sync_metadata_from_transfer_queue()
            if len(self._sampleable_terminal_keys(partition_id, (set(), set(), set(), None))) == len(self.submitted):
                return extra_fields(partition_id, list(self.partitions[partition_id]))
            reported = self._wait_for_next_poll(partition_id, reported)


def extra_fields(partition_id: str, keys: list[str]) -> dict[str, Extra]:
    """Problem and extra fields of each row, by its key."""
    data = transfer_queue.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["uid", "extra_fields"])
    return dict(zip(keys, zip(data["uid"], data["extra_fields"], strict=True), strict=True))


def with_variance(rows: Iterable[Extra]) -> list[str]:
    """The problems with different scores; of others all advantages are 0."""
    scores: dict[str, set[float]] = {}
    for problem, row in rows:
        if row["score"] is not None:
            scores.setdefault(problem, set()).add(row["score"])
    return [problem for problem, distinct in scores.items() if len(distinct) > 1]


def to_sample(taught: int, sampled: int, batch_size: int, max_batches: int) -> int:
    """Problems that a step samples next, when `taught` of `sampled` taught something: as many as should fill the
    batch at that rate, but not more than a batch; 0 when it is full, or the limit of batches is reached."""
    missing = max(0, batch_size - taught)
    expected = ceil(missing * sampled / taught) if taught else batch_size
    return min(expected, batch_size, max_batches * batch_size - sampled) if missing else 0
