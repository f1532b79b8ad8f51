"""A reward, advantages, a mapping, a grader and a strategy of the user's own, by import path: the examples, and bad
paths."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from click import BadParameter
from click.testing import CliRunner
from pydantic import ValidationError

from elastic_core.budget import Budget
from elastic_core.data import user_dataset
from elastic_core.data.registry import all_datasets
from elastic_core.errors import UserError
from elastic_core.rewards import Grade, GradeStatus, grade, read_answer
from elastic_core.rewards.truth import GRADERS
from elastic_core.strategies import STRATEGIES, Purpose, Sampling, Strategy
from elastic_core.sweep.grid import request_cells
from elastic_core.sweep.sound import broken_rules
from elastic_core.system.imported import DECLARED, DIRECTORY, code_of, declare, imported
from elastic_core.training.grpo.config import overrides
from elastic_core.training.grpo.parameters import GrpoParameters
from elastic_core.training.grpo.reward import Rollout, reward_of
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory
from flows import presets
from flows.commands.cli import cli
from flows.commands.options import StrategyType
from flows.runtime.settings import Settings
from tests.documents import REPOSITORY
from tests.simulated import MARKERS
from tests.unit.test_report_summary import make_rows

JOB: dict[str, Any] = {"model": "m", "train_files": [], "validation_files": [], "out_dir": Path("o"), "run_name": "r"}


@pytest.fixture(autouse=True)
def in_example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The directory of the example that the test's name has, as a command's: its modules are forgotten afterwards."""
    examples = {"train": "reward", "strateg": "strategy"}
    example = next((found for word, found in examples.items() if word in request.node.name), "dataset")
    directory = REPOSITORY / "examples" / example
    monkeypatch.chdir(directory)
    monkeypatch.setenv(DIRECTORY, str(directory))
    monkeypatch.setenv(DECLARED, "")
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    yield directory
    sys.modules.pop("mine", None)
    GRADERS.pop("mine:same_city", None)


def test_train_takes_a_reward_and_advantages_by_import_path() -> None:
    parameters = GrpoParameters(reward="mine:brief", algorithm="mine:centred")
    assert parameters.model_dump()["reward"] == "mine:brief"
    composed = overrides(parameters, **JOB)
    assert (composed["+elastic.reward"], composed["algorithm.adv_estimator"]) == ("mine:brief", "mine:centred")
    assert composed["actor_rollout_ref.rollout.n"] == parameters.group_size and composed["+elastic.cuts"] is None
    trajectory = Trajectory((7,), (9,) * 100, (False,) * 100, 0, ThinkFinish.CLOSED, SolutionFinish.STOP)
    assert reward_of("mine:brief")(Rollout(trajectory, Grade(1.0, GradeStatus.CORRECT, None))) == 0.5
    rewards, mask = torch.tensor([[0.0, 3.0], [0.0, 1.0], [0.0, 1.0]]), torch.ones(3, 2)
    index = pl.Series(["a", "a", "a"]).to_numpy()
    assert set(os.environ[DECLARED].split(",")) == {"mine:brief", "mine:centred"}  # As workers of a training get it.
    advantages, _ = imported("mine:centred")(token_level_rewards=rewards, response_mask=mask, index=index)
    assert advantages.tolist() == [[2.0, 2.0], [0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward": "brief"}, 'no reward "brief"; expected one of correctness, finished, l1_exact, l1_max'),
        ({"algorithm": "ppo"}, 'no algorithm "ppo"; expected one of grpo, anytime, reo, or module:function'),
        ({"reward": "mine:none"}, '"mine:none": AttributeError: module .* has no attribute'),
        ({"algorithm": "none:f"}, "\"none:f\": ModuleNotFoundError: No module named 'none'; expected module:function"),
        ({"reward": "mine:__doc__"}, '"mine:__doc__" is a str; expected a function'),
        ({"algorithm": "mine:centred", "answers": 2}, "answers has no effect: algorithm = mine:centred"),
        ({"algorithm": "mine:centred", "norm_adv_by_std": "none"}, "norm_adv_by_std has no effect"),
    ],
)
def test_train_refuses_what_it_cannot_import(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GrpoParameters(**settings)


def test_a_data_set_has_a_mapping_and_a_grader_by_import_path(tmp_path: Path) -> None:
    readme = (REPOSITORY / "examples/dataset/README.md").read_text()
    (line,) = re.findall(r"    elastic (data add .+)", readme)
    added = CliRunner().invoke(cli, line.split(), catch_exceptions=False)
    assert "5 rows, graded by mine:same_city" in added.output and "What is the capital of France?" in added.output
    recorded = user_dataset.load(tmp_path / "runs/datasets/capitals.json")
    assert (recorded.grader, recorded.description[:11]) == ("mine:same_city", "added from ")
    assert recorded.description.endswith("examples/dataset/capitals.csv")
    right = "Europe.</think>It is \\boxed{PARIS, of course}."
    assert grade("mine:same_city", right, "Paris") == (1.0, GradeStatus.CORRECT, "PARIS, of course")
    assert grade("mine:same_city", "</think>Paris", "Paris").status == GradeStatus.NO_ANSWER
    assert read_answer("mine:same_city", right) == "PARIS, of course"


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "parquet"])
def test_a_mapping_sees_the_rows_of_every_format(ending: str, tmp_path: Path) -> None:
    file, rows = tmp_path / f"f.{ending}", pl.read_csv("capitals.csv").select("country", "capital", "region")
    writers = {"csv": rows.write_csv, "jsonl": rows.write_ndjson, "json": rows.write_json}
    writers.get(ending, rows.write_parquet)(file)
    user_dataset.mapped(file, "mine:capitals", made := tmp_path / "made.jsonl")
    assert pl.read_ndjson(made)["right"].to_list() == ["Paris", "Tokyo", "Lima", "Nairobi", "Oslo"]


