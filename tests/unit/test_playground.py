"""The playground without an engine: what it refuses, who gets in, and what its page says."""

import asyncio
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import click.testing
import pytest

from elastic_core.budget import Budget
from elastic_core.data.problems import Problem
from elastic_core.engines.endpoint import Endpoint, EndpointParameters, Served, parse_address
from elastic_core.errors import UserError
from elastic_core.rewards import Grade, GradeStatus
from elastic_core.rewards.truth import MathTruth
from elastic_core.system import network
from elastic_core.trajectory import SolutionFinish, ThinkFinish, Trajectory
from flows.commands import playground
from flows.commands.answer import STRATEGY_NAMES, TYPED, Attempt, Loaded
from flows.commands.ask import pieces
from flows.commands.cli import cli
from flows.commands.playground import PlaygroundParameters, choices
from flows.commands.playground.session import Run
from flows.commands.playground.view import CSS, message, render
from flows.runtime.models import Models, find_models
from tests.served import BUDGETS, model_with_levels
from tests.unit.test_playground_live import END, EOS, MARKERS, WORD

PARAMETERS = PlaygroundParameters(max_question=100, max_reference=20)
PATIENCE = EndpointParameters(wait_seconds=0)
TAKEN = Problem("aime", "7", "What is 6 times 7?", "42", "math")


# What a visitor asks for.


def test_budgets_names_and_problems_are_read_from_the_page() -> None:
    assert choices.read_budget(48, False, 32, False) == Budget(48, 32)
    assert choices.read_budget(0, False, 32.0, True) == Budget(0, None)
    assert choices.read_budget(1, True, 1, True) == Budget(None, None)
    assert choices.read_names(["trained", "base"], {"base": 1, "trained": 2}, "model") == ("base", "trained")
    with pytest.raises(UserError, match="no strategy is chosen"):
        choices.read_names([], STRATEGY_NAMES, "strategy")
    assert choices.taken_problem([TAKEN], 1) == TAKEN, "counted from one"
    for number in (0, 2, 1.5, None, "1", True):
        with pytest.raises(UserError, match=r"1 to 1$"):
            choices.taken_problem([TAKEN], number)


def test_a_typed_sum_is_graded_by_its_computed_answer() -> None:
    for question, answer in (("36+6-4+8=?", "46"), (" 12 + 7 - 3 ", "16"), ("100+2000", "2100")):
        assert choices.read_problem(question, "", None, PARAMETERS).truth == MathTruth((answer,)).encode()
    assert choices.read_problem("36+6=?", "41", None, PARAMETERS).truth == MathTruth(("41",)).encode(), "as stated"
    for other in ("36+x=?", "What is 3+4?", "36", "6*7=?"):
        assert choices.read_problem(other, "", None, PARAMETERS).truth == ""


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("36+6-4+8=?", ""), ("What is the capital of France?", "this is no such sum"),
        ("200+1+2=?", "a first number beyond 10 to 60, a total beyond 10 to 99"),
        ("36+11-4=?", "a later number that is no single digit"), ("36+4+4=?", "an operation that occurs twice"),
        ("36+4=?", "fewer numbers than 3"),
    ],
)  # fmt: skip
def test_the_miniature_says_what_it_can_do_and_warns_beyond_that(question: str, reason: str) -> None:
    miniature, other = (find_models(name, {}, []) for name in ("embedded", "smoke"))
    for models in (miniature, other):
        warned = choices.warning(question, ("base",), models)
        assert warned == (f"{choices.ability(('base',), models)}Beyond its training: {reason}." if reason else "")
    assert choices.warning(question, ("mine",), miniature) == "", "of another model nothing is known"


def test_three_examples_are_offered() -> None:
    models = find_models("embedded", {}, [])
    problems = choices.benchmarks(models.run)
    (first, answer), (second, _), (typed, none) = choices.examples(problems, models)
    assert [first, second] == [given[0].question for given in problems.values()]
    assert (answer, typed, none) == (next(iter(problems.values()))[0].truth, choices.TYPED_SUM, "")


def test_strategies_and_models_have_names_for_people() -> None:
    labels = [choices.strategy_label(name) for name in STRATEGY_NAMES]
    assert len(set(labels)) == len(labels) and not any("_" in label for label in labels)
    assert choices.strategy_label("budget_forcing_wait2") == "budget forcing, 2 × Wait"
    run: Any = SimpleNamespace(settings=SimpleNamespace(base="agentica-org/DeepScaleR-1.5B-Preview"))
    far = Endpoint("far", (parse_address("http://gpu7:8000/v1#m"),), Served("vllm", "1", "", 9), None, PATIENCE)
    models = Models(run, {}, (), {"far": far})
    told = [models.label(name) for name in ("base", "trained", "trained@2", "far")]
    assert told == ["base: DeepScaleR-1.5B-Preview", "trained", "trained, seed 2", "far at gpu7:8000"]


