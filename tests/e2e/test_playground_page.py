"""`elastic playground` in a browser: a process of its own, a problem run, a slider moved, nothing asked of any other
host. `page` fails its test on an error in the console and on a request to anywhere else."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from elastic_core.engines.endpoint import Served
from elastic_core.system.network import free_ports
from elastic_core.system.retry import wait_until
from flows.commands.playground.choices import TYPED_SUM
from tests.browser import watched
from tests.command_lines import command_lines
from tests.elastic_command import ELASTIC, environment
from tests.served import BASE, model_with_levels

GONE = "http://127.0.0.1:9/v1#gone"
"""Nothing listens there: it is the port of a service that no longer is anywhere."""
ENGINE_MS = 600_000
"""An engine starts in half a minute on an idle machine."""
RUN_MS = 600_000
HOSTILE = '<img src=x onerror="document.title=1"> ${document.title=2} {{value}} 12+3=?'


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a server that was there once, as `elastic` remembers it."""
    runs = tmp_path_factory.mktemp("runs")
    said = {GONE: Served("vllm", "0.29", str(BASE), 320)._asdict()}
    (runs / "servers.json").write_text(json.dumps(said))
    return runs


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    """A page of base, of the same model with effort levels, with which it begins, and of the server."""
    settings = (f"sweep.checkpoints.gone={GONE}", f"sweep.tokenizers.gone={BASE}")
    given = [part for text in settings for part in ("--set", text)]
    (port,) = free_ports(1)
    model = model_with_levels(runs / "levelled")
    process = subprocess.Popen(
        [ELASTIC, "playground", "--port", str(port), "--model", f"levelled={model}", *given],
        env={**environment(runs), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=(runs / "terminal").open("w"),
        text=True,
    )
    assert process.stdout is not None
    found = re.match(r"playground: (http://127\.0\.0\.1:\d+/\S*)[; ]", process.stdout.readline())
    assert found is not None, (runs / "terminal").read_text()[-3000:]
    address = found[1].removesuffix(";")

    def answers() -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(address, trust_env=False, timeout=10).status_code > 0
        return False

    assert wait_until(answers, 600, every=0.2)
    yield address
    # It ends in time, and its engine with it.
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(600) == 0
    assert not psutil.wait_procs(family, timeout=600)[1]


@pytest.fixture(
    params=[
        {"width": 1440, "dark": False},
        pytest.param({"width": 390, "dark": False}, marks=pytest.mark.slow),
        pytest.param({"width": 1440, "dark": True}, marks=pytest.mark.slow),
    ],
    ids=["desk", "phone", "dark"],
)
def view(request: pytest.FixtureRequest, browser: Browser, address: str) -> Iterator[Page]:
    """The page as it is on a screen, on a telephone and in the dark."""
    scheme = "dark" if request.param["dark"] else "light"
    with watched(browser, viewport={"width": request.param["width"], "height": 900}, color_scheme=scheme) as page:
        page.goto(address)
        expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible()
        yield page


def card(page: Page, strategy: str, model: str = "levelled") -> Locator:
    return page.locator(f".pg-card[data-strategy={strategy}][data-model={model}]")


def choose_model(page: Page, name: str | re.Pattern[str]) -> None:
    """Beside those that are chosen."""
    page.get_by_label("Models").click()
    page.get_by_role("option", name=name).click()
    page.keyboard.press("Escape")


def colours(found: Locator) -> tuple[str, str]:
    """Of text and background, as a browser computes them."""
    style = found.first.evaluate("e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor]")
    return style[0], style[1]


def contrast(colour: str, other: str) -> float:
    """WCAG 2.2's contrast ratio of two colours "rgb(0, 0, 0)"."""

    def luminance(text: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", text)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(colour), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def count(page: Page, strategy: str, name: str) -> int:
    return int(card(page, strategy).locator(f"[data-count={name}]").inner_text())


def run(page: Page) -> None:
    """Press the button, and wait for the end."""
    before = page.locator(".pg-cards").count()
    page.get_by_role("button", name="Run", exact=True).click()
    if not before:
        expect(page.locator(".pg-cards")).to_be_visible(timeout=ENGINE_MS)
    finished(page)


def finished(page: Page) -> None:
    page.wait_for_timeout(500)  # The answer before this one is still shown.
    expect(page.locator(".pg-note", has_text="tokens drawn")).to_be_visible(timeout=RUN_MS)


def cut(page: Page, strategy: str) -> float:
    """Where the bar says that the budget cuts, in pixels."""
    limit = card(page, strategy).locator(".pg-limit").bounding_box()
    assert limit is not None
    return limit["x"]


def drag_thinking_budget(page: Page, tokens: int) -> int:
    """The budget that the slider shows after it was dragged with the mouse to about so many tokens. On a busy machine
    the page may still move, and the mouse miss."""
    slider, number = (
        page.get_by_role("slider").first,
        page.get_by_label("number input for Thinking budget t, in tokens"),
    )
    before = number.input_value()
    for _ in range(10):
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * int(before) / 384, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * tokens / 384, box["y"] + box["height"] / 2)
        page.mouse.up()
        page.wait_for_timeout(1000)
        if number.input_value() != before:
            break
    expect(number).to_have_value(re.compile(rf"^({'|'.join(map(str, range(tokens - 8, tokens + 9)))})$"))
    return int(number.input_value())


def test_a_problem_runs_and_a_moved_slider_moves_the_cut(page: Page, address: str, tmp_path: Path) -> None:
    page.goto(address)
    page.get_by_label("Benchmark").click()
    page.get_by_role("option", name=re.compile("miniature-hard")).click()
    expect(page.get_by_label("Problem", exact=True)).to_have_value(re.compile(r"^\d+([+-]\d){7,11}=\?$"))
    run(page)
    assert count(page, "separate", "thinking") == 48
    assert count(page, "separate", "forced") == 1 and count(page, "vanilla", "forced") == 0
    assert "thinking cut after 48 tokens, closed by us" in card(page, "separate").inner_text()
    expect(card(page, "budget_forcing").locator(".pg-verdict")).to_have_text(re.compile("^[✓✗]"))
    page.screenshot(path=tmp_path / "48.png", full_page=True)

    before, thought = cut(page, "separate"), card(page, "separate").locator(".pg-thought").inner_text()
    t = drag_thinking_budget(page, 24)
    expect(card(page, "separate").locator("[data-count=thinking]")).to_have_text(str(t), timeout=RUN_MS)
    finished(page)
    assert f"thinking cut after {t} tokens, closed by us" in card(page, "separate").inner_text()
    assert cut(page, "separate") < before
    shorter = card(page, "separate").locator(".pg-thought").inner_text().partition("✂")[0].strip()
    assert thought.startswith(shorter), "the same thought, cut earlier"
    page.screenshot(path=tmp_path / "24.png", full_page=True)

    page.get_by_label("t unlimited").check()
    expect(card(page, "separate")).to_contain_text("thinking closed by the model", timeout=RUN_MS)
    assert count(page, "separate", "forced") == 0 and count(page, "separate", "thinking") > 48


@pytest.mark.slow  # Of engines that share a machine, tests/integration/test_playground.py asks the same.
def test_two_models_answer_beside_each_other_under_an_effort_level(view: Page, tmp_path: Path) -> None:
    page = view
    choose_model(page, "base")
    page.get_by_label("low", exact=True).check()
    expect(page.get_by_label("number input for Thinking budget t, in tokens")).to_have_value("16", timeout=ENGINE_MS)
    expect(page.get_by_label("number input for Solution budget s, in tokens")).to_have_value("8")
    finished(page)
    expect(page.get_by_label("low", exact=True)).to_be_checked()
    assert "miniature-easy tune-0 · budget 16+8 · sample 0" in page.locator(".pg-asked").inner_text()
    for strategy in ("vanilla", "budget_forcing", "separate"):
        pair = [card(page, strategy, model) for model in ("levelled", "base")]
        left, right = (each.bounding_box() for each in pair)
        assert left is not None and right is not None
        if page.evaluate("innerWidth") > 1000:
            assert left["y"] == right["y"] and left["x"] + left["width"] < right["x"]
        else:
            assert left["x"] == right["x"] and left["y"] + left["height"] < right["y"]
        # The same weights and the same seed: all that is told of their answers is the same.
        badges, same = (each.locator(".pg-badge").all_inner_texts() for each in pair)
        assert badges == same and badges[1].endswith(" tokens")
        assert badges[0][0] in "✓✗" and badges[2] == ("not forced" if strategy == "vanilla" else "forced")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off at the side"
    page.screenshot(path=tmp_path / "pair.png", full_page=True)


def test_a_colour_has_one_meaning_and_text_on_it_is_read(view: Page) -> None:
    page = view
    page.get_by_label("high", exact=True).check()
    expect(page.locator(".pg-asked")).to_contain_text("budget 160+24", timeout=ENGINE_MS)
    finished(page)
    right = page.locator(".pg-right")
    expect(right.first).to_be_visible()
    shown = {"right": colours(right)[1], "control": colours(page.get_by_role("button", name="Run", exact=True))[1]}
    page.get_by_label("low", exact=True).check()
    expect(page.locator(".pg-asked")).to_contain_text("budget 16+8")
    finished(page)
    bar = card(page, "separate").locator(".pg-bar")
    shown |= {name: colours(bar.locator(f".pg-{name}"))[1] for name in ("thinking", "solution", "forced")}
    shown["wrong"] = colours(page.locator(".pg-wrong"))[1]
    assert len(set(shown.values())) == len(shown), shown
    assert colours(card(page, "budget_forcing").locator("mark"))[1] == shown["forced"]
    for written in (page.locator(".pg-wrong"), page.locator("mark"), page.locator(".pg-badge.pg-forced")):
        assert contrast(*colours(written)) >= 4.5


def test_a_problem_that_is_typed_over_loses_its_number_and_its_verdict(view: Page) -> None:
    page = view
    number, problem = page.get_by_label("Its problem number"), page.get_by_label("Problem", exact=True)
    reference, taken = page.get_by_label("Reference answer, if known"), problem.input_value()
    expect(number).to_have_value("1")
    expect(reference).to_have_value("59")
    problem.fill("What is 59-4-5?")
    expect(number).to_have_value("")
    expect(reference).to_have_value("")
    run(page)
    expect(card(page, "separate").locator(".pg-verdict")).to_have_text("not graded")
    assert "your problem" in page.locator(".pg-asked").inner_text()
    page.get_by_role("button", name=TYPED_SUM).click()
    expect(problem).to_have_value(TYPED_SUM)
    run(page)
    expect(card(page, "separate").locator(".pg-verdict")).to_have_text(re.compile("^[✓✗]"))
    problem.fill(taken)
    expect(number).to_have_value("1")
    expect(reference).to_have_value("59")
    number.fill("2")
    expect(problem).not_to_have_value(taken)
    expect(number).to_have_value("2")


def test_a_budget_that_is_moved_is_no_level_and_a_model_without_levels_says_how_to_have_them(view: Page) -> None:
    page = view
    page.get_by_label("minimal", exact=True).check()
    expect(page.locator(".pg-asked")).to_contain_text("budget 4+6", timeout=ENGINE_MS)
    finished(page)
    page.get_by_label("s unlimited").check()
    expect(page.get_by_label("minimal", exact=True)).not_to_be_checked()
    page.get_by_label("Models").press("Backspace")  # Takes the last one out.
    choose_model(page, "base")
    page.get_by_label("low", exact=True).check()
    refusal = page.get_by_role("alert").filter(
        has_text="no level of base was measured; to have them: elastic plan budgets"
    )
    expect(refusal).to_be_visible()
    expect(page.get_by_label("low", exact=True)).not_to_be_checked()


def test_a_dead_server_is_one_sentence_beside_the_model_that_answers(view: Page) -> None:
    page = view
    choose_model(page, f"gone at {urlsplit(GONE).netloc}")
    run(page)
    expect(card(page, "separate").locator(".pg-verdict")).to_have_text(re.compile("^[✓✗]"))
    told = card(page, "separate", "gone").locator(".pg-finish").inner_text()
    assert told.startswith(f"{GONE} does not answer: ") and told.endswith("; start that server, then run again")
    expect(card(page, "separate", "gone").locator(".pg-badge")).to_have_text("did not run")


def test_what_engines_say_is_in_a_log_and_the_token_nowhere(runs: Path, page: Page, address: str) -> None:
    page.goto(address)
    run(page)
    log, token = (runs / "embedded" / "playground.log").read_text(), address.split("/")[3]
    assert "EngineCore" in log and token not in log
    assert not [line for line in command_lines() if token in line]
    assert (runs / "terminal").read_text() == ""


def test_what_is_typed_and_what_the_model_says_is_text(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_label("Problem", exact=True).fill(HOSTILE)
    expect(page.get_by_label("Reference answer, if known")).to_have_value("")
    run(page)
    expect(card(page, "separate").locator(".pg-verdict")).to_have_text("not graded")
    assert page.locator(".pg-cards img").count() == 0
    assert page.title() == "Elastic Reasoning playground"
    page.get_by_label("Reference answer, if known").fill("15")
    run(page)
    expect(card(page, "separate").locator(".pg-verdict")).to_have_text(re.compile("^[✓✗]"), timeout=RUN_MS)


def test_mistakes_are_sentences(page: Page, address: str) -> None:
    """They show for ten seconds, so each is looked for as soon as it is made."""
    page.goto(address)

    def told(sentence: str) -> None:
        expect(page.get_by_role("alert").filter(has_text=sentence)).to_be_visible(timeout=ENGINE_MS)

    page.get_by_label("Its problem number").fill("4711")
    told("the problem's number is 4711; expected a whole number of 1 to 100")
    button = page.get_by_role("button", name="Run", exact=True)
    page.get_by_label("Sample").fill("-3")
    button.click()
    told("the sample is -3; expected a whole number of 0 to 2,147,483,647")
    page.get_by_label("Problem", exact=True).fill("  ")
    page.get_by_label("Sample").fill("0")
    button.click()
    told("there is no problem yet")
    assert "Traceback" not in page.content()


def test_more_runs_than_may_queue_are_refused(address: str) -> None:
    """Two at a time and eight in the queue by default; a user who joins does not wait for an answer here."""
    fields = [["levelled"], "12+3=?", "", None, ["unconstrained"], 48, False, 32, False]
    with httpx.Client(base_url=address, trust_env=False, timeout=600) as client:
        answers = [
            client.post(
                "/gradio_api/queue/join",
                json={"data": [*fields, sample], "fn_index": 0, "session_hash": f"visitor{sample}"},
            )
            for sample in range(1000, 1040)
        ]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(answers) - len(refused) >= 10
    assert refused and all(answer.status_code == 503 and "full" in answer.text for answer in refused)
