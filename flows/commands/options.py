"""Options that several commands share, and the message of a wrong command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

import click

from elastic_core.errors import UserError, nearest
from flows import presets
from flows.runtime.environment import runs_directory

Command = Callable[..., Any]

PORT = click.IntRange(1, 65535)
POSITIVE = click.FloatRange(min=0, min_open=True)
PATH = click.Path(path_type=Path)
PRESET_FORMS = "A name (`elastic presets`), or FILE.toml."
TABLE_FORMS = "A trajectory table, runs/PRESET/sweep/KEY/table, also of a half-done sweep."

Three = tuple[float, float, float] | None
_NEEDS = {"--price": "INPUT CACHED OUTPUT per million tokens", "--latency": "TURN INPUT OUTPUT in milliseconds"}
_NUMBER = re.compile(r"is not a valid (float|integer)( range)?\b")
_EXTRA = re.compile(r"got unexpected extra arguments? \((?P<words>.*)\)")

built_data = click.option("--data", type=PATH, help="Built data sets. Without it those that the table was made with.")
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Show what Prefect, Ray, vLLM and MLflow say, not only log it."
)
mirror_option: Callable[[Command], Command] = click.option(
    "--mirror",
    type=PATH,
    envvar="ELASTIC_DATA_MIRROR",
    show_envvar=True,
    metavar="DIR",
    help="Local tree of source files, laid out as OWNER/REPOSITORY/PATH.",
)
family_option: Callable[[Command], Command] = click.option(
    "--family",
    metavar="NAME",
    help="Family of think markers, where the model does not show it: one of docs/models.md, or a TOML file.",
)


def settings_options(preset_help: str, default: str | None = "embedded") -> Callable[[Command], Command]:
    """--preset PRESET and --set KEY=VALUE, passed on as `preset` and `overrides`, see `overriding`."""
    preset = click.option("--preset", default=default, metavar="PRESET", help=f"{preset_help} {PRESET_FORMS}")
    return lambda command: preset(overriding("Replace one setting, e.g. sweep.samples=16.")(command))


def overriding(help_text: str) -> Callable[[Command], Command]:
    """--set KEY=VALUE, again and again, passed on as `overrides`: settings to replace, by dotted key."""
    read = presets.read_overrides
    return click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help=help_text, callback=read)


def benchmarks_option(help_text: str) -> Callable[[Command], Command]:
    """--benchmark NAME, again and again, passed on as `benchmarks`."""
    return click.option("--benchmark", "benchmarks", multiple=True, metavar="NAME", help=help_text)


def table_options(benchmarks_help: str) -> Callable[[Command], Command]:
    """--from TABLE, --model NAME and --benchmark NAME: rows of a model, see `rows_of_model`."""
    options = (
        click.option("--from", "table", type=PATH, metavar="TABLE", help=f"{TABLE_FORMS} Without it the last run's."),
        click.option("--model", metavar="NAME", help="Its name in the table; by default trained, or the only one."),
        benchmarks_option(benchmarks_help),
    )
    return lambda command: reduce(lambda inner, option: option(inner), reversed(options), command)


def cost_options(command: Command) -> Command:
    """--price and --latency, passed on as three numbers each."""
    numbers = partial(click.option, type=click.FloatRange(min=0), nargs=3)
    price = numbers(
        "--price",
        metavar="INPUT CACHED OUTPUT",
        help="Prices of a million input, cached input and output tokens, to compare budgets by cost.",
    )
    latency = numbers(
        "--latency",
        metavar="TURN INPUT OUTPUT",
        help="Milliseconds of a turn, an input token and an output token, to show how long a response takes.",
    )
    return price(latency(command))


def address_options(others_need: str, port: int) -> Callable[[Command], Command]:
    """--host and --port of a server; `others_need` says how clients of other machines log in."""
    host = click.option("--host", default="127.0.0.1", help=f"Address to listen on; others need {others_need}.")
    return lambda command: host(click.option("--port", type=PORT, default=port)(command))


def budget_option(help_text: str) -> Callable[[Command], Command]:
    """--budget T+S, passed on as a `Budget`."""
    return click.option("--budget", type=BudgetType(), metavar="T+S", help=help_text)


last_run_options = settings_options("Without it the settings of the last run.", None)
"""`settings_options`, where what is not given is the last run's: `presets.given_or_last` reads them."""


def table_of_last_run(option: str = "--from TABLE") -> Path:
    """The trajectory table of its sweep. Raises UserError, with the `option` that names one, when there was no run, or
    it has no table yet."""
    from flows.runtime.run import FlowRun
    from tasks.records.stage_directory import TABLE

    if (last := presets.last_run()) is None:
        raise UserError(f"nothing was run yet in {runs_directory()}; expected {option}, or a run first: elastic run")
    run = FlowRun.begin(*last)
    try:
        run.require_data()
        table = run.sweep.directory / TABLE
    except UserError as error:
        raise UserError(f"the last run has no table: {error}; or give {option}") from None
    if not table.is_dir():
        raise UserError(f"the last run has no table at {table}; give {option}, or run: {run.command('sweep')}")
    return table


class OneOf(click.Choice[str]):
    """A choice that names the nearest valid one when it refuses."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return f'"{value}"{nearest(str(value), self.choices)}; expected one of {", ".join(self.choices)}'


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
    """The name of a strategy that a person can ask with, or the import path of a user's."""

    name = "strategy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from elastic_core.stop_rule import ADAPTIVE
        from elastic_core.sweep.grid import known_strategies
        from elastic_core.system.imported import declare
        from flows.commands.answer import STRATEGY_NAMES

        if ":" in value or value.startswith(f"{ADAPTIVE}_"):
            try:
                return known_strategies([declare(value)])[0]
            except ValueError as error:
                self.fail(str(error), param, ctx)
        return OneOf(STRATEGY_NAMES).convert(value, param, ctx)


def sentence(error: click.UsageError) -> str:
    """The error as one sentence, with the command and where its help is."""
    message = " ".join(error.format_message().split()).removesuffix(".")
    message = message[:1].lower() + message[1:]
    message += next((f"; it needs {numbers}" for option, numbers in _NEEDS.items() if f"'{option}'" in message), "")
    if error.ctx is None:  # An option without its values: click does not say of which command.
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
    if isinstance(error, click.BadParameter):
        message = _NUMBER.sub(lambda kind: f"is not a {'whole ' if kind[1] == 'integer' else ''}number", message)
    if isinstance(error, click.NoSuchOption):
        message = f"unknown option {error.option_name}{nearest(error.option_name, options)}"
    return f"{path}: {message}; see `{path} --help`"
