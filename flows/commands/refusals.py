"""What is wrong with a command line, in one sentence with what was probably meant: what click finds, in our words."""

from __future__ import annotations

import re
from typing import Any

import click

from elastic_core.errors import nearest
from flows import presets

_EXTRA = re.compile(r"got unexpected extra arguments? \((?P<words>.*)\)")


class OneOf(click.Choice[str]):
    """A choice whose refusal names the nearest valid one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return f'"{value}"{nearest(str(value), self.choices)}; expected one of {", ".join(self.choices)}'


def sentence(error: click.UsageError) -> str:
    """What is wrong, with the command that was asked for and where its help is."""
    message = " ".join(error.format_message().split()).removesuffix(".")
    message = message[:1].lower() + message[1:]
    if error.ctx is None:
        return message
    command, path = error.ctx.command, error.ctx.command_path
    if isinstance(error, click.NoSuchCommand) and isinstance(command, click.Group):
        known = command.list_commands(error.ctx)
        # Who asks for help means the option.
        hint = nearest(error.command_name, [*known, "--help"])
        return f'unknown command "{path} {error.command_name}"{hint}; there are: {", ".join(known)}'
    options = [name for parameter in command.get_params(error.ctx) for name in parameter.opts]
    if (extra := _EXTRA.fullmatch(message)) and "--preset" in options:
        meant = next((word for word in extra["words"].split() if word in presets.names()), None)
        message += f', did you mean "--preset {meant}"?' if meant else ""
    if isinstance(error, click.NoSuchOption):
        message = f"unknown option {error.option_name}{nearest(error.option_name, options)}"
    return f"{path}: {message}; see `{path} --help`"
