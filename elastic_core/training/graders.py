"""Whether rollouts can be graded where they run: before anything is loaded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_core.errors import UserError
from elastic_core.rewards.code.sandbox import sandbox_problem

if TYPE_CHECKING:
    from omegaconf import DictConfig


def require_graders(config: "DictConfig") -> None:
    """Nothing, when every node that verl may place rollout workers on has what the data's graders need. Ray must be
    initialised.

    Raises:
        UserError: naming a node that cannot run programs in a sandbox, and why.
    """
    if "code" in grader_kinds([*config.data.train_files, *config.data.val_files]):
        refuse(sandbox_problems())


def grader_kinds(files: Sequence[Path | str]) -> set[str]:
    """Graders that the rows of verl's files ask for."""
    import polars as pl

    kind = pl.col("extra_info").struct.field("grader")
    return {name for file in files for name in pl.scan_parquet(file).select(kind.unique()).collect().to_series()}


def sandbox_problems() -> dict[str, str | None]:
    """Why programs cannot be run in a sandbox, or None, by node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # As verl chooses them for its rollout workers.
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    look = ray.remote(num_cpus=0)(sandbox_problem)
    looks = {
        node["NodeManagerAddress"]: look.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in nodes
    }
    return dict(zip(looks, ray.get(list(looks.values()), timeout=300), strict=True))


def refuse(problems: Mapping[str, str | None]) -> None:
    """Raises:
    UserError: when there is a problem on some node.
    """
    found = {node: problem for node, problem in problems.items() if problem}
    if found:
        node, problem = next(iter(found.items()))
        raise UserError(f"{len(found)} of {len(problems)} nodes cannot grade programs; {node}: {problem}")