def test_a_row_that_a_mapping_fails_on_is_named(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("country,town\nFrance,Paris\n")
    with pytest.raises(UserError, match=r"f\.csv: row 1: mine:capitals: KeyError: 'capital'"):
        user_dataset.mapped(tmp_path / "f.csv", "mine:capitals", tmp_path / "made.jsonl")


def test_a_grader_that_only_rows_name_is_not_imported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match='"mine:same_city" stands in rows alone, and is not imported; exp'):
        grade("mine:same_city", "</think>\\boxed{Paris}", "Paris")
    assert "mine" not in sys.modules
    record = user_dataset.UserDataset("capitals", "f.csv", "0", "ask", "right", grader="mine:same_city")
    (tmp_path / "capitals.json").write_text(json.dumps(asdict(record)))
    all_datasets(tmp_path)
    assert grade("mine:same_city", "</think>\\boxed{Paris}", "Paris").score == 1


def test_only_what_a_module_registers_as_a_grader_is_called() -> None:
    with pytest.raises(ValueError, match=r'no grader "os:system"; expected one of choice, code, math, or module:'):
        grade(declare("os:system"), "</think>\\boxed{touch x}", "touch x")
    with pytest.raises(UserError, match="No module named 'nowhere'"):
        grade(declare("nowhere:f"), "</think>1", "1")


def settings_with(strategies: list[str]) -> Settings:
    return presets.resolve("smoke", {"sweep.strategies": strategies})


def test_a_strategy_by_import_path_has_its_rules_and_its_code_in_the_key(tmp_path: Path) -> None:
    settings = settings_with(["separate", "mine:no_thinking"])
    cells = request_cells(settings.sweep.model_dump() | {"budgets": ["8+8"]}, ["b"])["base"]
    assert {cell.strategy for cell in cells} == {"separate", "mine:no_thinking"}
    assert os.environ[DECLARED] == "mine:no_thinking"
    rows = make_rows(strategies=("mine:no_thinking",))
    assert "(nothing is thought)" in broken_rules(rows)["nothing is thought"]
    before = code_of("mine:no_thinking")
    copy = tmp_path / "modules"
    shutil.copytree(".", copy)
    os.environ[DIRECTORY] = str(copy)
    assert code_of("mine:no_thinking") == before
    with (copy / "mine.py").open("a") as file:
        file.write("import helper\n")
    (copy / "helper.py").write_text("")
    changed = code_of("mine:no_thinking")
    (copy / "helper.py").write_text("x = 1\n")
    assert len({before, changed, code_of("mine:no_thinking")}) == 3


def test_a_strategy_that_only_a_table_names_is_read_and_not_imported() -> None:
    assert not broken_rules(make_rows(strategies=("mine:no_thinking",))) and "mine" not in sys.modules
    with pytest.raises(UserError, match="stands in rows alone"):
        STRATEGIES["mine:no_thinking"].decode((), Budget(8, 8), MARKERS, Sampling())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine:nothing", '"mine:nothing": AttributeError: .* expected module:Strategy, installed or in'),
        ("mine:decode", '"mine:decode" is a function; expected a Strategy'),
        ("mine", 'no strategy "mine".*or module:name'),
        ("mine:served", '"mine:served" has the purpose "served" of another strategy; leave it out'),
    ],
)
def test_a_strategy_that_cannot_be_run_is_refused(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = imported(declare("mine:no_thinking"), Strategy)
    monkeypatch.setattr(sys.modules["mine"], "served", replace(given, purpose=Purpose.SERVED), raising=False)
    with pytest.raises(UserError, match=f"sweep.strategies: {message}"):
        settings_with(["separate", name])
    with pytest.raises(BadParameter):
        StrategyType().convert(name, None, None)
