"""Whether `warm_start.sft.chat_template` is the initial model's own, before anything is built or started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from elastic_core import hub
from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE

if TYPE_CHECKING:
    from flows.settings import Settings


def require_chat_template(settings: Settings, *, fetch: bool = True) -> None:
    """Nothing, when fine-tuning under the settings can tell responses from prompts, or there is none.

    Args:
        fetch: have the tokenizer of a model on the hub; False looks at models that are directories only.

    Raises:
        UserError: when the template is not the model's, or there is no such model.
    """
    sft, initial = settings.warm_start.sft, settings.warm_start.initial
    if sft is None or settings.base != "warm-start":
        return
    if not fetch and initial != "shipped" and not Path(initial).is_dir():
        return
    check_chat_template(initial, sft.chat_template)


def check_chat_template(initial: str, name: str) -> None:
    """As `require_chat_template`, of a model and the name of a template."""
    from transformers import AutoTokenizer

    from elastic_core.reasonflux.chat_templates import fitting_template

    directory = BASE if initial == "shipped" else hub.locate(initial, hub.TOKENIZER_FILES)
    if not any(directory.glob("tokenizer*")):
        raise UserError(
            f"warm_start.initial = {initial}: no model there; give a checkpoint directory, such as `elastic model "
            "prepare` makes, or OWNER/NAME on the hub"
        )
    fitting_template(name, AutoTokenizer.from_pretrained(directory))
