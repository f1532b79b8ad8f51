"""The report in a real browser, opened from disk: sorting, reading, filtering, searching, and hostile text.

The fixtures `browser` and `page` fail a test whose page reports an error or asks for anything outside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from elastic_core.data.problems import Problem
from reports.build import build_report
from reports.content import ReportSources
from tests.browser import watched
from tests.report_tables import HOSTILE, THOUGHT, row, small_table, table

REPORT = "report.html"


def write_report(rows: pl.DataFrame, directory: Path) -> str:
    """The address of its page."""
    keys = rows.select("benchmark", "problem").unique().rows()
    problems = {key: Problem(*key, question="What is 2+2?", truth="4", grader="math") for key in keys}
    sources = ReportSources(
        rows.lazy(), problems=problems, provenance={"preset": "test"}, documents={"sweep": {"samples": 2}}
    )
    build_report(sources, directory)
    return (directory / REPORT).as_uri()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(small_table(), tmp_path_factory.mktemp("report"))


@pytest.fixture
def reader(page: Page, report: str) -> Page:
    page.goto(report)
    expect(lines(page).first).to_be_visible()
    page.evaluate("for (const each of document.querySelectorAll('#tables details')) each.open = true")
    return page


def filters(page: Page) -> Locator:
    """The reader's form."""
    return page.get_by_role("search", name="Which trajectories to list")


def lines(page: Page) -> Locator:
    return page.locator(".list").get_by_role("option")


def matches(page: Page) -> Locator:
    """The line that counts what is listed."""
    return page.locator(".matches")


def pane(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def column(page: Page, heading: str, position: int) -> list[str]:
    """A table's column, from top to bottom."""
    table = page.locator("details", has=page.get_by_role("heading", name=heading)).locator("tbody")
    return table.locator(f"td:nth-child({position})").all_inner_texts()


def test_the_page_opens_with_its_verdict_its_figures_and_its_provenance(reader: Page, report: str) -> None:
    verdict = reader.get_by_role("heading", level=1).inner_text()
    assert verdict in Path(urlsplit(report).path).with_suffix(".md").read_text()
    figures = reader.locator("figure img")
    assert figures.count() > 3
    assert all(
        figure.evaluate("image => image.decode().then(() => image.naturalWidth > 100)") for figure in figures.all()
    )
    expect(reader.locator("#provenance")).to_contain_text("test")
    reader.get_by_role("heading", name="sweep").click()
    expect(reader.locator("#provenance pre")).to_contain_text('"samples": 2')


def test_a_click_on_a_columns_name_sorts_and_the_third_restores(reader: Page) -> None:
    heading = "What a response costs"
    budget = reader.locator("details", has=reader.get_by_role("heading", name=heading)).get_by_role(
        "button", name="budget"
    )
    given = column(reader, heading, 4)
    budget.click()
    assert column(reader, heading, 4) == sorted(given, key=lambda text: int(text.split("+")[0]))
    budget.click()
    assert column(reader, heading, 4) == sorted(given, key=lambda text: -int(text.split("+")[0]))
    budget.click()
    assert column(reader, heading, 4) == given


def test_numbers_sort_as_numbers(reader: Page) -> None:
    heading = "What a response costs"
    place = reader.locator("details", has=reader.get_by_role("heading", name=heading))
    place.get_by_role("button", name="accuracy (%)").click()
    values = [float(text.split(" ")[0]) for text in column(reader, heading, 9)]
    assert values == sorted(values)
    expect(place.get_by_role("columnheader", name="accuracy (%)")).to_have_attribute("aria-sort", "ascending")


def test_arrow_keys_step_through_budgets_and_the_cut_moves(reader: Page) -> None:
    filters(reader).get_by_role("combobox", name="Strategy").select_option("separate")
    expect(lines(reader)).to_have_count(12)
    lines(reader).first.click()
    reader.keyboard.press("ArrowLeft")
    expect(pane(reader, "Thought")).to_contain_text("cut after 4 tokens")
    expect(pane(reader, "Thought").locator(".written").first).to_have_text(" ".join(THOUGHT.split(" ")[:4]))
    expect(pane(reader, "Thought").locator(".insertion")).to_have_text("end, 1 token")
    expect(reader.locator(".facts")).to_contain_text("wrong")
    reader.keyboard.press("ArrowRight")
    expect(pane(reader, "Thought")).to_contain_text("cut after 8 tokens")
    expect(reader.locator(".facts")).to_contain_text("the answer is right")
    expect(reader.locator(".facts")).to_contain_text("Reference4")
    reader.keyboard.press("ArrowLeft")
    expect(pane(reader, "Thought")).to_contain_text("cut after 4 tokens")


def test_the_slider_and_the_grid_lead_to_the_same_trajectories(reader: Page) -> None:
    slider = reader.get_by_role("slider", name="Budget")
    slider.focus()
    slider.press("End")
    expect(reader.locator("output")).to_have_text("budget 16+8 tokens (3 of 3)")
    expect(reader.get_by_role("button", name="Larger budget", exact=True)).to_be_disabled()
    reader.get_by_role("button", name="base · separate, budget 8+8: right, closed by force").click()
    expect(reader.locator("output")).to_have_text("budget 8+8 tokens (2 of 3)")
    expect(reader.locator("article h3")).to_contain_text("separate")


def test_what_follows_a_cut_is_shown_apart_and_may_be_hidden(reader: Page) -> None:
    ghost = pane(reader, "Thought").locator(".ghost")
    expect(ghost).to_contain_text("under a larger budget it went on")
    reader.get_by_label("how it went on").uncheck()
    expect(ghost).to_be_hidden()


def test_what_budget_forcing_wrote_is_marked_in_both_phases(reader: Page) -> None:
    filters(reader).get_by_role("combobox", name="Strategy").select_option("budget_forcing")
    expect(pane(reader, "Thought").locator(".insertion")).to_have_text("end")
    expect(pane(reader, "Solution").locator(".insertion")).to_have_text("⏎\nFinal Answer:")
    expect(pane(reader, "Solution").locator(".written")).to_have_text("It is 4")


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        (["wrong only"], "42 of 72 trajectories, in 24 series"),
        (["forced only"], "60 of 72 trajectories, in 24 series"),
        (["wrong only", "flips between budgets"], "24 of 72 trajectories, in 18 series"),
    ],
)
def test_filters_leave_what_they_name(reader: Page, chosen: list[str], found: str) -> None:
    for name in chosen:
        reader.get_by_label(name).check()
    expect(matches(reader)).to_contain_text(found)


