"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]

PORT = click.IntRange(1, 65535)
PRESET_FORMS = "A name (`elastic presets`), or FILE.toml."
"""What --preset takes, wherever it is an option."""
PATH = click.Path(path_type=Path)
built_data = click.option("--data", type=PATH, help="Built data sets. Without it those that the table was made with.")


mirror_option: Callable[[Command], Command] = click.option(
    "--mirror",
    type=PATH,
    envvar="ELASTIC_DATA_MIRROR",
    show_envvar=True,
    metavar="DIR",
    help="Local tree of source files, laid out as OWNER/REPOSITORY/PATH.",
)


def settings_options(preset_help: str) -> Callable[[Command], Command]:
    """--preset PRESET and --set KEY=VALUE, passed on as `preset` and `overrides`, see `changes_of`."""

    def decorate(command: Command) -> Command:
        overriding = click.option(
            "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Replace one setting, e.g. sweep.samples=16."
        )
        preset = click.option(
            "--preset",
            default="embedded",
            show_default=True,
            metavar="PRESET",
            help=f"{preset_help} {PRESET_FORMS}",
        )
        return preset(overriding(command))

    return decorate


def last_run_options(command: Command) -> Command:
    """As `settings_options`, but what is not given is the last run's: to be read by `asked`."""
    overriding = click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Replace one setting, e.g. sweep.samples=16."
    )
    preset = click.option("--preset", metavar="PRESET", help=f"{PRESET_FORMS} Without it the last run's settings.")
    return preset(overriding(command))


def asked(preset: str | None, overrides: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Preset and settings to replace: those given, on top of the last run's where no preset is given."""
    from flows.runtime.last_run import LastRun, recall

    last = LastRun("embedded", {}) if preset else recall() or LastRun("embedded", {})
    return preset or last.preset, last.overrides | changes_of(overrides)


def changes_of(overrides: tuple[str, ...]) -> dict[str, Any]:
    """Settings to replace, by dotted key. Raises UserError when one is not KEY=VALUE."""
    from flows import presets

    return dict(presets.parse_override(text) for text in overrides)
