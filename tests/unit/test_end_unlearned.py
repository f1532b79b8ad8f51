"""A training whose model unlearns to end its solutions says so, with what it saw and what to do."""

from elastic_core.training.grpo.step_metrics import WARNING, EndUnlearned


def metrics(cut: float, answered: float) -> dict[str, float]:
    return {"rollout/solution_cut": cut, "rollout/answered": answered}


def test_it_is_said_once_when_solutions_are_cut_that_hold_an_answer() -> None:
    """Numbers of SmolLM2-135M under 96+32: at first cut solutions have no answer, then all end, then none does."""
    watcher = EndUnlearned()
    seen = [metrics(0.5, 0.5), metrics(0.03, 0.97), metrics(0.34, 0.97), metrics(0.72, 0.97), metrics(1.0, 1.0)]
    said = [watcher.update(step, each) for step, each in enumerate(seen, 1)]
    assert [step for step, sentence in enumerate(said, 1) if sentence] == [4]
    sentence = said[3]
    assert sentence is not None and sentence.startswith(f"{WARNING}in step 4 the budget cut 72% of the solutions")
    assert "97% of the rollouts hold an answer" in sentence and "train.reward = finished" in sentence
