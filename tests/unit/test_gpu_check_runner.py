"""Steps of `make gpu` go on where they stopped, and say what they did."""

from collections.abc import Callable
from pathlib import Path

import pytest

from elastic_core.errors import UserError
from tests.gpu.steps import Step, run_steps


class Steps:
    """Two steps and one that needs the first; each counts its runs, and does what `outcome` says."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.outcome: dict[str, Exception | str] = {"one": "saw one", "two": "saw two", "after-one": "saw more"}
        self.model = "a twin"
        self.skip = ""

    def __call__(self) -> list[Step]:
        return [
            Step("one", "the first", self._run("one"), model=self.model),
            Step("two", "the second", self._run("two"), skip=self.skip),
            Step("after-one", "needs the first", self._run("after-one"), ("one",), self.model),
        ]

    def _run(self, name: str) -> Callable[[], str]:
        def run() -> str:
            self.ran.append(name)
            outcome = self.outcome[name]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return run


@pytest.fixture
def steps() -> Steps:
    return Steps()


def verdicts(steps: Steps, directory: Path, where: str = "1 × GPU", commit: str = "abc") -> dict[str, str]:
    records = run_steps(steps(), directory, where=where, commit=commit, say=lambda line: None)
    return {record.name: record.verdict for record in records}


def test_every_step_is_run_in_order_and_keeps_what_it_saw(steps: Steps, tmp_path: Path) -> None:
    records = list(run_steps(steps(), tmp_path, where="1 × GPU", commit="abc", say=lambda line: None))
    assert steps.ran == ["one", "two", "after-one"]
    assert [record.told for record in records] == ["saw one", "saw two", "saw more"]
    assert [record.where for record in records] == ["1 × GPU, a twin", "1 × GPU", "1 × GPU, a twin"]
    assert all(record.verdict == "passed" and record.commit == "abc" for record in records)


def test_what_passed_is_not_repeated(steps: Steps, tmp_path: Path) -> None:
    assert verdicts(steps, tmp_path) == verdicts(steps, tmp_path)
    assert steps.ran == ["one", "two", "after-one"]


def test_a_crash_loses_the_step_that_it_happened_in(steps: Steps, tmp_path: Path) -> None:
    steps.outcome["two"] = KeyError("a mistake of ours")
    with pytest.raises(KeyError):
        verdicts(steps, tmp_path)
    steps.outcome["two"] = "saw two"
    assert set(verdicts(steps, tmp_path).values()) == {"passed"}
    assert steps.ran == ["one", "two", "two", "after-one"]


def test_a_step_that_fails_stops_only_those_that_need_it_and_is_tried_again(steps: Steps, tmp_path: Path) -> None:
    steps.outcome["one"] = UserError("it broke")
    assert verdicts(steps, tmp_path) == {"one": "failed", "two": "passed", "after-one": "skipped"}
    steps.outcome["one"] = "saw one"
    assert set(verdicts(steps, tmp_path).values()) == {"passed"}
    assert steps.ran == ["one", "two", "one", "after-one"]


def test_a_step_that_cannot_be_run_here_says_why(steps: Steps, tmp_path: Path) -> None:
    steps.skip = "no GPU here"
    records = list(run_steps(steps(), tmp_path, where="a CPU", commit="abc", say=lambda line: None))
    assert (records[1].verdict, records[1].told) == ("skipped", "no GPU here") and "two" not in steps.ran


def test_what_passed_on_another_machine_is_run_here(steps: Steps, tmp_path: Path) -> None:
    verdicts(steps, tmp_path, "a CPU")
    verdicts(steps, tmp_path, "1 × GPU")
    assert steps.ran == ["one", "two", "after-one"] * 2


def test_what_passed_with_other_code_is_run_again(steps: Steps, tmp_path: Path) -> None:
    verdicts(steps, tmp_path, commit="abc")
    verdicts(steps, tmp_path, commit="def")
    assert steps.ran == ["one", "two", "after-one"] * 2


def test_with_another_model_what_loads_it_is_run_again(steps: Steps, tmp_path: Path) -> None:
    verdicts(steps, tmp_path)
    steps.model = "the model"
    verdicts(steps, tmp_path)
    assert steps.ran == ["one", "two", "after-one", "one", "after-one"]