def test_an_effort_level_is_the_budget_that_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))
    found = find_models("embedded", {}, [f"mine={model_with_levels(tmp_path / 'mine')}"])
    assert found.first == ("mine",) and list(found.directories) == ["mine", "base"]
    for effort, budget in BUDGETS.items():
        assert choices.read_level(effort, ["base", "mine"], found) == Budget(*budget), "base has none"
    with pytest.raises(UserError, match=r'"xhigh".* minimal, '):
        choices.read_level("xhigh", ["mine"], found)
    with pytest.raises(UserError, match=r"base .*: elastic plan budgets --from .*json$"):
        choices.read_level("low", ["base"], found)


def test_a_problem_that_was_taken_is_graded_as_its_benchmark_is() -> None:
    assert choices.read_problem(TAKEN.question, "42", TAKEN, PARAMETERS) == TAKEN
    for reference in ("", "42"):
        changed = choices.read_problem(TAKEN.question + "!", reference, TAKEN, PARAMETERS)
        assert (changed.benchmark, changed.truth) == (TYPED, ""), "it is another problem, with another answer"
    assert choices.read_problem(TAKEN.question + "!", "43", TAKEN, PARAMETERS).truth == "43"
    assert choices.read_problem("1+1?", " 2 ", None, PARAMETERS).truth == "2"
    text = '{"answers":'  # A reference that only looks like an encoded truth.
    assert MathTruth.decode(choices.read_problem("1+1?", text, None, PARAMETERS).truth).answers == (text,)


@pytest.mark.parametrize(
    ("question", "reference", "limit"),
    [
        *((text, "", "no problem") for text in ("", "  \n", None)),
        ("x" * 101, "", "101.*100"),
        ("1", "x" * 21, "21.*20"),
    ],
)
def test_problems_are_bounded(question: Any, reference: str, limit: str) -> None:
    with pytest.raises(UserError, match=limit):
        choices.read_problem(question, reference, None, PARAMETERS)


def test_a_problem_that_is_typed_over_is_no_longer_the_benchmarks() -> None:
    assert choices.edited(TAKEN.question, "42", TAKEN) == (True, "42")
    assert choices.edited(TAKEN.question + "!", "42", TAKEN) == (False, "")
    assert choices.edited(TAKEN.question + "!", "43", TAKEN) == (False, "43"), "what a visitor typed stays"
    assert choices.edited(TAKEN.question, "", TAKEN) == (True, "42"), "typed back, it is the problem again"


# Who gets in.


def test_loopback_alone_needs_no_password() -> None:
    for host in ("127.0.0.1", "127.0.0.9", "::1", "localhost"):
        playground.require_password(host, None)
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(UserError, match=f"{host}: .*{playground.PASSWORD_VARIABLE}"):
            playground.require_password(host, None)
        playground.require_password(host, "a password of the user")
    with pytest.raises(UserError, match=r"'nowhere\.invalid'"):
        network.is_loopback("nowhere.invalid")


def test_passwords_of_twelve_characters_come_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(playground.PASSWORD_VARIABLE, raising=False)
    assert playground.read_password(None) is None
    monkeypatch.setenv(playground.PASSWORD_VARIABLE, "of the environment")
    assert playground.read_password(None) == "of the environment"
    file = tmp_path / "password"
    file.write_text("of the file, first line\nnot this\n")
    assert playground.read_password(file) == "of the file, first line"
    file.write_text("")
    for wrong, found in ((file, "0 characters"), (tmp_path / "none", "none: ")):
        with pytest.raises(UserError, match=found):
            playground.read_password(wrong)
    monkeypatch.setenv(playground.PASSWORD_VARIABLE, "short")
    with pytest.raises(UserError, match=f"{playground.PASSWORD_VARIABLE}.* 5 .* 12 "):
        playground.read_password(None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0"),
        (["--model", "nowhere/at/all"], "nowhere/at/all"),
        (["--preset", "embeded"], '"embedded"'),
        (["--model", "http://127.0.0.1:9/v1#m"], "http://127.0.0.1:9/v1#m"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(playground.PASSWORD_VARIABLE, raising=False)
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path))
    result = click.testing.CliRunner().invoke(cli, ["playground", "--port", "7999", *arguments])
    assert isinstance(result.exception, UserError) and sentence in str(result.exception)


