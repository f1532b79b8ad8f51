"""Micro-batches that are padded: verl's dynamic batches, cut by the size of a forward pass.

verl 0.9.1 cuts a mini-batch by the sum of its tokens and mixes long and short rows; padded, the forward pass holds rows
× longest tokens, several times the limit. Here rows of similar length share a micro-batch, and its padded size stays
within the limit. Losses are sums over the mini-batch, so no gradient depends on the cut (but `as_published`).
"""

from collections.abc import Sequence
from typing import Any

from verl.utils import seqlen_balancing
from verl.utils import tensordict_utils as tu

MEAN_OF_EACH = "mean_of_each_micro_batch"
"""Said in a batch whose loss is the published script's: means over each micro-batch's tokens, added up."""

_verls_own = seqlen_balancing.rearrange_micro_batches


def cut(lengths: Sequence[int], limit: int, rows: Sequence[int] | None = None) -> list[list[int]]:
    """Rows of each micro-batch, the longest first, from tokens by row: as few micro-batches of at most `limit` tokens,
    padding included, as that order allows; of all rows, or of `rows`. No row is above the limit."""
    batches: list[list[int]] = []
    for row in sorted(range(len(lengths)) if rows is None else rows, key=lambda row: -lengths[row]):
        # The first row of a micro-batch is its longest.
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= limit:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def split_to(batches: list[list[int]], lengths: Sequence[int], count: int) -> list[list[int]]:
    """The same rows in `count` micro-batches: the largest are halved. Raises ValueError when there are fewer rows."""
    batches = list(batches)
    while len(batches) < count:
        number = max(range(len(batches)), key=lambda i: (len(batches[i]) > 1, len(batches[i]) * lengths[batches[i][0]]))
        whole = batches[number]
        if len(whole) == 1:
            raise ValueError(f"{len(batches)} rows cannot make {count} micro-batches")
        batches[number : number + 1] = [whole[: len(whole) // 2], whole[len(whole) // 2 :]]
    return batches


def rearrange_micro_batches(
    batch: Any, max_token_len: int, dp_group: Any = None, same_micro_num_in_dp: bool = True, **more: Any
) -> tuple[list[Any], list[list[int]]]:
    """Micro-batches of at most `max_token_len` tokens, padding included, and the rows of each; verl's where padding
    is removed. Raises ValueError when a sequence is longer than a micro-batch may be.

    With MEAN_OF_EACH the loss is a sum of means, each over the tokens that are trained on in one micro-batch of the
    published script: as many as all tokens need, on the rank that needs most, with about equally many each. Where they
    are padded they are cut further for the forward pass."""
    padded = not tu.get_non_tensor_data(batch, key="use_remove_padding", default=True)
    of_means = tu.get_non_tensor_data(batch, key=MEAN_OF_EACH, default=False)
    if not padded and not of_means:
        return _verls_own(  # type: ignore[no-any-return]
            batch, max_token_len, dp_group=dp_group, same_micro_num_in_dp=same_micro_num_in_dp, **more
        )
    lengths, limit = batch["input_ids"].offsets().diff().tolist(), int(max_token_len)
    if max(lengths) > limit:
        raise ValueError(f"a sequence of {max(lengths)} tokens; a forward pass holds {limit}")
    means = [list(range(len(lengths)))]
    if of_means:
        count = _most(-(-sum(lengths) // limit), dp_group)
        means = seqlen_balancing.get_seqlen_balanced_partitions(lengths, count, equal_size=False)
    batches = [part for rows in means for part in cut(lengths, limit, rows)] if padded else means
    if padded and same_micro_num_in_dp:
        batches = split_to(batches, lengths, _most(len(batches), dp_group))
    parts = [tu.index_select_tensor_dict(batch, rows) for rows in batches]
    if of_means:
        trained = [int(mask.sum()) for mask in batch["loss_mask"].unbind()]
        of_row = {row: sum(trained[each] for each in rows) for rows in means for row in rows}
        for part, rows in zip(parts, batches, strict=True):
            tu.assign_non_tensor(part, batch_num_tokens=of_row[rows[0]], dp_size=1)
    return parts, batches


def _most(count: int, group: Any) -> int:
    """The largest count of all ranks: FSDP gathers parameters together, so all need as many forward passes."""
    import torch
    from torch import distributed
    from verl.utils.device import get_device_name

    if group is None or not distributed.is_initialized():
        return count
    counts = torch.tensor([count], device=get_device_name())
    distributed.all_reduce(counts, op=distributed.ReduceOp.MAX, group=group)
    return int(counts.item())


def install() -> None:
    """Before verl's engines are imported, which take the function by name."""
    seqlen_balancing.rearrange_micro_batches = rearrange_micro_batches
