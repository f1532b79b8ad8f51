"""Which rows of a batch may be due in a decoding step. A step costs what its due rows cost, however many others there
are: a row waits in the bucket of the step in which it is to be looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elastic_core.engines.budgets.processor import Progress


@dataclass(eq=False)
class Row:
    """A response's place in the batch.

    Attributes:
        output: the engine's list, which grows.
        step: whose bucket it waits in; None when nothing will be due any more.
    """

    index: int
    progress: Progress
    output: Sequence[int]
    step: int | None = None


class Schedule:
    """Rows by index and by step. In one step a row grows by one token at most, and may grow by none."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._buckets: defaultdict[int, dict[Row, None]] = defaultdict(dict)
        self._now = 0
        self.away: set[int] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, index: int, progress: Progress, output: Sequence[int]) -> None:
        """A row to be looked at in the next step; what had its index is removed."""
        self.remove(index)
        self._rows[index] = row = Row(index, progress, output)
        self._wait(row, self._now)

    def remove(self, index: int) -> None:
        """Nothing happens when there is no such row."""
        row = self._rows.pop(index, None)
        self.away.discard(index)
        if row is None or row.step is None:
            return
        bucket = self._buckets[row.step]
        del bucket[row]
        if not bucket:
            del self._buckets[row.step]

    def wake(self, index: int) -> None:
        """Look at a row that was away in the next step."""
        self.away.remove(index)
        self._wait(self._rows[index], self._now)

    def move(self, source: int, target: int) -> None:
        """What was at `source` is at `target`, and what was there is gone."""
        self.remove(target)
        self._place(self._rows.pop(source, None), target)

    def swap(self, one: int, other: int) -> None:
        """Each is where the other was."""
        first, second = self._rows.pop(one, None), self._rows.pop(other, None)
        self._place(first, other)
        self._place(second, one)

    def step(self, is_present: Callable[[int], bool] = lambda index: True) -> list[tuple[int, int]]:
        """One decoding step: index and token of every row that does not choose its next token itself.

        Args:
            is_present: whether the row at an index takes part. One that is due and does not is `away`, until `wake`.
        """
        forced = []
        for row in self._buckets.pop(self._now, ()):
            row.step = None
            if not is_present(row.index):
                self.away.add(row.index)
                continue
            token, wait = row.progress.look(row.output)
            if token is not None:
                forced.append((row.index, token))
            if wait is not None:
                self._wait(row, self._now + wait)
        self._now += 1
        return forced

    def _place(self, row: Row | None, index: int) -> None:
        if row is not None:
            row.index = index
            self._rows[index] = row

    def _wait(self, row: Row, step: int) -> None:
        row.step = step
        self._buckets[step][row] = None
