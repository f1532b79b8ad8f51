"""A training whose sampler has other weights says so at once, with what it saw and what to do."""

from math import nan

import pytest

from elastic_core.training.grpo.step_metrics import AGREEMENT, LEAST_AGREEMENT, WARNING, SamplerAgreement, disagrees


@pytest.mark.parametrize(("correlation", "low"), [(1.0, False), (LEAST_AGREEMENT, False), (0.89, True), (nan, True)])
def test_a_correlation_below_the_threshold_or_no_number_is_too_low(correlation: float, low: bool) -> None:
    assert disagrees(correlation) is low


def test_it_is_said_at_the_first_step_of_several_in_a_row() -> None:
    agreement = SamplerAgreement()
    correlations = [0.999, 0.3, 0.2, 0.999, 0.1]
    said = [agreement.update(step, {AGREEMENT: each}) for step, each in enumerate(correlations, 1)]
    assert [step for step, sentence in enumerate(said, 1) if sentence] == [2, 5]


def test_it_says_what_was_seen_what_it_means_and_what_to_do() -> None:
    sentence = SamplerAgreement().update(7, {AGREEMENT: 0.314})
    assert sentence is not None and "\n" not in sentence
    assert sentence.startswith(f"{WARNING}in step 7 ")
    for words in (
        "correlate by 0.31, expected at least 0.9",
        "other weights",
        "Stop it",
        "delete the checkpoints saved since",
    ):
        assert words in sentence


def test_a_training_that_takes_the_samplers_probabilities_has_none_to_compare() -> None:
    assert SamplerAgreement().update(1, {"critic/score/mean": 0.5}) is None
