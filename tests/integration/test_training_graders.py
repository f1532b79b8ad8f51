"""A training whose rollouts could not be graded on some node ends before anything is loaded, with the reason."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from omegaconf import OmegaConf

from elastic_core.errors import UserError
from elastic_core.system.ray_cluster import RayCluster
from elastic_core.training import requirements
from tests.processes import python

ON_A_CLUSTER = """
import sys
import ray
from elastic_core.training.requirements import sandbox_problems
ray.init(address=sys.argv[1], log_to_driver=False)
print(list(sandbox_problems().values()))
"""


@pytest.fixture
def config(tmp_path: Path) -> Any:
    files = {}
    for name, grader in (("math", "math"), ("code", "code")):
        files[name] = str(tmp_path / f"{name}.parquet")
        pl.DataFrame({"extra_info": [{"grader": grader, "split": "train"}] * 2}).write_parquet(files[name])
    return lambda *names: OmegaConf.create(
        {"data": {"train_files": [files[names[0]]], "val_files": [files[names[-1]]]}}
    )


def test_the_rows_say_which_graders_they_need(config: Any) -> None:
    assert requirements.grader_kinds([*config("math", "code").data.train_files]) == {"math"}
    assert requirements.grader_kinds([*config("code").data.val_files]) == {"code"}


def test_a_node_without_a_sandbox_is_named_where_programs_are_graded(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "sandbox_problems", lambda: {"10.0.0.1": None, "10.0.0.2": "bwrap is missing"})
    requirements.require_graders(config("math"))
    for names in (("code",), ("math", "code")):
        with pytest.raises(UserError, match=r"^1 of 2 nodes cannot grade programs; 10\.0\.0\.2: bwrap is missing$"):
            requirements.require_graders(config(*names))
    monkeypatch.setattr(requirements, "sandbox_problems", lambda: {"10.0.0.1": None})
    requirements.require_graders(config("code"))


def test_every_node_of_a_cluster_looks_for_itself(cluster: RayCluster) -> None:
    assert python(ON_A_CLUSTER, cluster.gcs).stdout.splitlines()[-1:] == ["[None]"]
