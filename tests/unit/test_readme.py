"""Every result that README.md tells follows from what this repository ships."""

import re

import pytest

from tests import readme

MEASURED_ONCE = {
    "9 min 17 s": "make demo, 2026-11-23, timed",
    "113 s": "its parts", "4 s": "", "274 s": "", "74 s": "", "132 s": "", "16 s": "", "9 s": "", "3 s": "",
    "8.3 GiB": "its memory",
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
def run() -> readme.Embedded:
    return readme.Embedded()


@pytest.fixture(scope="module")
def computed(run: readme.Embedded) -> str:
    return readme.section(run)


def test_the_section_of_results_is_what_the_shipped_scores_give(computed: str) -> None:
    shown = readme.README.read_text().partition(readme.TITLE)[2].partition(readme.NEXT)[0].strip()
    assert shown == computed, "run python -m tests.readme --write, and read what changed"


def test_a_result_that_is_not_computed_is_one_that_is_said_to_have_been_measured_once() -> None:
    text = re.sub(r"\{\w+\}", "", " ".join(readme.TEXT.read_text().split()))
    for known in sorted(MEASURED_ONCE, key=len, reverse=True):
        assert known in text, f"{known} is not in the section any more"
        text = text.replace(known, "")
    for setting in SETTINGS:
        text = re.sub(setting, "", text)
    assert re.findall(rf".*(?:{RESULT.pattern}).*", text) == []


def test_outside_the_section_the_readme_tells_no_result() -> None:
    before, _, rest = readme.README.read_text().partition(readme.TITLE)
    text = before + rest.partition(readme.NEXT)[2]
    code = re.sub(r"(?m)^    .*$|`[^`]*`|arXiv \S+|Python 3\.11|Apache-2\.0", "", text)
    assert RESULT.findall(code) == []


def test_smollm2s_cells_say_what_separate_budgeting_does_not_gain(computed: str) -> None:
    text = " ".join(computed.split())
    assert (
        "At t = 64 it has 66.8 % so and 66.8 % with separate budgeting on easy problems, 31.0 and 22.8 % on hard"
        in text
    )
    assert "34 % and 23 % fewer tokens" in text, "34.4978 is 34"


def test_the_page_of_templates_tells_the_same_run(run: readme.Embedded) -> None:
    page = " ".join((readme.ROOT / "docs" / "reasonflux.md").read_text().split())
    for level, t in ((readme.HARD, 128), (readme.EASY, 96), (readme.HARD, 64)):
        sides = (run.side(level, "base", name, [t]) for name in (readme.TEMPLATES, "separate"))
        accuracy, interval = run.accuracy(level, "base", readme.TEMPLATES, t).split(" ", 1)
        assert f"{accuracy} % {interval}" in page
        assert readme.signed(readme.paired_difference(*sides)) in page
    for t in (48, 96):
        assert f"{run.accuracy(readme.HARD, 'trained', 'separate', t).split()[0]} %" in page
    assert f"({run.accuracy(readme.HARD, 'trained', readme.TEMPLATES, 128).split()[0]} %)" in page


def test_the_page_of_the_control_tells_the_same_run(run: readme.Embedded) -> None:
    page = (readme.ROOT / "docs" / "training.md").read_text()
    free = {level: run.gain(level, strategy=readme.FREE) for level in (readme.EASY, readme.HARD)}
    for found in (run.together(), free):
        cells = (found[level].replace("[+", "[").replace(", +", ", ") for level in (readme.EASY, readme.HARD))
        assert f"| {' | '.join(cells)} |" in page
