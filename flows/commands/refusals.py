"""Types of options, and what is wrong with a command line: one sentence, with what was probably meant."""

from __future__ import annotations

import re
from typing import Any

import click

from elastic_core.errors import nearest
from flows import presets

_EXTRA = re.compile(r"got unexpected extra arguments? \((?P<words>.*)\)")


class BudgetType(click.ParamType):
    """A token budget, like "1k+512"."""

    name = "budget"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from elastic_core.budget import Budget

        try:
            return Budget.parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class StrategyType(click.ParamType):
    """The name of a strategy that a person can ask with."""

    name = "strategy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from flows.commands.answer import STRATEGY_NAMES

        return OneOf(STRATEGY_NAMES).convert(value, param, ctx)


class OneOf(click.Choice[str]):
    """A choice whose refusal names the nearest valid one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return f'"{value}"{nearest(str(value), self.choices)}; expected one of {", ".join(self.choices)}'


def sentence(error: click.UsageError) -> str:
    """The command, what is wrong with its line, and where its help is."""
    message = " ".join(error.format_message().split()).removesuffix(".")
    message = message[:1].lower() + message[1:]
    if error.ctx is None:
        return message
    command, path = error.ctx.command, error.ctx.command_path
    if isinstance(error, click.NoSuchCommand) and isinstance(command, click.Group):
        known = command.list_commands(error.ctx)
        # "elastic help" means the option.
        hint = nearest(error.command_name, [*known, "--help"])
        return f'unknown command "{path} {error.command_name}"{hint}; there are: {", ".join(known)}'
    options = [name for parameter in command.get_params(error.ctx) for name in parameter.opts]
    if (extra := _EXTRA.fullmatch(message)) and "--preset" in options:
        meant = next((word for word in extra["words"].split() if word in presets.names()), None)
        message += f', did you mean "--preset {meant}"?' if meant else ""
    if isinstance(error, click.NoSuchOption):
        message = f"unknown option {error.option_name}{nearest(error.option_name, options)}"
    return f"{path}: {message}; see `{path} --help`"
