"""docs/seeds.md: every row names a file that is there and a test that is there."""

import re
from pathlib import Path

import pytest

from flows import presets

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PAGE = (REPOSITORY / "docs" / "seeds.md").read_text()
ROWS = [
    tuple(place.strip() for place in line.strip("|").split(" | ")) for line in re.findall(r"^\|[^-].*$", PAGE, re.M)
]
ROWS = [row for row in ROWS if row[0] != "what"]


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
