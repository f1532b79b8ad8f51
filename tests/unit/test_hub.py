"""Models of the hub, from a cache laid out as the hub's client does."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.models import files as model_files
from elastic_core.models.check import require_usable
from elastic_core.system.fingerprint import model_fingerprint
from flows import presets
from flows.runtime.run import FlowRun
from tests.data_server import serving

COMMIT = "b" * 40


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds owner/model, and no hub."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "hub" / "models--owner--model"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    for file in BASE.iterdir():
        (snapshot / file.name).symlink_to(file)
    return snapshot


def run_of(tmp_path: Path, **overrides: object) -> FlowRun:
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return FlowRun(presets.resolve("smoke", dotted), tmp_path / "runs")


def test_a_directory_is_itself_and_what_the_cache_holds_is_taken_without_asking(cache: Path, tmp_path: Path) -> None:
    assert model_files.locate(str(tmp_path)) == tmp_path
    assert model_files.locate("no/such/place") == Path("no/such/place").resolve()
    assert model_files.locate("owner/model") == cache
    (cache / "model.safetensors").unlink()
    assert model_files.locate("owner/model", model_files.TOKENIZER_FILES) == cache, "a tokenizer alone"
    with pytest.raises(UserError, match=r"holds no weights"):
        require_usable(model_files.locate("owner/model"))


def test_what_is_nowhere_says_how_to_get_it(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^owner/other .*`hf download owner/other`"):
        model_files.locate("owner/other")
    run = run_of(tmp_path, base="nowhere", sweep__models=["x"], sweep__checkpoints={"x": "nowhere"})
    with pytest.raises(UserError, match="OWNER/NAME"):
        run.base  # noqa: B018
    with pytest.raises(UserError, match=r"sweep\.checkpoints\.x"):
        run.checkpoints  # noqa: B018


def lack_a_shard(snapshot: Path) -> None:
    (snapshot / "model.safetensors").rename(snapshot / "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    "lacking",
    [
        lambda snapshot: (snapshot / "model.safetensors").unlink(),
        lambda snapshot: (snapshot / "tokenizer.json").unlink(),
        lambda snapshot: (snapshot / "config.json").unlink(),
        lack_a_shard,
        lambda snapshot: shutil.rmtree(snapshot.parents[1]),
    ],
    ids=["weights", "tokenizer", "configuration", "a shard", "everything"],
)
def test_a_cache_that_has_a_part_of_a_model_is_completed(
    cache: Path, monkeypatch: pytest.MonkeyPatch, lacking: Callable[[Path], object]
) -> None:
    """Other programs leave such a cache; without a listing of the repository the hub's client takes it as complete."""
    lacking(cache)
    files = {file.name: file.read_bytes() for file in BASE.iterdir()}
    with serving() as hub:
        hub.add_hub("owner/model", "c" * 40, files, lfs=False, kind="models")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        address = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
        found = model_files.locate("owner/model")
        assert {file.name: file.read_bytes() for file in found.iterdir()} == files
        requests = len(hub.requests)
        assert model_files.locate("owner/model") == found and len(hub.requests) == requests, "without asking again"


def test_base_and_checkpoints_may_be_models_of_the_hub(cache: Path, tmp_path: Path) -> None:
    run = run_of(
        tmp_path, base="owner/model", sweep__models=["base", "other"], sweep__checkpoints={"other": "owner/model"}
    )
    assert run.base == cache
    assert run.checkpoints == {"base": cache, "other": cache}
    assert run.tokenizer == cache


def test_weights_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path, base="shipped")
    first = run.fingerprint(BASE)
    assert first == model_fingerprint(BASE)

    def read_again(path: Path) -> str:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr("elastic_core.system.fingerprint.sha256_file", read_again)
    assert run.fingerprint(BASE) == first
