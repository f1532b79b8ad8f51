"""Every result that README.md and docs/results.md tell follows from what this repository ships."""

import re
from pathlib import Path

import pytest

from tests import results
from tests.bench import load_page
from tests.documents import DOCUMENTS
from tests.experiments import methods
from tests.pictures import digest, stamp_of

MEASURED_ONCE = {
    "8 min 13 s": "make demo, 2026-11-29, timed",
    "46 s": "its parts", "5 s": "", "288 s": "", "119 s": "", "12 s": "", "14 s": "", "3 s": "",
    "52,800": "rows of a demo",
    "+4.2 [1.6, 6.8]": "control of the miniature, docs/training.md",
    "+3.0 [-0.2, 6.3]": "",
    "+6.9 [3.5, 10.7]": "",
    "2.6 times": "docs/credit.md",
}  # fmt: skip
"""Results in the section that no data here gives; beside each the text says when and how it was measured."""
SETTINGS = (
    r"2026-11-\d\d", r"SmolLM2-135M", r"0\.76 M", r"\(96, 32\)", r"\(48, 32\)", r"48, 32", r"s = 32",
    r"t (=|from|up to|to)? ?\d+(?: to \d+)?", r"from 16 to 192", r"t = 0 to 96", r"t = 0 and 16", r"\b95 %",
    r"\d00 problems", r"\d samples", r"2 cores", r"24 GiB", r"40 steps", r"seeds='\[1,2,3\]'", r"for t up to 32",
)  # fmt: skip
"""What a text sets, and no result."""
RESULT = re.compile(r"\d+\.\d+|\d+ %|\d+ times|\[[-+\d]")


@pytest.fixture(scope="module")
def run() -> results.Embedded:
    return results.Embedded()


@pytest.fixture(scope="module")
def computed(run: results.Embedded) -> dict[Path, str]:
    return results.texts(run)


def test_the_results_shown_are_what_the_shipped_scores_give(computed: dict[Path, str]) -> None:
    section = results.README.read_text().partition(results.TITLE)[2].partition(results.NEXT)[0].strip()
    assert {results.PAGE: results.PAGE.read_text().strip(), results.README: section} == computed, (
        "run python -m tests.results --write, and read what changed"
    )


def test_the_pictures_shown_are_of_the_shipped_numbers(run: results.Embedded, tmp_path: Path) -> None:
    drawn = results.pictures(run, tmp_path)
    stale = [str(shown) for shown, figure in drawn.items() if stamp_of(shown) != digest(figure.data)]
    assert stale == [], "run python -m tests.results --write, and look at them"


def test_the_page_of_loads_and_its_picture_are_of_its_file_of_data() -> None:
    assert load_page.PAGE.read_text() == load_page.page_with_tables(load_page.PAGE.read_text())
    assert stamp_of(load_page.FIGURE) == digest(load_page.DATA), "run python -m tests.bench.load_page --write"


def test_the_page_of_methods_and_its_picture_are_of_the_kept_scores() -> None:
    assert methods.PAGE.read_text() == methods.page_with_results(methods.PAGE.read_text())
    assert stamp_of(methods.FIGURE) == digest(methods.SCORES), "run python -m tests.experiments.methods --write"


def test_every_picture_that_a_document_shows_has_the_hash_of_its_numbers() -> None:
    shown = {
        (document.parent / name).resolve()
        for document in DOCUMENTS
        for name in re.findall(r"!\[[^]]*\]\(([^)]+)\)", document.read_text())
    }
    assert len(shown) >= 4
    assert [file for file in shown if stamp_of(file) is None] == []


def test_a_result_that_is_not_computed_is_one_that_is_said_to_have_been_measured_once() -> None:
    text = re.sub(r"\{\w+\}", "", " ".join(" ".join(file.read_text() for file in results.TEXTS.values()).split()))
    for known in sorted(MEASURED_ONCE, key=len, reverse=True):
        assert known in text, f"{known} is in neither any more"
        text = text.replace(known, "")
    for setting in SETTINGS:
        text = re.sub(setting, "", text)
    assert re.findall(rf".*(?:{RESULT.pattern}).*", text) == []


def test_outside_its_results_the_readme_tells_none() -> None:
    before, _, rest = results.README.read_text().partition(results.TITLE)
    text = before + rest.partition(results.NEXT)[2]
    code = re.sub(r"(?m)^    .*$|`[^`]*`|arXiv \S+|Python 3\.11|Apache-2\.0", "", text)
    assert RESULT.findall(code) == []


def test_smollm2s_cells_say_what_separate_budgeting_does_not_gain(computed: dict[Path, str]) -> None:
    text = " ".join(computed[results.PAGE].split())
    assert (
        "At t = 64 it has 66.8 % so and 66.8 % with separate budgeting on easy problems, 31.0 and 22.8 % on hard"
        in text
    )
    assert "34 % and 23 % fewer tokens" in text, "34.4978 is 34"


def test_the_page_of_templates_tells_the_same_run(run: results.Embedded) -> None:
    page = " ".join((results.ROOT / "docs" / "reasonflux.md").read_text().split())
    for level, t in ((results.HARD, 128), (results.EASY, 96), (results.HARD, 64)):
        sides = (run.side(level, "base", name, [t]) for name in (results.TEMPLATES, "separate"))
        accuracy, interval = run.accuracy(level, "base", results.TEMPLATES, t).split(" ", 1)
        assert f"{accuracy} % {interval}" in page
        assert results.signed(results.paired_difference(*sides)) in page
    for t in (48, 96):
        assert f"{run.accuracy(results.HARD, 'trained', 'separate', t).split()[0]} %" in page
    assert f"({run.accuracy(results.HARD, 'trained', results.TEMPLATES, 128).split()[0]} %)" in page


def test_the_page_of_credit_tells_what_its_scores_give() -> None:
    page = (results.ROOT / "docs" / "credit.md").read_text()
    assert f"**{results.over_e1()[0].replace(' ', ' points ', 1)}**" in page
    for name, level in (("easy", results.EASY), ("hard", results.HARD)):
        over, at = results.over_e1(level)
        assert re.search(rf"(?m)^\| {name} \| (?:[^|]*\|){{2}} {re.escape(over)} \|$", page)
        assert f"| {name} | {' | '.join(at.values())} |" in page


def test_the_page_of_the_control_tells_the_same_run(run: results.Embedded) -> None:
    page = (results.ROOT / "docs" / "training.md").read_text()
    free = {level: run.gain(level, strategy=results.FREE) for level in (results.EASY, results.HARD)}
    for found in (run.together(), free):
        cells = (found[level].replace("[+", "[").replace(", +", ", ") for level in (results.EASY, results.HARD))
        assert f"| {' | '.join(cells)} |" in page
