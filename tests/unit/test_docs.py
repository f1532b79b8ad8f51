"""What the documents show works."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.base import drive
from elastic_core.strategies import STRATEGIES, Sampling
from tests.scripted import ScriptedEngine
from tests.unit.test_strategies import END, MARKERS, PROMPT, WORD

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PLACE = ("benchmark", "strategy", "think_budget", "solution_budget")
DOCUMENTS = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


@given(st.lists(st.integers(0, WORD), max_size=30), st.integers(0, 9), st.integers(1, 9))
def test_the_strategy_shown_keeps_its_budget(tokens: list[int], think: int, solution: int) -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "strategies.md").read_text(), re.DOTALL)
    assert shown.count("\n") < 60
    module: dict[str, object] = {}
    exec(compile(shown, "docs/strategies.md", "exec"), module)
    drawn = iter(tokens)
    engine = ScriptedEngine(lambda prefix, seed: next(drawn, WORD))
    rollout = module["no_thinking"](PROMPT, Budget(think, solution), MARKERS, Sampling())  # type: ignore[operator]
    trajectory = asyncio.run(drive(rollout, {"policy": engine}, 0))
    assert trajectory.response_ids[0] == END
    assert trajectory.think_tokens == 0
    assert trajectory.solution_tokens <= think + solution


def test_every_strategy_is_explained() -> None:
    text = (REPOSITORY / "docs" / "strategies.md").read_text()
    family = "budget_forcing_wait1`, `2`, `4`, `6"
    assert family in text
    assert all(f"`{name}`" in text for name in STRATEGIES if not name.startswith("budget_forcing_wait"))


def test_links_between_documents_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def example_cells() -> list[dict[str, Any]]:
    """The cells of the embedded run that the README tells of, `text` as it writes them: "12.3 [10.1, 14.5]"."""
    cells = json.loads((REPOSITORY / "reports" / "example" / "summary.json").read_text())["cells"]
    ends = ("avg_at_k", "ci_low", "ci_high")
    return [cell | {"text": "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * cell[end] for end in ends))} for cell in cells]


def readme() -> str:
    return " ".join((REPOSITORY / "README.md").read_text().split())


def test_every_accuracy_of_the_readme_is_one_of_the_embedded_run() -> None:
    known = {cell["text"] for cell in example_cells()}
    shown = re.findall(r"(?<![\d.+-])\d+\.\d \[\d+\.\d, \d+\.\d\]", readme())
    assert len(shown) > 100
    assert set(shown) <= known


def test_the_readme_says_wherever_training_lowers_accuracy_beyond_doubt_and_where_thinking_does() -> None:
    (lowered,) = re.findall(r"- \*\*Where training lowers a number\*\*.*?(?= - )", readme())
    (hurt,) = re.findall(r"- \*\*More thinking can hurt\.\*\*.*?(?= - )", readme())
    cells = {tuple(cell[name] for name in ("model", *PLACE)): cell for cell in example_cells()}
    fallen = [key[1:] for key, cell in cells.items() if cells["base", *key[1:]]["ci_low"] > cell["ci_high"]]
    assert {key[1] for key in fallen} == {"reasonflux_zero"}
    for key in fallen:
        assert cells["base", *key]["text"] in lowered
        assert f"{100 * cells['trained', *key]['avg_at_k']:.1f} [" in lowered
    easy = [cells["base", "miniature-easy", "separate", t, 32] for t in (0, 48)]
    assert round(100 * (easy[0]["avg_at_k"] - easy[1]["avg_at_k"]), 1) == 34.8
    assert all(cell["text"] in hurt for cell in easy)
