"""The trainer: when it validates, where it resumes, that it ends at a number of generated tokens, and steps whose
rollouts leave more or fewer rows."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transfer_queue.metadata import KVBatchMeta
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu

from elastic_core.errors import UserError
from elastic_core.training.grpo import trainer as trainers
from elastic_core.training.grpo.agent_loop import of_row
from elastic_core.training.grpo.parameters import GrpoParameters
from elastic_core.training.grpo.step_metrics import GENERATED
from elastic_core.training.grpo.trainer import ElasticTrainer, rollout_metrics
from elastic_core.training.methods.base import Memory
from elastic_core.training.methods.hapo import Hapo
from elastic_core.training.methods.laser_d import LaserD
from tests.integration.test_training_config import MINIATURE
from tests.training_rollouts import composed


def trainer_of(directory: Path, **changes: Any) -> Any:
    trainer = object.__new__(ElasticTrainer)
    trainer.config = composed(GrpoParameters(**MINIATURE | changes), directory, mlflow=True)
    trainer.replay_buffer = SimpleNamespace(submitted=[], discarded=[])
    return trainer


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Of one step: two rollouts of a problem, one of them with two rows."""
    rows = [
        ("a", of_row({"acc": 1.0}, None, 30)),
        ("a", of_row({}, 1.0, 0)),
        ("a", of_row({"acc": 0.0}, 0.0, 20)),
    ]
    monkeypatch.setattr(PPOTrainerSync, "step", lambda self, metrics, timing: None)
    monkeypatch.setattr(trainers, "_extra_fields", lambda batch: rows)
    return rows


def test_measures_are_means_over_rollouts_and_groups_are_judged_by_the_rows_that_were_scored(rows: Any) -> None:
    expected = {"rollout/acc": 0.5, "rollout/groups": 1.0, "rollout/groups_without_variance": 0.0}
    assert rollout_metrics(rows) == expected


@pytest.mark.parametrize(("validate_every", "validates"), [(20, 1), (0, -1)])
def test_the_step_that_reaches_the_tokens_is_saved_validated_and_the_last(
    rows: Any, tmp_path: Path, validate_every: int, validates: int
) -> None:
    changes = {"max_generated_tokens": 100, "save_every": 10, "validate_every": validate_every}
    trainer = trainer_of(tmp_path, **changes)
    trainer.total_training_steps = 1000
    before = trainer.config.copy()
    seen = []
    for trainer.global_steps in (1, 2):
        metrics: dict[str, Any] = {}
        trainer.step(metrics, {})
        seen.append((metrics[GENERATED], trainer.total_training_steps, trainer.config == before))
    assert seen == [(50.0, 1000, True), (100.0, 2, False)]
    assert trainer.config.trainer.save_freq == 1 and trainer.config.trainer.test_freq == validates


