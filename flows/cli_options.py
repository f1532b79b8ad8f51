"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


def settings_options(preset_help: str) -> Callable[[Command], Command]:
    """--preset NAME and --set KEY=VALUE, passed on as `preset` and `overrides`, see `changes_of`."""

    def decorate(command: Command) -> Command:
        overriding = click.option(
            "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Replace one setting, e.g. sweep.samples=16."
        )
        return click.option("--preset", default="embedded", show_default=True, help=preset_help)(overriding(command))

    return decorate


def changes_of(overrides: tuple[str, ...]) -> dict[str, Any]:
    """Settings to replace, by dotted key.

    Raises:
        UserError: when one is not KEY=VALUE.
    """
    from flows import presets

    return dict(presets.parse_override(text) for text in overrides)