def test_problem_and_sample_are_picked_within_a_benchmark(reader: Page) -> None:
    filters(reader).get_by_role("combobox", name="Benchmark").select_option("hard")
    filters(reader).get_by_role("combobox", name="Problem").select_option(label="2")
    filters(reader).get_by_role("combobox", name="Sample").select_option("1")
    expect(lines(reader)).to_have_count(2)
    expect(reader.locator("article h3")).to_contain_text("hard, problem 2, sample 1")
    filters(reader).get_by_role("button", name="Show all").click()
    expect(matches(reader)).to_contain_text("72 of 72 trajectories")


def test_a_search_finds_texts_up_to_where_they_were_cut(reader: Page) -> None:
    filters(reader).get_by_role("searchbox").fill("BUT WAIT")
    # The ninth word: thoughts of 4 and of 8 tokens do not reach it.
    expect(matches(reader)).to_contain_text("24 of 72 trajectories, in 24 series")
    expect(pane(reader, "Thought").locator("mark").first).to_have_text("But wait")
    filters(reader).get_by_role("searchbox").fill("[no such text]")
    expect(matches(reader)).to_contain_text("0 of 72 trajectories")
    expect(reader.get_by_role("article")).to_be_hidden()


def test_the_list_is_walked_by_keyboard(reader: Page) -> None:
    reader.locator(".list").focus()
    reader.keyboard.press("End")
    expect(reader.locator("article h3")).to_contain_text("hard, problem 2, sample 1")
    reader.keyboard.press("ArrowUp")
    expect(lines(reader).and_(reader.locator("[aria-selected=true]"))).to_contain_text("budget forcing")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every text a model or a data set can write, written by someone unfriendly."""
    rows = [
        row(problem=f"{number} {text}", think_budget=t, thinking=text, solution=f"{text} {t}", answer=text)
        for number, text in enumerate(HOSTILE)
        for t in (20, 40)
    ]
    return write_report(table(*rows), tmp_path_factory.mktemp("hostile"))


def test_hostile_text_stays_text(page: Page, hostile: str) -> None:
    page.goto(hostile)
    expect(lines(page)).to_have_count(len(HOSTILE))
    for number, text in enumerate(HOSTILE):
        lines(page).nth(number).click()
        expect(page.locator("article h3")).to_contain_text(f"problem {number}")
        # Texts are unpacked after the heading is there.
        expect(pane(page, "Thought").locator(".written").first).to_have_js_property("textContent", text)
    expect(page).to_have_title(re.compile("token budget"))
    assert page.locator("article img, article script").count() == 0
    assert (
        pane(page, "Thought").locator(".written").first.evaluate("node => getComputedStyle(node).unicodeBidi")
        == "isolate"
    )


def test_what_is_injected_all_the_same_may_not_run(browser: Browser, report: str) -> None:
    with browser.new_page() as page:
        page.goto(report)
        page.evaluate("""() => {
            const script = document.createElement('script');
            script.textContent = "document.title = 'owned'";
            document.body.append(script);
        }""")
        expect(page).to_have_title(re.compile("token budget"))
        assert page.evaluate("fetch('data:,x').then(() => 'fetched', () => 'refused')") == "refused"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """As many trajectories as a page holds."""
    return write_report(small_table(num_problems=416, num_samples=10), tmp_path_factory.mktemp("large"))


@pytest.mark.slow
def test_fifty_thousand_trajectories_stay_usable(page: Page, large: str) -> None:
    page.goto(large)
    expect(matches(page)).to_contain_text("49,920 of 49,920 trajectories")
    assert lines(page).count() < 40
    page.locator(".list").focus()
    page.keyboard.press("End")
    expect(page.locator("article h3")).to_contain_text("hard, problem 415, sample 9")
    page.get_by_label("wrong only").check()
    expect(matches(page)).to_contain_text("29,120 of 49,920 trajectories")
    filters(page).get_by_role("searchbox").fill("five")
    expect(matches(page)).to_contain_text("8,320 of 49,920 trajectories")


@pytest.fixture(params=[{"viewport": {"width": 360, "height": 700}}, {"color_scheme": "dark"}], ids=["narrow", "dark"])
def other_page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    with watched(browser, **request.param) as page:
        yield page


def test_it_fits_narrow_windows_and_dark_ones(other_page: Page, report: str) -> None:
    other_page.goto(report)
    expect(lines(other_page).first).to_be_visible()
    assert other_page.evaluate("document.documentElement.scrollWidth <= innerWidth")
