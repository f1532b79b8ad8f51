"""The budget processor under speculative decoding, where a request has a row of logits for each draft token.

Row j of a request follows its committed tokens and its first j drafts. The state of a request is a function of its
committed tokens alone, so drafts that are rejected leave nothing behind. A forced row has one possible token: a draft
that equals it is accepted with probability 1, every other one is rejected and resampled to it. So a response has the
same distribution as without drafts (arXiv 2211.17192, theorem 1), and as under strategy `separate`.

Lengths are known on the device alone, so everything is computed there, without waiting for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elastic_core.budget import Budget
from elastic_core.engines.budgets.processor import Progress
from elastic_core.models.marks import Marks

if TYPE_CHECKING:
    import torch

_UNKNOWN = -1  # Tokens before the solution, while the thought is open.
_UNLIMITED = 2**62
_NO_TOKEN = -2  # Equals no id, and not the -1 of a draft that vLLM has withdrawn.


class DraftBudgets:
    """Budgets of requests by slot; the runner changes the tensors that it is given.

    Args:
        tokens: [slots, context], prompt and committed response.
        prompt_lengths: [slots].
        prefill_lengths: [slots], with the earlier response of a request that comes back.
        drafts: most draft tokens of a request in a step.
    """

    def __init__(
        self,
        marks: Marks,
        tokens: torch.Tensor,
        prompt_lengths: torch.Tensor,
        prefill_lengths: torch.Tensor,
        drafts: int,
    ) -> None:
        import torch

        self._marks, self._tokens = marks, tokens
        self._prompt_lengths, self._prefill_lengths = prompt_lengths, prefill_lengths
        self._new: dict[int, tuple[Budget | None, bool | None]] = {}
        device, slots = tokens.device, len(tokens)
        # The last place takes what is not to be kept.
        self._think, self._solution, self._start, self._read = (
            torch.full((slots + 1,), value, dtype=torch.int64, device=device)
            for value in (_UNLIMITED, _UNLIMITED, _UNKNOWN, 0)
        )
        self._has_budget = torch.zeros(slots + 1, dtype=torch.bool, device=device)

        ends = tuple(dict.fromkeys((*marks.think_ends, *marks.calls)))
        self._ends = [(end, int(end in marks.calls and end not in marks.think_ends)) for end in ends]
        self._closings = _closings(marks)
        closings = [closing for *_, closing in self._closings]
        width = max(1, *map(len, closings))
        self._closing = torch.tensor([[*each, *[_NO_TOKEN] * (width - len(each))] for each in closings], device=device)
        self._closing_lengths = torch.tensor([len(each) for each in closings], device=device)
        # Made once: what comes from the host in a step is waited for.
        self._begun = [torch.tensor(begun[::-1], dtype=tokens.dtype, device=device) for begun, *_ in self._closings]
        # A committed length was looked at before at most drafts + 1 tokens, a row is at most `drafts` tokens after it,
        # and a closing's opening tokens are as many tokens before.
        longest = max((len(end) for end in ends), default=1)
        self._window = 2 * (drafts + 1) + width + max(longest, len(marks.think_start))
        self._back = torch.arange(self._window, device=device)

    def add(self, slot: int, budget: Budget | None, closed: bool | None = None, _: object = None) -> bool:
        """See `SlotBudgets.add`; a thought is closed by the model's own marks alone."""
        self._new[slot] = budget, closed
        return budget is not None

    def begin(self) -> None:
        """Before a step, once its prompts are on the device: takes in the new requests, whose tokens it reads."""
        import torch

        new, self._new = self._new, {}
        if not new:
            return
        slots = torch.tensor(list(new), device=self._tokens.device)
        lengths = zip(self._prompt_lengths[slots].tolist(), self._prefill_lengths[slots].tolist(), strict=True)
        states = [self._initial(slot, *of, *new[slot]) for slot, of in zip(new, lengths, strict=True)]
        columns = torch.tensor(states, device=self._tokens.device).T
        kept = (self._has_budget, self._think, self._solution, self._start, self._read)
        for tensor, values in zip(kept, columns, strict=True):
            tensor[slots] = values.to(tensor.dtype)

    def _initial(
        self, slot: int, prompt: int, prefill: int, budget: Budget | None, closed: bool | None
    ) -> tuple[int, int, int, int, int]:
        """Whether a request has a budget, t, s, and its progress, as they are kept."""
        if budget is None:
            return 0, _UNLIMITED, _UNLIMITED, _UNKNOWN, 0
        tokens = self._tokens[slot, :prefill].tolist() if closed is None or prefill > prompt else []
        closed = self._marks.is_closed(tokens[:prompt]) if closed is None else closed
        progress = Progress(budget, self._marks, 0 if closed else None)
        if prefill > prompt:
            progress.update(tokens[prompt:])
        think, solution = (_UNLIMITED if limit is None else limit for limit in (budget.think, budget.solution))
        start = _UNKNOWN if progress.solution_start is None else progress.solution_start
        return 1, think, solution, start, progress.read

    def apply(
        self,
        logits: torch.Tensor,
        slots: torch.Tensor,
        ids: torch.Tensor,
        positions: torch.Tensor,
        drafts: torch.Tensor,
    ) -> None:
        """Give due rows of `logits` [rows, vocabulary] one possible token, in place. A call has all rows of a request.

        Args:
            slots: [rows], of each row's request.
            ids: [rows], the row's last token: the last committed one, then drafts.
            positions: [rows], of that token in prompt and response.
            drafts: [rows], how many drafts precede the row's logits.
        """
        import torch

        rows = torch.arange(len(slots), device=logits.device)
        length = positions + 1 - self._prompt_lengths[slots]
        committed = self._tokens[slots[:, None], (positions[:, None] - self._back).clamp(min=0)]
        drafted = ids[(rows[:, None] - self._back).clamp(min=0)]
        last = torch.where(self._back < drafts[:, None], drafted, committed)  # [rows, window], the latest first.
        last = torch.where(self._back < length[:, None], last, _NO_TOKEN)  # Of the response alone.

        think, solution = self._think[slots], self._solution[slots]
        sampled = torch.minimum(length, think)
        start = torch.where(self._start[slots] < 0, self._find_end(last, length, sampled, slots), self._start[slots])
        closing, written = self._closing_of(last, length - think, think), length - think
        closes = (start < 0) & (written >= 0) & (written < self._closing_lengths[closing])
        after = think + self._closing_lengths[closing]
        start = torch.where((start < 0) & (length >= after), after, start)
        token = self._closing[closing, written.clamp(0, self._closing.shape[1] - 1)]
        cuts = (start >= 0) & (length - start >= solution)
        token = torch.where(closes, token, torch.where(cuts, self._marks.cut, _NO_TOKEN))

        # Within a prefill samples are discarded.
        decodes = self._has_budget[slots] & (positions - drafts + 1 >= self._prefill_lengths[slots])
        keep = torch.where(decodes & (drafts == 0), slots, len(self._start) - 1)
        self._start[keep], self._read[keep] = start, sampled
        forced = decodes & (token >= 0)
        logits.masked_fill_(forced[:, None], float("-inf"))
        column = token.clamp(min=0)[:, None]
        logits.scatter_(1, column, torch.where(forced[:, None], 0.0, logits.gather(1, column)))

    def _find_end(
        self, last: torch.Tensor, length: torch.Tensor, sampled: torch.Tensor, slots: torch.Tensor
    ) -> torch.Tensor:
        """[rows]: tokens before the solution by the first mark that is complete after what was read before, as
        `Marks.end`; _UNKNOWN without one."""
        import torch

        found = torch.full_like(length, _UNLIMITED)
        start = found
        for end, call in self._ends:
            after = length[:, None] - self._back[: self._window - len(end) + 1]  # Tokens up to the mark's last.
            stands = (after > self._read[slots][:, None]) & (after <= sampled[:, None])
            for i, token in enumerate(reversed(end)):
                stands &= last[:, i : i + after.shape[1]] == token
            first = torch.where(stands, after, _UNLIMITED).amin(1)
            # Of those that end together a think-end comes first.
            start = torch.where(first < found, first - call, start)
            found = torch.minimum(found, first)
        return torch.where(found < _UNLIMITED, start, _UNKNOWN)

    def _closing_of(self, last: torch.Tensor, written: torch.Tensor, think: torch.Tensor) -> torch.Tensor:
        """[rows]: number of the closing that `Marks.closing` writes after the first t tokens, `written` tokens ago."""
        import torch

        number = torch.full_like(written, len(self._closings) - 1)
        at = written.clamp(0, self._window - 1)[:, None]
        for i, (begun, whole, _) in reversed(list(enumerate(self._closings[:-1]))):
            places = (at + self._back[: len(begun)]).clamp(max=self._window - 1)
            stands = (last.gather(1, places) == self._begun[i]).all(1) & (think >= len(begun))
            number = torch.where(stands & ((think == len(begun)) | (not whole)), i, number)
        return number


def _closings(marks: Marks) -> list[tuple[tuple[int, ...], bool, tuple[int, ...]]]:
    """What `Marks.closing` writes, the first that applies: last tokens of a thought, whether they are all of it, and
    what is written after them."""
    begun = {end[:length]: None for end in marks.think_ends for length in range(1, len(end))}
    rests = [(each, False, marks.rest_of_end(each)) for each in sorted(begun, key=len, reverse=True)]
    opened = [marks.think_start[:length] for length in range(1, len(marks.think_start))]
    openings = [(each, True, marks.closing(each)) for each in opened]
    return [*rests, ((), True, marks.answer), *openings, ((), False, marks.close)]