def test_a_resumed_training_goes_on_counting(rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(tmp_path)
    folder = tmp_path / "out" / "global_step_7"
    folder.mkdir(parents=True)
    (folder / "generated_tokens.json").write_text("1000\n")
    monkeypatch.setattr(PPOTrainerSync, "_load_checkpoint", lambda self: setattr(self, "global_steps", 7))
    before = trainer.config.copy()
    trainer._load_checkpoint()
    assert trainer.config == before, "MLflow refuses another value of a setting"
    metrics: dict[str, Any] = {}
    trainer.step(metrics, {})
    assert metrics[GENERATED] == 1050.0


def test_a_resumed_training_remembers_what_the_killed_one_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two problems with two rollouts each: the shortest right lengths, in the checkpoint and sent to the workers."""

    def step_of(trainer: Any, lengths: dict[str, int]) -> list[str]:
        batch = tu.get_tensordict({"uid": [*lengths], "data_source": ["set"] * len(lengths)})
        batch["index"] = torch.arange(len(lengths))
        extra = [
            (uid, of_row({"acc": 1.0}, 1.0, 30) | {"outcome": {"score": score, "length": length, "finished": True}})
            for uid, length in lengths.items()
            for score in (0.0, 1.0)
        ]
        monkeypatch.setattr(trainers, "_extra_fields", lambda batch: extra)
        monkeypatch.setattr(PPOTrainerSync, "_submit_batch_to_rollout", lambda self, batch: len(batch))
        monkeypatch.setattr(PPOTrainerSync, "step", lambda self, *_: self._submit_batch_to_rollout(batch))
        trainer.step({}, {})
        return [batch[place]["reward_memory"] for place in range(len(lengths))]

    def save(trainer: Any) -> None:
        folder = Path(trainer.config.trainer.default_local_dir) / f"global_step_{trainer.global_steps}"
        folder.mkdir(parents=True)
        (folder / "data.pt").touch()

    monkeypatch.setattr(PPOTrainerSync, "_save_checkpoint", save)
    monkeypatch.setattr(PPOTrainerSync, "_load_checkpoint", lambda self: setattr(self, "global_steps", 1))
    trainer = trainer_of(tmp_path, reward="hapo")
    trainer._memory, trainer.global_steps = Memory("hapo", Hapo()), 1
    assert step_of(trainer, {"a": 40, "b": 60}) == ["null", "null"]
    trainer._save_checkpoint()
    trainer.commit()

    resumed = trainer_of(tmp_path, reward="hapo")
    resumed._memory = Memory("hapo", Hapo())
    resumed._load_checkpoint()
    for each in (trainer, resumed):
        assert step_of(each, {"c": 50, "d": 50}) == ["40", "60"]
        assert step_of(each, {"e": 90, "f": 90}) == ["40", "50"]

    other = trainer_of(tmp_path, reward="laser_d", reward_settings={"targets": [9]})
    other._memory = Memory("laser_d", LaserD(targets=(9,)))
    with pytest.raises(UserError, match=r"global_step_1/reward_memory.json has the memory of hapo"):
        other._load_checkpoint()


@pytest.mark.parametrize(
    ("changes", "devices", "num_rows", "padded", "mini_batch"),
    [
        ({"batch_size": 32, "mini_batch_size": 8}, 4, 256, 256, 64),
        ({"batch_size": 32, "mini_batch_size": 8, "algorithm": "anytime"}, 4, 1001, 1008, 252),
        ({"batch_size": 8, "mini_batch_size": 8, "algorithm": "anytime"}, 1, 77, 77, 77),
    ],
)
def test_a_step_has_its_updates_however_many_rows_a_problem_has(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    devices: int,
    num_rows: int,
    padded: int,
    mini_batch: int,
) -> None:
    trainer, seen = trainer_of(tmp_path, **changes), []
    rollout = trainer.config.actor_rollout_ref.rollout
    multiple = trainer._get_required_batch_multiple(devices)
    assert -(-num_rows // multiple) * multiple == padded

    def update(self: Any, batch: Any, metrics: Any) -> None:
        seen.append(self.config.actor_rollout_ref.actor.ppo_mini_batch_size * rollout.n)

    monkeypatch.setattr(PPOTrainer, "_update_actor", update)
    before = trainer.config.copy()
    rows = KVBatchMeta(keys=[str(row) for row in range(padded)], tags=[{}] * padded)
    trainer._update_actor(rows, {})
    assert seen == [mini_batch] and trainer.config == before


def test_rows_keep_the_advantages_that_they_come_with(tmp_path: Path) -> None:
    config = trainer_of(tmp_path, algorithm="anytime").config
    given, mask = torch.tensor([[0.25, 0.25, -0.5], [0.5, 0.0, 0.0]]), torch.tensor([[1, 1, 1], [0, 0, 0]])
    found, _ = get_adv_estimator_fn(config.algorithm.adv_estimator)(given, mask, index=SimpleNamespace(), config=None)
    assert found.tolist() == [[0.25, 0.25, -0.5], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"validate_every": 10}, True),
        ({"validate_every": 10, "validate_first": False}, False),
        ({"validate_every": 0}, False),
    ],
)
def test_the_initial_model_is_validated_where_the_settings_say_so(
    tmp_path: Path, changes: dict[str, Any], first: bool
) -> None:
    assert trainer_of(tmp_path, **changes).config.trainer.val_before_train == first


@pytest.mark.parametrize(("step", "training", "validates"), [(0, False, True), (2, False, False), (2, True, True)])
def test_a_resumed_training_goes_on_with_its_next_step(
    monkeypatch: pytest.MonkeyPatch, step: int, training: bool, validates: bool
) -> None:
    monkeypatch.setattr(PPOTrainerSync, "_validate", lambda self: {"val-core/acc": 0.5})
    trainer = object.__new__(ElasticTrainer)
    trainer.global_steps, trainer._training = step, training
    assert ("val-core/acc" in trainer._validate()) == validates


def test_a_logger_that_is_missing_is_named_before_the_first_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PPOTrainerSync, "on_validate_begin", lambda self: None)
    trainer = trainer_of(tmp_path)
    trainer.logger = SimpleNamespace(logger={"console": None})
    with pytest.raises(RuntimeError, match="could not attach to mlflow"):
        trainer.on_validate_begin()
