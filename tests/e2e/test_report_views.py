"""What a person does with a report, at a desk, on a phone and in the dark: read the first screen, point at the figure,
open a cell, search, link to a trajectory.

One page for each kind of screen serves all tests; each begins where the page opens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from elastic_core.data.problems import Problem
from reports.build import build_report
from reports.content import ReportParameters, ReportSources
from tests.browser import watched
from tests.report_tables import row, small_table, table
from tests.unit.test_report_summary import make_rows

SCREENS = {
    "desk": {"viewport": {"width": 1440, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}},
    "dark": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
}
DARK = pytest.param("dark", marks=pytest.mark.slow)
WIDE, PHONE, EVERY = (
    pytest.mark.parametrize("screen", given, indirect=True, scope="module")
    for given in (["desk", DARK], ["phone"], ["desk", "phone", DARK])
)
"""Where a test says so; the others are at the desk by day, and by night on every screen."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    limited = small_table()
    keys = limited.select("benchmark", "problem", "sample").unique(maintain_order=True).rows(named=True)
    free = table(*(row(**key, strategy="unconstrained", think_budget=None, solution_budget=None) for key in keys))
    rows = pl.concat([limited, free])
    # Longer prompts, so that no point lies on another.
    trained = rows.with_columns(model=pl.lit("trained"), prompt_tokens=pl.col("prompt_tokens") + 6)
    both = pl.concat([rows, trained])
    problems = {
        (key["benchmark"], key["problem"]): Problem(
            key["benchmark"], key["problem"], question=f"What is 2+{key['problem']}?", truth="4", grader="math"
        )
        for key in keys
    }
    directory = tmp_path_factory.mktemp("report")
    sources = ReportSources(
        both.lazy(),
        problems=problems,
        preset="embedded",
        parameters=ReportParameters(margin=100),  # A budget is advised.
        provenance={"table": "a/long/path/" * 12, "base": "name" * 20},
        remarks={"easy": f"| a column | another one |\n|---|---|\n| {'long' * 30} | {'many words ' * 20} |"},
    )
    build_report(sources, directory)
    return (directory / "report.html").as_uri()


