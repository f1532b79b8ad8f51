"""The playground leaves it to gradio that a field refuses what it does not offer, whatever a client sends."""

import gradio as gr
import pytest

from flows.commands.playground.page import _slider


@pytest.mark.parametrize("tokens", [0, 17, -1, 2**40])
def test_a_slider_refuses_what_is_beyond_its_ends(tokens: int) -> None:
    """Otherwise a solution could have no token."""
    solution = _slider("s", 1, 8, 16)
    assert (solution.preprocess(1), solution.preprocess(16)) == (1, 16)
    with pytest.raises(gr.Error):
        solution.preprocess(tokens)


def test_a_dropdown_refuses_a_name_that_it_lacks() -> None:
    strategies = gr.Dropdown([("separate budgets", "separate")], multiselect=True)
    assert strategies.preprocess(["separate"]) == ["separate"]
    with pytest.raises(gr.Error):
        strategies.preprocess(["separate", "x" * 99])
