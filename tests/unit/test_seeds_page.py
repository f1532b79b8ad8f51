"""docs/seeds.md: every row names a file that is there and a test that is there; every difference what restores it."""

import re
from pathlib import Path

import pytest

from flows import presets
from tests.unit.test_docs import require_valid

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PAGE, _, DIFFERENCES = (REPOSITORY / "docs" / "seeds.md").read_text().partition("\n## Where ours differs\n")


def rows_of(text: str, heading: str) -> list[tuple[str, ...]]:
    lines = re.findall(r"^\|[^-].*$", text, re.M)
    rows = [tuple(place.strip() for place in line.strip("|").split(" | ")) for line in lines]
    return [row for row in rows if row[0] != heading]


ROWS = rows_of(PAGE, "what")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_what_does_it_and_a_test_that_shows_it(row: tuple[str, ...]) -> None:
    what, done_by, shown_by = row
    assert what and re.fullmatch(r"`[^`]+`", done_by) and re.fullmatch(r"`[^`]+`", shown_by)
    assert (REPOSITORY / done_by.strip("`")).is_file()
    file, _, test = shown_by.strip("`").partition("::")
    assert f"def {test}(" in (REPOSITORY / file).read_text()


def test_it_lists_the_seeds_figures_tables_and_presets() -> None:
    assert len(ROWS) == len({what for what, _, _ in ROWS}) > 70
    for name in (*(f"Figure {number}" for number in (1, 2, 3, 5, 6, 7)), *(f"Table {number}" for number in (1, 2, 3))):
        assert any(what.startswith(name) for what, _, _ in ROWS), name
    done_by = {done for _, done, _ in ROWS}
    named = [name for name in presets.names() if re.search(r"(^|-)(e1|l1|reasonflux)-", name)]
    of_seeds = [name for name in named if "qwen3" not in name]  # The recipe on a later model.
    assert {name for name in of_seeds if f"`flows/presets/{name}.toml`" not in done_by} == set()


PLACES = r"`(scripts|rllm|verl/verl|ReasonFlux_v1|ReasonFlux_F1)/[\w./-]+:[1-9][0-9]*`"


@pytest.mark.parametrize("row", rows_of(DIFFERENCES, "difference"), ids=lambda row: row[0])
def test_a_difference_has_both_places_what_it_can_move_and_what_restores_it(row: tuple[str, ...]) -> None:
    what, theirs, ours, moves, restored = row
    assert what.startswith("**") and moves
    assert re.fullmatch(rf"{PLACES}(, {PLACES})?|no script", theirs)
    assert (REPOSITORY / ours.strip("`")).is_file()
    shown = re.findall(r"`([^`]+)`", restored)
    assert restored.startswith("none") or shown
    for code in shown:
        if code.startswith("elastic "):
            require_valid(code)
        elif " = " in code:
            key, value = presets.parse_override(code)
            presets.resolve("embedded", {"train.reuse_rollout_logprobs": False, key: value})
        elif "." not in code:
            assert code in presets.names()


@pytest.mark.parametrize(
    "named",
    [
        *(
            "fraction",
            "order",
            "Tolerance",
            "Scientific",
            "Which text",
            "Code in the thought",
            "5.0",
            "was cut",
            "forced",
        ),
        *("sum of means", "199", "adapter", "2,048", "65,536", "HumanEval+", "End-of-text in the thought"),
    ],
)
def test_every_difference_that_was_found_by_running_theirs_is_there(named: str) -> None:
    assert named in DIFFERENCES
