"""What `elastic doctor` looks up in processes of their own, which import torch, transformers and vLLM."""

from pathlib import Path

from flows.commands import doctor
from tests.unit.test_chat_template import DROPS
from tests.unit.test_prepared_model import checkpoint


def test_a_model_that_cannot_be_used_is_a_failure_beside_those_that_can(tmp_path: Path) -> None:
    """Through the probe's own process, in which all of them are looked at."""
    (tmp_path / "broken").mkdir()
    uses = [
        doctor.Use("base", "shipped", "cpu", trained=True),
        doctor.Use("sweep.checkpoints.broken", str(tmp_path / "broken"), "cpu"),
    ]
    usable, broken = doctor.findings_of_models(uses)
    assert usable.level == "ok" and usable.message.startswith("base = shipped: <think> is token ")
    assert broken.level == "failure"
    assert broken.message.startswith(f"sweep.checkpoints.broken = {tmp_path}/broken")
    assert "config.json" in broken.message


def test_a_template_that_drops_thoughts_is_a_failure(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "m", template=DROPS)
    refused = doctor.check_template("own", doctor.probe("flows.train:check_chat_template", str(source), "own")[1])
    assert refused.level == "failure"
    assert refused.message.startswith(f"warm_start.sft.chat_template = own: {source}: ")
