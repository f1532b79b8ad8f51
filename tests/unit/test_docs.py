"""What the documents show works."""

import asyncio
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from elastic_core.budget import Budget
from elastic_core.engines.base import drive
from elastic_core.strategies import STRATEGIES, Sampling
from tests.scripted import ScriptedEngine
from tests.unit.test_strategies import END, MARKERS, PROMPT, WORD

REPOSITORY = Path(__file__).resolve().parent.parent.parent
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
