"""Temporary files lie where no other user of the machine gets to them."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from elastic_core.errors import UserError
from elastic_core.system.private_stores import private_directory, use_private_directory
from flows.commands.cli import cli


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A directory for temporary files that is everybody's, as /tmp."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    yield directory
    for link in Path(f"/tmp/elastic-{os.getuid()}").glob("?????"):
        if link.is_symlink() and link.readlink().is_relative_to(tmp_path):
            link.unlink()


def test_it_is_one_for_all_processes_of_a_user_who_alone_may_enter_it(shared: Path) -> None:
    directory = private_directory()
    assert directory.parent == shared and private_directory() == directory
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700 and directory.stat().st_uid == os.getuid()
    shared.chmod(0o700)
    assert private_directory() == shared, "where temporary files are private already it is that"


TAKEN: dict[str, Callable[[Path], object]] = {
    "another user's": lambda path: (path.mkdir(mode=0o700), os.chown(path, 65534, 65534)),
    "open to the group": lambda path: (path.mkdir(), path.chmod(0o770)),
    "a link": lambda path: path.symlink_to(path.parent.parent),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a file": lambda path: path.touch(),
}


@pytest.mark.parametrize("what", TAKEN)
def test_what_another_user_has_put_there_is_not_used_and_stops_nothing(what: str, shared: Path) -> None:
    if what == "another user's" and os.getuid() != 0:
        pytest.skip("only root can make what is another user's")
    taken = shared / f"elastic-{os.getuid()}"
    TAKEN[what](taken)
    with pytest.raises(UserError, match=rf"{taken} .*TMPDIR"):
        private_directory()
    use_private_directory(new_if_taken=True)
    chosen = Path(tempfile.gettempdir()).resolve()
    assert chosen.parent == shared and chosen != taken and stat.S_IMODE(chosen.stat().st_mode) == 0o700
    assert private_directory().resolve() == chosen, "which its processes find by TMPDIR"


def test_an_environment_in_a_path_with_a_space_is_entered_by_a_link(tmp_path: Path) -> None:
    """Ray and LD_PRELOAD take such a path for two."""
    environment = tmp_path / "with space"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", environment], check=True)
    own = f"import sys; sys.path[:0] = {sys.path!r}; "
    show = "from elastic_core.system.processes import PYTHON; print(PYTHON[0], sys.executable, sep='\\n')"
    done = subprocess.run(
        [environment / "bin" / "python", "-c", own + show], capture_output=True, text=True, check=True
    )
    chosen, executable = map(Path, done.stdout.splitlines())
    assert executable == environment / "bin" / "python" and " " not in str(chosen)
    assert chosen.parents[1].readlink() == environment and chosen.samefile(executable)
    prefix = subprocess.check_output([chosen, "-c", "import sys; print(sys.prefix)"], text=True)
    assert prefix.strip() == str(chosen.parents[1]), "what it imports has no space in its path either"


def test_commands_use_it_and_torch_runs_compiled_kernels_from_there(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    def show() -> None:
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        click.echo(f"{tempfile.gettempdir()} {cache_dir()}")

    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setitem(cli.commands, "show", show)
    done = CliRunner().invoke(cli, ["show"])
    directory, kernels = done.output.split()
    assert Path(directory) == Path(kernels).parent
    assert Path(directory).resolve() == shared / f"elastic-{os.getuid()}"


RAYS = "r12345678/t/session_2026-11-28_00-21-18_123456_1234567/sockets/plasma_store.1"
"""Of a socket: the longest name that Ray gives one in our cluster, where process ids have 7 digits."""


def test_sockets_fit_into_a_temporary_directory_with_a_long_name(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's is such."""
    long = shared / ("job" * 20)
    long.mkdir(mode=0o700)
    monkeypatch.setattr("tempfile.tempdir", str(long))
    use_private_directory()
    chosen = Path(tempfile.gettempdir())
    assert chosen.resolve() == private_directory().resolve() == long, "it is the same directory"
    (chosen / RAYS).parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(chosen / RAYS))
    assert (long / RAYS).exists()
    use_private_directory()
    assert Path(tempfile.gettempdir()) == chosen == Path(os.environ["TMPDIR"]), "for all processes"


def test_a_link_that_others_may_have_made_is_not_followed(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = shared.parent / "target"
    target.mkdir(mode=0o700)
    (shared / "link").symlink_to(target)
    monkeypatch.setattr("tempfile.tempdir", str(shared / "link"))
    assert private_directory() == shared / "link" / f"elastic-{os.getuid()}"
