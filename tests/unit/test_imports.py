"""Which part of the project may import which, read from the files themselves."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PACKAGES = ("elastic_core", "tasks", "reports", "flows")
BELOW = {
    "elastic_core": set(),
    "reports": {"elastic_core"},
    "tasks": {"elastic_core", "reports"},
    "flows": {"elastic_core", "reports", "tasks"},
}
"""What each package may import besides itself."""
ROOMS = (
    *("errors", "budget", "stop_rule", "seeds", "system", "models", "trajectory", "rewards", "data", "reasonflux"),
    *("strategies", "engines", "statistics", "sweep", "serving", "audit", "training", "miniature"),
)
"""Of elastic_core; each imports only those before it."""
UPWARDS = {("data", "miniature"), ("models", "data")}
"""Where one still imports what comes after it; none may be added."""
ENTRANCE = {("flows.runtime.run", "flows.presets")}
"""The one place that resolves a preset."""
ENGINES_IN_REPORTS = {"elastic_core.engines.endpoint"}
"""Only addresses, of which a page says what they are."""


def modules() -> dict[str, Path]:
    """Every module by its dotted name; that of a package is its `__init__`."""
    files = [file for package in PACKAGES for file in sorted((PROJECT / package).rglob("*.py"))]
    names = [".".join(file.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    return dict(zip(names, files, strict=True))


MODULES = modules()


def imports(module: str) -> Iterator[str]:
    """Modules of ours that it imports, at its top or within a function; not those for annotations alone."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    for_types = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for statement in branch.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom):
            parts = module.split(".")[: -node.level] if node.level else []
            source = ".".join([*parts, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{source}.{alias.name}" if f"{source}.{alias.name}" in MODULES else source
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def room(module: str) -> str:
    """The package below elastic_core that a module is in; a module directly below is a room by itself."""
    return module.split(".")[1] if module.count(".") else ""


GRAPH = {module: {name for name in imports(module) if name in MODULES} for module in MODULES}


def between(importing: str, imported: str) -> list[str]:
    """Imports of one room from another."""
    ours = [module for module in GRAPH if module.startswith("elastic_core.") and room(module) == importing]
    found = [(module, name) for module in ours for name in GRAPH[module] if name.startswith("elastic_core.")]
    return [f"{module} imports {name}" for module, name in sorted(found) if room(name) == imported]


def test_children_import_nothing_from_the_directory_that_they_start_in() -> None:
    """Which may have a `flows` of its own, as every Prefect project has: they get -P, or all that -I means."""
    text = "".join(file.read_text() for file in MODULES.values())
    started = re.findall(r"[\[(]sys\.executable, ([^,)\s]+)", text)
    assert started and set(started) <= {'"-P"', '"-I"'}


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows_point_one_way(package: str) -> None:
    wrong = {
        f"{module} imports {name}"
        for module, names in GRAPH.items()
        for name in names
        if module.split(".")[0] == package and name.split(".")[0] not in BELOW[package] | {package}
    }
    assert wrong == set()


def test_reports_read_tables_and_start_no_engine() -> None:
    """What measures an engine's speed is a formula."""
    read = {name for module, names in GRAPH.items() if module.startswith("reports.") for name in names}
    assert {name for name in read if name.startswith("elastic_core.engines.")} == ENGINES_IN_REPORTS


def test_nothing_behind_the_entrance_reads_a_preset_again() -> None:
    """Settings are resolved by the command or the deployment; flows and tasks get them, and go back to neither."""
    flows = [
        module for module in MODULES if module.count(".") == 1 and module not in ("flows.commands", "flows.presets")
    ]
    behind = [module for module in MODULES if module.startswith(("flows.", "tasks."))]
    behind = [module for module in behind if module in flows or module.startswith(("tasks.", "flows.runtime."))]
    before = ("flows.presets", "flows.commands")
    found = {(module, name) for module in behind for name in GRAPH[module] if name.startswith(before)}
    assert found == ENTRANCE


@pytest.mark.parametrize("importing", ROOMS)
def test_a_room_of_the_library_imports_only_those_before_it(importing: str) -> None:
    after = [name for name in ROOMS[ROOMS.index(importing) + 1 :] if (importing, name) not in UPWARDS]
    assert [why for name in after for why in between(importing, name)] == []


def test_every_room_of_the_library_has_its_place() -> None:
    assert {room(module) for module in MODULES if module.startswith("elastic_core.")} == set(ROOMS)


@pytest.mark.parametrize("pair", sorted(UPWARDS))
def test_an_exception_is_taken_back_when_it_is_gone(pair: tuple[str, str]) -> None:
    assert between(*pair)


def test_what_serves_and_asks_imports_nothing_of_the_pipeline() -> None:
    """It runs beside a vLLM that is there already (the base package)."""
    modules = "elastic_core.serving.middleware elastic_core.serving.server flows.commands.serve flows.commands.ask"
    modules += " flows.commands.audit"
    heavy = "prefect mlflow ray verl torch vllm sklearn matplotlib psycopg2 gguf supervisor math_verify"
    program = (
        f"import importlib, sys; [importlib.import_module(each) for each in {modules.split()}];"
        f"print(*set(sys.modules) & set({heavy.split()}))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
