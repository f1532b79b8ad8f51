"""The `elastic` command: every command by section, and the messages of failures.

A command is imported when it is called, so that --help is fast.
"""

from __future__ import annotations

import ast
import errno
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

import click

from elastic_core.errors import UserError, no_memory, no_space, printable
from elastic_core.system.network import bypass_proxies
from elastic_core.system.private_stores import use_private_directory
from elastic_core.system.processes import PYTHON, attended

_ATTENDED = ("run", "evaluate", "rehearse", "report", "up")
"""Commands that start servers, clusters and processes, which Ctrl-C is to end in seconds."""
RENAMED = {
    "budgets": "plan budgets",
    "export": "model export",
    "regrade": "data regrade",
    "rules": "plan rules",
    "sweep status": "status",
    "templates": "data templates",
    "vllm-flags": "model vllm-flags",
}
"""Old spellings, which work until version 0.2, and what they are called now."""
_OF_ENGINES = ("ray", "torch", "transfer_queue", "verl", "vllm")  # Packages of the extras cpu and gpu.
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)


class Commands(click.Group):
    """A group that imports a command when it is called.

    Args:
        sections: by title, the names of commands, and a group, or a function in `flows.commands` as FILE:FUNCTION, or
            as FILE where both have one name.
        renamed: old spellings, which are taken with a warning, and the new ones.
    """

    def __init__(
        self,
        sections: Mapping[str, Mapping[str, str | Commands]],
        *args: Any,
        renamed: Mapping[str, str] = MappingProxyType({}),
        **keywords: Any,
    ) -> None:
        super().__init__(*args, **keywords)
        self.sections, self.renamed = sections, renamed

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in self.sections.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = next((each[cmd_name] for each in self.sections.values() if cmd_name in each), None)
        if not isinstance(found, str):
            return found or super().get_command(ctx, cmd_name)
        file, name = _place(found)
        command: click.Command = resolve_name(f"flows.commands.{file}:{name}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, _help_line(found)) for name, found in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        for old, new in self.renamed.items():
            if args[: len(old.split())] == old.split():
                warn_renamed(old, new)
                args = [*new.split(), *args[len(old.split()) :]]
                break
        return super().resolve_command(ctx, args)


def warn_renamed(old: str, new: str) -> None:
    """Print that a spelling will go."""
    click.echo(f"warning: `elastic {old}` is now `elastic {new}`; version 0.2 drops the old spelling", err=True)


def _place(command: str) -> tuple[str, str]:
    file, _, name = command.partition(":")
    return file, name or file


def _help_line(command: str | Commands) -> str:
    """Return the first line of a command's docstring, read without importing its file."""
    if isinstance(command, Commands):
        return command.help or ""
    file, name = _place(command)
    place = Path(__file__).parent / file.replace(".", "/")
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    functions = (each for each in ast.parse(source.read_bytes()).body if isinstance(each, ast.FunctionDef))
    return (ast.get_docstring(next(each for each in functions if each.name == name)) or "").partition("\n")[0]


_TEMPLATES = Commands(
    {"Commands": {name: f"templates:{name}_templates" for name in ("list", "show", "search", "add")}},
    help="Look into a library of thought templates, or add your own.",
)
_DATA_SETS = {name: f"data:{name}_data" for name in ("list", "show", "fetch", "add")}
_ROWS = {"distil": "graded_rows:distil", "regrade": "graded_rows:regrade"}
_GROUPS = {
    "model": Commands(
        {"Commands": {"prepare": "models:prepare", "export": "models:export", "vllm-flags": "models:vllm_flags"}},
        help="Make a model ready, export it, or serve it with your own vLLM.",
    ),
    "data": Commands(
        {"Data sets": _DATA_SETS, "Templates": {"templates": _TEMPLATES}, "Responses of a sweep": _ROWS},
        help="Look at data sets, fetch them, add your own.",
    ),
    "plan": Commands(
        {"Commands": {"sweep": "sweeps:plan_sweep", "budgets": "budgets", "rules": "rules", "serve": "plan_serve"}},
        help="Plan a sweep, and from one what to serve: budgets, servers.",
    ),
}


@click.group(
    cls=Commands,
    sections={
        "Run": {"run": "run", "evaluate": "evaluate", "rehearse": "checks.rehearsal:rehearse"},
        "Look": {"status": "sweeps:status", **{name: name for name in ("report", "compare", "doctor", "presets")}},
        "Serve": {"plan": _GROUPS["plan"], **{name: name for name in ("serve", "ask", "playground", "audit")}},
        "Models": {"model": _GROUPS["model"]},
        "Data": {"data": _GROUPS["data"]},
        "Services": {"up": "services:up"},
    },
    renamed=RENAMED,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(package_name="elastic-reasoning", message="%(package)s %(version)s")
def cli() -> None:
    """Train and measure reasoning models under a token budget."""
    use_private_directory(new_if_taken=True)
    bypass_proxies()


def main() -> None:
    if PYTHON[0] != sys.executable:
        os.execv(PYTHON[0], [*PYTHON, "-m", "flows.commands", *sys.argv[1:]])
    starts = sys.argv[1:2] and sys.argv[1] in _ATTENDED
    with attended(shlex.join(["elastic", *sys.argv[1:]])) if starts else nullcontext():
        command()


def command() -> None:
    """Run the command that the arguments name; a user's mistake is one sentence and exit status 2."""
    try:
        from flows.commands.options import sentence

        cli(prog_name="elastic", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(128 + signal.SIGINT)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except (click.UsageError, UserError) as error:
        message = sentence(error) if isinstance(error, click.UsageError) else str(error)
    except ModuleNotFoundError as error:
        # The package may be installed without what only flows need, or without engines.
        missing = (error.name or "").partition(".")[0]
        if missing in sys.modules or (missing not in _OF_ENGINES and find_spec("mlflow")):
            raise
        extras = "[cpu]', or [gpu]" if missing in _OF_ENGINES else "[pipeline]'"
        message = f"{missing} is not installed: pip install 'elastic-reasoning{extras}"
    except Exception as error:
        if full := no_space(error):
            message = f"{full}: free some space; the same command then goes on"
        elif full := no_memory(error):
            message = f"{full}: free some memory, or take smaller batches; the same command then goes on"
        elif isinstance(error, OSError) and error.filename and error.errno in _NO_ACCESS:
            message = f"{error}: get access to it, or name another place; the same command then goes on"
        else:
            raise
    else:
        return
    click.echo(f"error: {printable(message)}", err=True)
    sys.exit(2)
