"""The page as a file: which trajectories it holds, that they come out as they went in, and that nothing in it runs."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.rewards import GradeStatus
from elastic_core.rewards.truth import MathTruth
from elastic_core.statistics.cost import TOKENS, cell_costs, with_work
from elastic_core.trajectory import SolutionFinish, ThinkFinish
from reports.build import build_report
from reports.content import ReportSources, Setting
from reports.figures import NUM_COLOURS, hex_colours
from reports.page.chart import HEIGHT, WIDTH, Chart, main_chart
from reports.page.payload import Payload, build_payload, draw_problems, reference_answer
from reports.summary import summarize
from reports.tables.costs import priced
from reports.wording import texts
from tests.report_tables import HOSTILE, PHRASE, cut, row, small_table, table, with_phrase
from tests.unit.test_report_summary import make_rows

pytestmark = pytest.mark.filterwarnings("ignore:Glyph")  # Hostile names have characters that no font has.


def unpack(packed: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def payload_of(rows: pl.DataFrame) -> Payload:
    return build_payload(rows.lazy(), draw_problems(rows.lazy()).problems, {})


def texts_of(payload: Payload) -> list[tuple[str | None, str | None]]:
    """Thinking and solution of every row, as the page puts them together."""
    found = []
    for chunk in map(unpack, payload.chunks):
        for i, phrase in enumerate(chunk["phrase"]):
            pair = [_text(chunk, phase, i) for phase in ("thinking", "solution")]
            found.append((pair[0] + PHRASE[0], PHRASE[1] + pair[1]) if phrase else (pair[0], pair[1]))
    return found


def _text(chunk: dict[str, Any], phase: str, i: int) -> Any:
    """JavaScript counts in UTF-16 units."""
    if chunk[phase][i] < 0:
        return None
    units = chunk["texts"][chunk[phase][i]].encode("utf-16-le")[: 2 * chunk[f"{phase}_length"][i]]
    return units.decode("utf-16-le")


def test_a_small_table_is_held_whole() -> None:
    drawing = draw_problems(small_table().lazy())
    assert drawing.problems.height == 6
    assert drawing.note(6, 72) == "Holds all 72 trajectories of 6 problems."


def test_of_a_large_table_whole_problems_are_held_and_the_page_says_so() -> None:
    rows = small_table(num_problems=10)
    drawing = draw_problems(rows.lazy(), max_trajectories=70)
    assert drawing.problems["benchmark"].to_list() == ["easy", "hard", "easy", "hard", "easy"]
    payload = build_payload(rows.lazy(), drawing.problems, {})
    assert (len(payload.chunks), payload.num_trajectories) == (5, 60)
    assert drawing.note(5, 60).startswith("Shows 60 of 240 trajectories: every one of 5 of the 20 problems")


def test_which_problems_are_held_depends_on_their_names_alone() -> None:
    rows = small_table(num_problems=10)
    other = rows.with_columns(score=1 - pl.col("score")).sample(fraction=1, shuffle=True, seed=0)
    assert draw_problems(rows.lazy(), 70).problems.equals(draw_problems(other.lazy(), 70).problems)


def test_few_tokens_or_bytes_hold_few_problems_but_one_of_each_benchmark() -> None:
    rows = small_table().lazy()
    drawn = draw_problems(rows).problems
    assert draw_problems(rows, max_tokens=1).problems.equals(drawn.head(2))
    assert len(build_payload(rows, drawn, {}, max_bytes=1).chunks) == 2
    size = len(build_payload(rows, drawn.head(3), {}).chunks[0])
    assert len(build_payload(rows, drawn, {}, max_bytes=4 * size).chunks) in (3, 4)


def test_problems_are_in_natural_order_and_rows_by_budget_with_unlimited_last() -> None:
    rows = table(*(row(problem=name, think_budget=t) for name in ("p10", "p9") for t in (None, 16, 4)))
    index = unpack(payload_of(rows).index)
    assert index["problems"] == {"benchmark": ["easy", "easy"], "id": ["p9", "p10"], "rows": [3, 3]}
    assert index["numbers"]["think_budget"] == [4, 16, None] * 2


text = st.text(st.sampled_from("ab\n<é😀\u202e"), max_size=6)


@given(st.lists(st.tuples(text, st.none() | text), min_size=1, max_size=8))
def test_texts_come_out_as_they_went_in(pairs: list[tuple[str, str | None]]) -> None:
    rows = table(*(row(think_budget=t, thinking=a, solution=b) for t, (a, b) in enumerate(pairs)))
    assert texts_of(payload_of(rows)) == pairs


def test_a_thought_that_was_cut_is_stored_as_the_beginning_of_the_longest() -> None:
    (chunk,) = map(unpack, payload_of(small_table(1, 1).filter(benchmark="easy")).chunks)
    assert len(chunk["texts"]) == 3  # the longest thought, and two solutions
    assert len(set(chunk["thinking_length"])) == 3


@pytest.mark.parametrize("other", [{"sample": 1}, {"strategy": "l1_exact"}, {"model": "trained"}])
def test_other_samples_strategies_and_models_share_no_thought(other: dict[str, Any]) -> None:
    (chunk,) = map(unpack, payload_of(table(row(thinking="abc"), row(thinking="ab", **other))).chunks)
    assert {"abc", "ab"} < set(chunk["texts"])


def test_what_the_pipeline_wrote_is_told_from_what_the_model_wrote() -> None:
    forced = cut(8, True)
    prolonged = row(think_tokens=18, forced=[False] * 4 + [True] + [False] * 14 + [True] + [False] * 3, forced_tokens=2)
    rows = [
        forced,
        with_phrase(forced) | {"think_budget": 9},
        prolonged | {"dropped": [{"at": 4, "id": 1}]},
        row(think_budget=33),
    ]
    payload = payload_of(table(*rows))
    (chunk,) = map(unpack, payload.chunks)
    assert chunk["phrase"] == [False, True, False, False]
    assert chunk["closing"] == [1, 4, 1, 0]
    assert chunk["interruptions"] == [[], [], [4], []]
    assert chunk["dropped"] == [0, 0, 1, 0]
    assert texts_of(payload) == [(one["thinking"], one["solution"]) for one in rows]


def test_a_phrase_of_the_models_own_stays_in_its_text() -> None:
    own = row(thinking="so\n", solution=f"{PHRASE[1]} 4")
    assert unpack(payload_of(table(own)).chunks[0])["phrase"] == [False]


def test_every_name_of_a_row_is_explained() -> None:
    names = {"think_finish": ThinkFinish, "solution_finish": SolutionFinish, "grade_status": GradeStatus}
    assert {column: set(explained) for column, explained in texts("wording").items()} == {
        column: set(values) for column, values in names.items()
    }


@pytest.mark.parametrize(
    ("grader", "truth", "shown"),
    [
        ("math", "42", "42"),
        ("math", MathTruth(("1", "2")).encode(), "1 or 2"),
        ("math", MathTruth(("1", "2"), match="all", unit="m").encode(), "1 and 2 m"),
        ("math", MathTruth(("3.5",), tolerance=0.1).encode(), "3.5 ± 0.1"),
        ("choice", "C", "C"),
        ("code", '{"tests": []}', None),
    ],
)
def test_the_reference_is_shown_as_people_write_it(grader: str, truth: str, shown: str | None) -> None:
    assert reference_answer(Problem("b", "1", "?", truth, grader)) == shown


class Page(HTMLParser):
    """What of a page a browser would run or ask for."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.handlers: list[str] = []
        self.scripts: list[str] = []
        self.policy = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attributes)
        self.handlers += [name for name in given if name.startswith("on") or name == "style"]
        self.sources += [given[name] or "" for name in ("src", "href", "srcset", "action") if name in given]
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] in ("script", "style") and data.strip():
            self.scripts.append(data)


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report whose every text was written by someone unfriendly, a problem and a remark included."""
    bad = "".join(HOSTILE)
    rows = table(
        *(
            row(model=bad, benchmark=bad, problem=bad, think_budget=t, thinking=bad, solution=bad, answer=bad)
            for t in (20, 40)
        )
    )
    sources = ReportSources(
        rows.lazy(),
        problems={(bad, bad): Problem(bad, bad, bad, bad, "choice")},
        provenance={bad: bad, "models": {bad: [bad]}},
        documents={bad: {bad: bad}},
        remarks={bad: f"**{bad}** [link](javascript:alert(1))"},
    )
    directory = tmp_path_factory.mktemp("report")
    build_report(sources, directory)
    return (directory / "report.html").read_text()


def test_hostile_text_adds_no_element_and_no_handler(hostile_page: str) -> None:
    page = Page(hostile_page)
    assert page.handlers == []
    assert "owned" not in "".join(page.scripts)
    assert hostile_page.count("<script") == hostile_page.count("</script")
    assert all(source.startswith(("data:image/", "#")) for source in page.sources)


def test_the_policy_allows_the_pages_own_scripts_and_nothing_else(hostile_page: str) -> None:
    page = Page(hostile_page)
    allowed = set(re.findall(r"'sha256-([^']+)'", page.policy))
    own = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in page.scripts}
    assert allowed <= own
    assert len(allowed) == 1 + 13  # the style, and every script; what is left are the trajectories, which do not run
    assert page.policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in page.policy


def test_the_scripts_never_write_markup() -> None:
    for script in Path("reports/assets").glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?:", script.read_text()
        )


def chart_of(rows: pl.DataFrame, *settings: Setting) -> Chart:
    cells = priced(summarize(rows), cell_costs(with_work(rows.lazy()).collect(), TOKENS))
    return main_chart(cells, settings, "tokens")


def test_the_main_figure_links_every_cell_and_marks_the_frontier_and_the_advised_budget() -> None:
    rows = make_rows(num_problems=4, num_samples=1, budgets=[16, 48])
    chart = chart_of(rows, Setting("hard", "trained", "2 points", "", Budget(48, 32)))
    points = [point for panel in chart.panels for point in panel.points]
    assert [panel.benchmark for panel in chart.panels] == ["easy", "hard"]
    assert len({point["address"] for point in points}) == len(points) == summarize(rows).height
    (advised,) = [point for point in points if point["advised"]]
    assert (advised["model"], advised["strategy"], advised["advised"]) == ("trained", "separate", "48+32")
    for panel in chart.panels:
        for point in panel.points:
            # Up is less in the units of an SVG.
            better = [other for other in panel.points if other["x"] < point["x"] and other["y"] <= point["y"]]
            assert not (point["frontier"] and better)
        assert any(point["frontier"] for point in panel.points)


@pytest.mark.parametrize(
    ("models", "strategies", "outstanding"),
    [
        (["base", "a"], ["separate", "vanilla"], {"base separate", "a separate", "base vanilla", "a vanilla"}),
        (
            ["base", "trained"], ["separate", "vanilla", "budget_forcing"],
            {"base separate", "trained separate", "base vanilla", "trained vanilla"},
        ),
        (
            ["base", "a", "trained"], ["separate", "vanilla", "budget_forcing"],
            {"base separate", "a separate", "trained separate"},
        ),
        (["base", "trained", "a", "b", "c"], ["separate"], {"base separate", "trained separate"}),
        (["base", "a", "b", "c", "d"], ["vanilla"], {"base vanilla"}),
    ],
)  # fmt: skip
def test_of_many_lines_those_of_the_first_figure_stand_out(
    models: list[str], strategies: list[str], outstanding: set[str]
) -> None:
    rows = make_rows(models, ["hard"], [*strategies, "unconstrained"], budgets=[16, 48], num_problems=4, num_samples=1)
    (panel,) = chart_of(rows).panels
    assert {f"{line['model']} {line['strategy']}" for line in panel.lines if not line["faint"]} == outstanding
    assert len(panel.lines) == len(models) * len(strategies)
    assert not any(point["faint"] and (point["frontier"] or point["advised"]) for point in panel.points)


def test_every_panel_fits_its_frame() -> None:
    rows = make_rows(num_problems=4, num_samples=1, budgets=[0, 16], models=["base"])
    for panel in chart_of(rows).panels:
        for point in panel.points:
            assert (
                0 <= point["x"] <= WIDTH
                and 0 <= point["low"] <= HEIGHT
                and 0 <= point["high"] <= point["y"] <= point["low"]
            )
        assert panel.across and all(0 <= x <= WIDTH for x, _ in panel.across)


LEAST_CONTRAST = 3.0
"""Of a line or a mark against its background (WCAG 2.2, 1.4.11)."""


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    """The contrast ratio of two colours, from 1 to 21 (WCAG 2.2)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: Sequence[float]) -> float:
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_colour_of_the_page_is_seen_in_both_modes() -> None:
    css = Path("reports/assets/chart.css").read_text()
    grounds = re.findall(r"--raised: (#\w{6})", Path("reports/assets/base.css").read_text())
    modes = [re.findall(r"--series-\d: (#\w{6})", mode) for mode in css.split("@media (prefers-color-scheme: dark)")]
    assert [len(mode) for mode in modes] == [NUM_COLOURS, NUM_COLOURS] and len(grounds) == 2
    names = [f"other {number}" for number in range(NUM_COLOURS - 2)]
    assert modes[0] == list(hex_colours(names).values()), "one colour is one model, in the chart and in the figures"
    for mode, ground in zip(modes, grounds, strict=True):
        for colour in mode:
            assert contrast(to_rgb(colour), to_rgb(ground)) >= LEAST_CONTRAST
