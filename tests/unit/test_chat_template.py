"""The chat template of a fine-tuning is held against the model before anything starts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from elastic_core.data.problems import prompt_lengths
from elastic_core.errors import UserError
from elastic_core.models.check import require_usable
from elastic_core.models.prepare import prepare
from elastic_core.models.special_tokens import chat_prompt, chat_text, load_markers
from elastic_core.reasonflux.chat_templates import own_template
from elastic_core.reasonflux.guide import Guide
from flows import presets
from flows.commands import doctor
from flows.pipeline import pipeline
from flows.runtime.settings import Settings
from flows.train import composed, require_chat_template, warm_start
from tests.unit.test_prepared_model import CHATML, checkpoint

DROPS = CHATML.replace("message['content'] +", "message['content'].split('</think>')[-1] +")
"""As official templates of reasoning models do."""


def settings(initial: Path | str, **changes: str) -> Settings:
    return presets.resolve("smollm2-135m", {"warm_start.initial": str(initial)} | changes)


def test_a_prepared_model_is_fine_tuned_on_with_its_own_template(tmp_path: Path) -> None:
    prepare(str(checkpoint(tmp_path / "m")), tmp_path / "out")
    require_chat_template(settings(tmp_path / "out"))
    assert doctor.check_template("own", "").level == "ok"


@pytest.mark.parametrize("flow", [pipeline, warm_start])
def test_a_template_that_drops_thoughts_is_refused_before_data_is_built(
    flow: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr("flows.runtime.environment.prepare", lambda: None)  # Its variables would outlive the test.
    source = checkpoint(tmp_path / "m", template=DROPS)
    with pytest.raises(UserError, match="with its thought"):
        flow.fn("smollm2-135m", {"warm_start.initial": str(source)})  # type: ignore[attr-defined]
    assert [file.name for file in (tmp_path / "runs").glob("smollm2-135m/*")] == ["settings.toml"]


def test_a_dry_run_refuses_it_too(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "m", template=DROPS)
    with pytest.raises(UserError, match="with its thought"):
        composed(settings(source), fine_tuning=True)
    with pytest.raises(UserError, match='the chat template "qwen"'):
        composed(settings(source, **{"warm_start.sft.chat_template": "qwen"}), fine_tuning=True)


def test_a_model_that_is_not_there_is_one_sentence_and_one_of_the_hub_is_not_fetched_to_look(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"warm_start\.initial = .*none: .*elastic model prepare"):
        require_chat_template(settings(tmp_path / "none"))
    require_chat_template(settings("owner/model"), fetch=False)
    require_chat_template(
        presets.resolve("smollm2-135m", {"base": str(tmp_path)})
    )  # Who does not fine-tune needs none.
    require_chat_template(presets.resolve("smoke"))


BROKEN = {
    "raises": ("{{ raise_exception('tools are needed') }}", "TemplateError: tools are needed"),
    "does not end": ("\n{% if messages", r"TemplateSyntaxError: .* \(line 2\)"),
    "adds text to a list": ("{{ messages + 'a' }}", "TypeError: "),
    "asks for what is not there": ("{{ messages[0].tool.name }}", "UndefinedError: "),
    "divides by zero": ("{{ 1 / 0 }}", "ZeroDivisionError: "),
    "calls itself": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError: "),
}


@pytest.mark.parametrize(("template", "said"), BROKEN.values(), ids=BROKEN)
def test_a_template_that_fails_is_one_sentence_wherever_it_is_rendered(
    template: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = checkpoint(tmp_path / "m", template=template)
    tokenizer = AutoTokenizer.from_pretrained(source)
    sentence = f"^{source}: its chat template cannot be used: {said}"
    guide = Guide(tokenizer, *[None] * 4)  # type: ignore[arg-type]
    renders: list[Callable[[], object]] = [
        lambda: load_markers(source, thinks=False),
        lambda: chat_prompt(tokenizer, "1+1=?"),
        lambda: chat_text(tokenizer, "1+1=?"),
        lambda: prompt_lengths(tokenizer, ["1+1=?"]),
        lambda: own_template(tokenizer),
        lambda: guide._glue,
        lambda: prepare(str(source), tmp_path / "out"),
        lambda: require_usable(source, device="cpu", thinks=False),
        lambda: require_chat_template(settings(source)),
    ]
    for render in renders:
        with pytest.raises(UserError, match=sentence):
            render()