@pytest.fixture(scope="module", params=["desk", pytest.param("phone", marks=pytest.mark.slow), DARK])
def screen(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    with watched(browser, **SCREENS[request.param]) as page:
        yield page


@pytest.fixture
def view(screen: Page, address: str) -> Page:
    return opened(screen, address)


def opened(page: Page, address: str) -> Page:
    page.goto("about:blank")  # Another address of the same page would not load it anew.
    page.goto(address)
    expect(page.locator(".list").get_by_role("option").first).to_be_visible()
    return page


def filters(page: Page) -> Locator:
    return page.get_by_role("search", name="Which trajectories to list")


@EVERY
def test_the_first_screen_is_what_was_found_the_figure_and_what_to_run(
    view: Page, request: pytest.FixtureRequest
) -> None:
    found, lead = view.get_by_role("heading", level=1), view.locator(".lead")
    command = view.get_by_text("elastic serve --preset embedded --model trained --budget 8+8", exact=True)
    parts = [found, *view.locator(".panel").all(), view.locator("#main .caption"), lead, command]
    assert (found.inner_text() + lead.inner_text()).count(".") == 2
    expect(command).to_have_count(1)
    tops = [part.evaluate("element => element.getBoundingClientRect().top") for part in parts]
    assert tops == sorted(tops)
    for part in parts[:2] if "phone" in request.node.callspec.id else parts:
        expect(part).to_be_in_viewport(ratio=1)
    assert view.evaluate("scrollY") == 0


def test_the_choices_stand_below_and_margins_without_a_budget_are_one_line(view: Page) -> None:
    for choice in view.locator(".choice").all():
        left, right = choice.locator(".pair > div").all()
        expect(left).to_contain_text("Most accurate of trained, by tokens processed")
        assert right.locator("tbody td:first-child").all_inner_texts() == ["1, 2, 5 or 10"]
        expect(right.locator("tbody")).to_contain_text("None. Nearest: ")


@PHONE
def test_on_a_phone_no_table_is_cut_and_nothing_scrolls_sideways(view: Page) -> None:
    view.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    tables = view.locator("table")
    assert tables.count() == view.locator("table:visible").count() > 15
    cut = tables.evaluate_all("""tables => tables.flatMap(table => {
        const inside = element => {
            const { left, right } = element.getBoundingClientRect();
            return left >= 0 && right <= innerWidth && element.scrollWidth <= element.clientWidth + 1;
        };
        const box = table.parentElement;
        const drawn = [...table.querySelectorAll("th, td")].filter(cell => cell.getClientRects().length);
        const wide = [...drawn.filter(cell => !inside(cell)), ...(inside(box) ? [] : [box])];
        return (drawn.length ? wide : [table]).map(element => element.outerHTML.slice(0, 200));
    })""")
    assert cut == []
    assert view.evaluate("document.documentElement.scrollWidth") == 390


@PHONE
def test_on_a_phone_each_line_of_a_table_names_its_columns_and_they_still_sort(view: Page) -> None:
    place = view.locator("details", has=view.get_by_role("heading", name="What a response costs"))
    place.locator("summary").click()
    line = place.locator("tbody tr").first
    names = line.locator("td").evaluate_all("cells => cells.map(cell => getComputedStyle(cell, '::before').content)")
    assert names[:4] == ['"benchmark"', '"model"', '"strategy"', '"budget"']
    before = line.inner_text()
    place.get_by_role("button", name="benchmark").click()
    place.get_by_role("button", name="benchmark").click()
    expect(line).to_contain_text("hard")
    assert "hard" not in before


def test_a_point_tells_its_numbers_and_arrow_keys_go_to_the_next(view: Page) -> None:
    points = view.locator(".panel svg").first.locator(".point")
    points.first.focus()
    tip = view.locator(".tip")
    expect(tip).to_contain_text("problems, ")
    first = tip.inner_text()
    assert "accuracy" in first and "tokens sampled" in first and "[" in first
    view.keyboard.press("ArrowRight")
    expect(tip).not_to_have_text(first)
    box, window = tip.bounding_box(), view.viewport_size
    assert box is not None and window is not None
    assert box["x"] >= 0 and box["x"] + box["width"] <= window["width"]


def test_a_name_in_the_legend_leaves_the_others_out(view: Page) -> None:
    shown = view.locator(".point:not(.faint):visible")
    everything = shown.count()
    name = view.get_by_role("group", name="Models and strategies").get_by_role("button", name="trained", exact=True)
    name.click()
    expect(name).to_have_attribute("aria-pressed", "true")
    assert {point.get_attribute("data-model") for point in shown.all()} == {"trained"}
    name.click()
    expect(shown).to_have_count(everything)
    view.locator(".line[data-model=trained]").first.dispatch_event("click")
    expect(name).to_have_attribute("aria-pressed", "true")


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """More lines than are told apart: two models, three strategies."""
    directory = tmp_path_factory.mktemp("crowded")
    build_report(ReportSources(make_rows(num_problems=4, num_samples=1, budgets=[16, 48]).lazy()), directory)
    return (directory / "report.html").as_uri()


def test_other_strategies_are_faint_until_the_legend_singles_them_out(page: Page, crowded: str) -> None:
    opened(page, crowded)
    other, ours = (page.locator(f".line[data-strategy={name}]").first for name in ("budget_forcing", "separate"))
    expect(ours).to_have_css("opacity", "1")
    expect(other).to_have_css("opacity", "0.25")
    page.get_by_role("button", name="budget forcing", exact=True).click()
    expect(other).to_have_css("opacity", "1")
    expect(ours).to_have_css("opacity", "0.1")


def test_the_figure_has_a_panel_for_each_benchmark_with_its_frontier_and_the_advised_budget(view: Page) -> None:
    panels = view.locator(".panel")
    expect(panels).to_have_count(2)
    for panel in panels.all():
        expect(panel.locator(".axis")).to_have_text("tokens sampled")
        expect(panel.locator(".frontier")).to_have_count(1)
        expect(panel.locator(".point", has=view.locator(".advised"))).to_have_attribute(
            "aria-label", re.compile("trained, separate at 8.8: .*advised")
        )
        assert panel.locator(".point.best").count() >= 1
    label = view.locator(".tick").first
    assert label.evaluate("element => element.getBoundingClientRect().height") >= 10


def test_a_click_on_a_point_opens_its_cell_in_the_reader(view: Page) -> None:
    panel = view.locator(".panel svg").last
    panel.locator(".point[data-model=trained][data-strategy=budget_forcing] .touch").nth(1).click()
    expect(view.locator("article h3")).to_contain_text("trained · budget forcing")
    expect(filters(view).locator("[name=budget]")).to_have_value("8+8")
    expect(view.locator(".list")).to_be_in_viewport()
    expect(view.locator(".list")).to_be_focused()


def test_the_map_opens_a_problem_at_a_budget(view: Page) -> None:
    board = view.get_by_role("application", name="Map of problems and budgets")
    board.focus()
    view.keyboard.press("ArrowRight")
    expect(view.locator("#map-told")).to_have_text("problem 0 at 4+8: 0 % right, of 2 samples")
    view.keyboard.press("ArrowDown")
    expect(view.locator("#map-told")).to_have_text("problem 0 at 8+8: 100 % right, of 2 samples")
    view.keyboard.press("Enter")
    expect(view.locator("article h3")).to_contain_text("easy, problem 0, sample 0")
    expect(view.locator(".detail output")).to_contain_text("budget 8+8")


def test_a_trajectory_can_be_linked(view: Page) -> None:
    filters(view).get_by_label("Benchmark").select_option("hard")
    filters(view).get_by_label("forced only").check()
    view.locator(".list").get_by_role("option").nth(1).click()
    expect(view.locator("article h3")).to_contain_text("hard")
    shown = view.locator("article").inner_text()
    opened(view, view.url)
    expect(filters(view).get_by_label("Benchmark")).to_have_value("hard")
    expect(filters(view).get_by_label("forced only")).to_be_checked()
    expect(view.locator("article h3")).to_contain_text(shown.splitlines()[0][:20])
    expect(view.locator(".detail output")).to_contain_text("(2 of ")


def test_an_address_of_the_page_stays_until_the_reader_is_used(view: Page, address: str) -> None:
    opened(view, f"{address}#tables")
    assert view.url.endswith("#tables")


def test_a_search_reads_the_problems_too(view: Page) -> None:
    filters(view).get_by_role("searchbox").fill("What is 2+1?")
    expect(view.locator("#reader .matches")).to_contain_text("56 of 168 trajectories")
    expect(view.locator(".question mark")).to_have_text("What is 2+1?")


def test_where_nothing_matches_it_says_so_and_offers_everything(view: Page) -> None:
    filters(view).get_by_role("searchbox").fill("no such text")
    empty = view.locator(".empty")
    expect(empty).to_contain_text("No response matches")
    empty.get_by_role("button", name="Show all").click()
    expect(view.locator("#reader .matches")).to_contain_text("168 of 168 trajectories")
    expect(empty).to_be_hidden()


def test_keys_work_after_a_filter_was_used(view: Page) -> None:
    filters(view).get_by_label("Strategy").select_option("separate")
    expect(view.locator(".detail output")).to_contain_text("(2 of 3)")
    view.keyboard.press("ArrowRight")
    expect(view.locator(".detail output")).to_contain_text("(3 of 3)")
    filters(view).get_by_label("flips between budgets").check()
    view.keyboard.press("ArrowDown")
    expect(view.locator("article h3")).to_contain_text("base")
    view.keyboard.press("ArrowLeft")
    expect(view.locator(".detail output")).to_contain_text("(2 of 3)")


@WIDE
def test_matrix_and_answer_share_a_screen(view: Page) -> None:
    view.locator(".reader").scroll_into_view_if_needed()
    view.evaluate("document.querySelector('.reader').scrollIntoView()")
    for part in (".detail .grid table", ".facts", ".panes"):
        box = view.locator(part).bounding_box()
        assert box is not None and box["y"] >= 0
        assert box["y"] + box["height"] <= 900


def test_tables_are_filtered_their_numbers_stand_right_and_their_first_column_stays(view: Page) -> None:
    place = view.locator("details", has=view.get_by_role("heading", name="Every cell"))
    if not place.evaluate("element => element.open"):
        place.locator("summary").click()
    place.get_by_role("searchbox").fill("hard trained separate")
    expect(place.locator("tbody tr:visible")).to_have_count(3)
    expect(place).to_contain_text("3 of 28 lines")
    expect(place.get_by_role("columnheader", name="tokens in all")).to_be_visible()
    number = place.locator("tbody td.number:visible").first
    assert number.evaluate("element => getComputedStyle(element).textAlign") == "right"
    first = place.locator("tbody tr:visible td:first-child").first
    before = first.bounding_box()
    place.locator(".scroll").evaluate("element => { element.scrollLeft = 150; }")
    assert before is not None and first.bounding_box() == before
    place.get_by_role("searchbox").fill("")


def test_the_reader_opens_at_the_advised_budget_of_a_problem_that_flips(view: Page) -> None:
    expect(view.locator("article h3")).to_contain_text("trained · separate")
    expect(view.locator(".detail output")).to_contain_text("budget 8+8")
    grid, cell = view.locator(".detail .grid"), view.locator(".detail .grid [aria-current=true]")
    inside = """(cell, box) => cell.getBoundingClientRect().right <= box.getBoundingClientRect().right"""
    assert cell.evaluate(inside, grid.element_handle())
    assert view.evaluate("scrollY") == 0
    filters(view).get_by_label("flips between budgets").check()
    first = view.locator(".list").get_by_role("option").first
    expect(first).to_contain_text("budget forcing")  # A larger budget loses the right answer.


def test_paper_has_every_column_and_no_control(page: Page, address: str) -> None:
    opened(page, address)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1030, "height": 728})  # A4, landscape, within its margins.
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    tables = page.locator("table:visible")
    wide = tables.evaluate_all("all => all.filter(each => each.getBoundingClientRect().right > innerWidth).length")
    assert wide == 0 and page.locator("#tables table:visible").count() == page.locator("#tables details").count()
    assert page.locator("input:visible, select:visible, nav:visible").count() == 0


@PHONE
def test_a_phone_folds_its_tables(view: Page) -> None:
    assert view.locator("#tables details[open]").count() == 0
    height = view.evaluate("document.documentElement.scrollHeight / innerHeight")
    assert height < 40


@EVERY
def test_axe_finds_nothing(view: Page) -> None:
    found = Axe().run(view)
    assert found.violations_count == 0, found.generate_report()
