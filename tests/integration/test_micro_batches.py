"""A padded forward pass holds no more tokens than it may, and all ranks do as many of them."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from verl.utils import tensordict_utils as tu

from elastic_core.training import micro_batches
from elastic_core.training.micro_batches import MEAN_OF_EACH, cut, rearrange_micro_batches, split_to

LIMIT = 64
lengths_of_rows = st.lists(st.integers(1, LIMIT), min_size=1, max_size=40)


def padded_size(rows: list[int], lengths: list[int]) -> int:
    return len(rows) * max(lengths[row] for row in rows)


@given(lengths_of_rows)
def test_no_padded_micro_batch_exceeds_the_limit_and_every_row_is_in_one(lengths: list[int]) -> None:
    batches = cut(lengths, LIMIT)
    assert all(padded_size(rows, lengths) <= LIMIT for rows in batches)
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))


@given(lengths_of_rows, st.data())
def test_a_rank_with_fewer_micro_batches_splits_its_largest(lengths: list[int], data: Any) -> None:
    count = data.draw(st.integers(1, len(lengths)))
    batches = cut(lengths, LIMIT)
    more = split_to(batches, lengths, count)
    assert len(more) == max(count, len(batches))
    assert all(padded_size(rows, lengths) <= LIMIT for rows in more)
    assert sorted(row for rows in more for row in rows) == list(range(len(lengths)))


def test_more_micro_batches_than_rows_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 rows cannot make 3 micro-batches"):
        split_to([[0, 1]], [3, 3], 3)


def mini_batch(lengths: list[int], *, use_remove_padding: bool, means: bool = False) -> Any:
    rows = [torch.full((length,), number) for number, length in enumerate(lengths)]
    ids = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    # All tokens but a prompt of one are trained on.
    mask = torch.nested.as_nested_tensor([torch.arange(length).clamp(max=1) for length in lengths], layout=torch.jagged)
    return tu.get_tensordict(
        {"input_ids": ids, "loss_mask": mask}, {"use_remove_padding": use_remove_padding, MEAN_OF_EACH: means}
    )


MIXED = [60, 4, 4, 4, 30, 30, 4, 4, 4, 4]


def test_verl_s_own_cut_is_exceeded_by_padding() -> None:
    """Otherwise ours is not needed any more."""
    _, batches = micro_batches._verls_own(mini_batch(MIXED, use_remove_padding=False), LIMIT)
    assert max(padded_size(rows, MIXED) for rows in batches) > 2 * LIMIT


def test_a_padded_mini_batch_is_cut_by_what_a_forward_pass_holds() -> None:
    parts, batches = rearrange_micro_batches(mini_batch(MIXED, use_remove_padding=False), LIMIT)
    assert [[MIXED[row] for row in rows] for rows in batches] == [[60], [30, 30], [4] * 7]
    for part, rows in zip(parts, batches, strict=True):
        assert [int(ids[0]) for ids in part["input_ids"].unbind()] == rows


def test_without_padding_verl_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(micro_batches, "_verls_own", lambda *given, **named: asked.append((*given[1:], named)))
    rearrange_micro_batches(mini_batch(MIXED, use_remove_padding=True), LIMIT, min_num_micro_batch=2)
    assert asked == [(LIMIT, {"dp_group": None, "same_micro_num_in_dp": True, "min_num_micro_batch": 2})]


def test_all_ranks_take_the_count_of_the_one_with_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batches, "_most", lambda count, group: count + group)
    parts, batches = rearrange_micro_batches(mini_batch(MIXED, use_remove_padding=False), LIMIT, dp_group=2)
    assert len(parts) == len(batches) == 5


def test_a_sequence_that_fits_nowhere_is_an_error() -> None:
    with pytest.raises(ValueError, match="a sequence of 65 tokens; a forward pass holds 64"):
        rearrange_micro_batches(mini_batch([65, 1], use_remove_padding=False), LIMIT)


@pytest.mark.parametrize("use_remove_padding", [True, False])
@given(lengths=st.lists(st.integers(2, LIMIT), min_size=2, max_size=12))
def test_as_published_each_of_as_many_micro_batches_as_are_needed_weighs_the_same(
    lengths: list[int], use_remove_padding: bool
) -> None:
    batch = mini_batch(lengths, use_remove_padding=use_remove_padding, means=True)
    parts, batches = rearrange_micro_batches(batch, LIMIT)
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    assert use_remove_padding or all(padded_size(rows, lengths) <= LIMIT for rows in batches)
    weights = [int(part["loss_mask"].values().sum()) / part["batch_num_tokens"] for part in parts]
    assert sum(weights) == pytest.approx(-(-sum(lengths) // LIMIT))
    assert all(part["dp_size"] == 1 for part in parts), "verl would make up for a mean over all ranks"


def test_as_published_a_token_counts_by_its_micro_batch() -> None:
    parts, batches = rearrange_micro_batches(mini_batch([60, 4, 30, 4, 30], use_remove_padding=True, means=True), LIMIT)
    found = {tuple(rows): part["batch_num_tokens"] for rows, part in zip(batches, parts, strict=True)}
    # 64 tokens each, of which the first of a row is its prompt.
    assert found == {(0, 3): 62, (1, 2, 4): 61}