def test_no_option_takes_a_password_and_without_the_extra_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = click.testing.CliRunner().invoke(cli, ["playground", "--help"]).output
    assert "--password-file" in shown and "--password " not in shown
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = click.testing.CliRunner().invoke(cli, ["playground"])
    assert isinstance(result.exception, UserError) and "make install" in str(result.exception)


# What a request may be.


def guarded(scope: dict[str, Any], chunks: list[bytes] = []) -> tuple[list[dict[str, Any]], bytes]:  # noqa: B006
    """What is sent back by an application that reads its whole request and answers 200, and what it read."""
    sent: list[Any] = []
    waiting = list(chunks)
    read = bytearray()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(reply: Any) -> None:
        sent.append(reply)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = bool(chunks)
        while more:
            part = await receive()
            if part["type"] == "http.disconnect":
                return
            read.extend(part["body"])
            more = part["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})

    request = {"type": "http", "path": "/", "method": "GET", "headers": [], **scope}
    asyncio.run(playground.Guard(app, max_body=10)(request, receive, send))
    return sent, bytes(read)


def test_small_requests_pass_and_get_a_policy_that_names_no_other_host() -> None:
    (start,), read = guarded({"headers": [(b"content-length", b"4")]}, [b"ab", b"cd"])
    assert read == b"abcd" and start["status"] == 200
    policy = dict(start["headers"])[b"content-security-policy"].decode()
    assert "default-src 'self'" in policy and "//" not in policy


def test_large_requests_files_and_web_sockets_are_refused() -> None:
    for length in (b"11", b"-1", b"many"):
        (start, body), read = guarded({"headers": [(b"content-length", length)]}, [b"x" * 11])
        assert start["status"] == 413 and b"expected at most 10" in body["body"] and read == b"", "unread"
    sent, read = guarded({}, [b"x" * 8, b"x" * 8])
    assert sent == [] and len(read) == 8, "one that is longer than it said is cut off"
    (start, _), _ = guarded({"path": "/gradio_api/upload"})
    assert start["status"] == 403
    assert guarded({"path": "*", "method": "OPTIONS"})[0][0]["status"] == 200, "no defect of ours"
    assert guarded({"type": "websocket"}) == ([{"type": "websocket.close"}], b"")


def test_an_address_tries_five_logins_in_a_minute_and_all_of_them_sixty() -> None:
    now = 0.0
    logins = playground.Logins(lambda: now)
    assert [logins.allow("192.0.2.1") for _ in range(6)] == [True] * 5 + [False]
    assert [logins.allow(f"192.0.2.{number}") for number in range(2, 58)] == [True] * 55 + [False]
    now = 60.0
    assert logins.allow("192.0.2.1")
    guard = playground.Guard(lambda *_: asyncio.sleep(0), 10, logins=playground.Logins(lambda: 0.0))
    login = {"type": "http", "path": "/login", "method": "POST", "headers": []}
    refused = [guard._refusal({**login, "client": (f"2001:db8::{number}", 1)}) for number in range(6)]
    assert [refusal is None for refusal in refused] == [True] * 5 + [False], "an IPv6 network is one address"


# What the page says.


class Letters:
    """A tokenizer whose words are hostile and whose first token loses its leading space, as some do."""

    texts: ClassVar = {END: "</think>", EOS: "<eos>", WORD: " <img src=x onerror=alert(1)>"} | {
        3: "\n", 4: " ${Final}", 5: " {{Wait}}",
    }  # fmt: skip

    def decode(self, ids: tuple[int, ...], **_: Any) -> str:
        return "".join(self.texts.get(i, f" {i}") for i in ids).removeprefix(" ")


def shown(attempt: Attempt) -> str:
    loaded = Loaded("base", None, Letters(), MARKERS)  # type: ignore[arg-type]
    problem = Problem("b", "1", "<script>alert(1)</script>", "42", "math")
    return rendered(Run(("base",), problem, ("separate",), attempt.budget, 0), [attempt], {"base": loaded})


def rendered(run: Run, attempts: list[Attempt], loaded: dict[str, Loaded]) -> str:
    run.attempts, run.loaded, run.finished = attempts, loaded, True
    return render(run)


def trajectory(*ids: int, forced: tuple[int, ...] = (), start: int | None = None) -> Trajectory:
    flags = tuple(i in forced for i in range(len(ids)))
    finish = ThinkFinish.FORCED if forced else ThinkFinish.CLOSED
    return Trajectory((7,), ids, flags, start, finish, SolutionFinish.STOP)


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_model_text_is_text() -> None:
    grade = Grade(0.0, GradeStatus.WRONG, "<b>1</b>")
    done = trajectory(WORD, WORD, END, 4, EOS, forced=(2,), start=3)
    attempt = Attempt("base", "separate", Budget(2, 8), "done", done, grade, "<i>why</i>")
    page = Tags(shown(attempt))
    assert page.found <= {"div", "section", "header", "h3", "span", "p", "b", "i", "mark"}
    assert page.attributes <= {"class", "role", "style", "title", "aria-label"} | {
        name for name in page.attributes if name.startswith("data-")
    }
    for text in ("<img src=x onerror=alert(1)>", "${Final}", "<b>1</b>", "<i>why</i>"):
        assert text in page.text
    assert Tags(message("<script>x</script>", "error")).found == {"div"}


def test_the_cut_is_where_the_thinking_was_cut_and_what_we_wrote_is_marked() -> None:
    html = shown(Attempt("base", "separate", Budget(2, 8), "done", trajectory(9, 9, END, 9, EOS, forced=(2,), start=3)))
    assert '9 9<span class="pg-cut">✂ cut here</span>' in html and "/think" not in html
    for name, count in (("thinking", 2), ("solution", 2), ("forced", 1)):
        assert f'data-count="{name}">{count}<' in html
    assert 'data-limit="2" style="left:40.000%"' in html
    html = shown(Attempt("base", "separate", Budget(0, 8), "done", trajectory(END, 9, EOS, forced=(0,), start=1)))
    assert '<span class="pg-cut">✂ cut here</span>' in html


def test_vanilla_is_cut_by_the_sum() -> None:
    cut = Trajectory((7,), (9, 9, 9), (False,) * 3, None, ThinkFinish.LENGTH, SolutionFinish.NOT_APPLICABLE)
    html = shown(Attempt("base", "vanilla", Budget(2, 1), "done", cut))
    assert "together 3 of 3" in html and 'data-limit="3"' in html
    assert "cut after 3 tokens" in html


def test_pieces_are_the_text_without_the_last_end_of_text() -> None:
    whole = trajectory(9, 9, 3, END, 3, 4, 9, EOS, forced=(2, 3, 4, 5), start=4)
    found = pieces(Letters(), MARKERS, whole)
    assert [(piece.text, piece.solution, piece.forced) for piece in found] == [
        ("9 9", False, False),
        ("\n", False, True),
        ("", False, True),
        ("\n ${Final}", True, True),
        (" 9", True, False),
    ]


def test_two_models_stand_beside_each_other_strategy_by_strategy() -> None:
    done = trajectory(9, 9, END, 9, EOS, forced=(2,), start=3)
    closed = Trajectory((7,), (9, END, 9), (False,) * 3, 2, ThinkFinish.CLOSED, SolutionFinish.STOP)
    attempts = [
        Attempt("base", "separate", Budget(2, 8), "done", done, Grade(0.0, GradeStatus.WRONG, "41")),
        Attempt("trained", "separate", Budget(2, 8), "done", closed, Grade(1.0, GradeStatus.CORRECT, "42")),
    ]
    loaded = Loaded("base", None, Letters(), MARKERS)  # type: ignore[arg-type]
    run = Run(("base", "trained"), TAKEN, ("separate",), Budget(2, 8), 3)
    page = Tags(rendered(run, attempts, {"base": loaded, "trained": loaded}))
    told = page.text
    assert TAKEN.question in told and "aime 7 · budget 2+8 · sample 3" in told
    base, trained = told.index("base · separate"), told.index("trained · separate")
    assert base < told.index("✗ wrong: 415 tokensforced") < trained < told.index("✓ correct: 423 tokensnot forced")


def test_what_has_not_begun_says_what_it_waits_for_or_why_it_cannot() -> None:
    loaded = Loaded("base", None, Letters(), MARKERS)  # type: ignore[arg-type]
    run = Run(("base", "trained"), TAKEN, ("separate",), Budget(2, 8), 0)
    assert "the engine of base and trained" in render(run)
    run.loaded["base"] = loaded
    told = Tags(render(run)).text
    assert "the engine of trained" in told and "the engine of base" not in told and "waiting" in told
    refused = shown(Attempt("base", "l1_exact", Budget(None, 8), "failed", sentence="it needs a limited budget"))
    assert "it needs a limited budget" in refused and "waiting" not in refused


def test_a_colour_has_one_meaning() -> None:
    named = dict(re.findall(r"--pg-(\w+): (#\w+);", CSS))
    assert named.keys() == {"thinking", "solution", "forced", "right", "wrong"}
    assert len(set(named.values())) == len(named)
    others = set(re.findall("#[0-9a-f]{3,6}", CSS)) - set(named.values())
    assert others == {"#000", "#fff"}, "of text on a colour"
