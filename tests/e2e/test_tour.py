"""A newcomer's first hour: ten commands as they are meant, and as they are misspelt. What is right shows something.
What is misspelt is answered by one sentence with what was probably meant, and by exit status 2."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from elastic_core.miniature.warm_start import BASE
from elastic_core.models.special_tokens import load_markers
from elastic_core.sweep.table import SweepTable
from tests.api_server import ApiServer, listening
from tests.documents import commands, page
from tests.elastic_command import elastic_here, environment
from tests.exactness import broken_rules
from tests.first_line import heavy_before
from tests.plain_install import ENGINES, install

Typed = Callable[[str], str]

KEY = "s3cret-key-of-the-server"

EVALUATION = commands(page("evaluate"))
"""What docs/evaluate.md has its reader type, in order."""


@pytest.fixture(scope="module")
def toured(first: subprocess.CompletedProcess[str], runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the demo in small left behind, to look around in."""
    assert first.returncode == 0, first.stdout[-6000:]
    return Path(shutil.copytree(runs, tmp_path_factory.mktemp("tour") / "runs"))


@pytest.fixture
def right(toured: Path) -> Typed:
    def answer(command: str) -> str:
        done = elastic_here(*shlex.split(command), runs=toured)
        assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}"
        return done.stdout

    return answer


@pytest.fixture
def wrong(toured: Path) -> Typed:
    def answer(command: str) -> str:
        refused = elastic_here(*shlex.split(command), runs=toured)
        assert refused.returncode == 2, f"{command}: {refused.stdout[-3000:]}"
        (sentence,) = refused.stdout.splitlines()
        assert sentence.startswith("error: ")
        return sentence

    return answer


@pytest.fixture(scope="module")
def own_problems(toured: Path) -> str:
    """The reader's own benchmark, by its name."""
    rows = [{"question": f"{n}+{n}=?", "answer": str(n + n)} for n in range(10, 13)]
    (toured / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    added = elastic_here(
        *("data", "add", str(toured / "own.jsonl"), "--question", "question", "--answer", "answer"), runs=toured
    )
    assert added.returncode == 0, added.stdout
    return "own"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command where nothing is installed but what `pip install elastic-reasoning[pipeline]` brings."""
    return install(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def evaluated(plain: Path, toured: Path, own_problems: str) -> str:
    """What the page's `elastic evaluate` says there of a model that a server here draws from, in small."""
    (command,) = (line for line in EVALUATION if line.startswith("elastic evaluate OWNER/NAME"))
    small = "--budget 8+8 --budget 16+8 --samples 1 --set sweep.max_response_tokens=24"
    variables = {name: value for name, value in environment(toured).items() if not name.startswith("PYTHON")}
    with listening(ApiServer(load_markers(BASE)[0], key=KEY)) as server:
        model = f"{server.address} --tokenizer {BASE}"
        command = command.replace("OWNER/NAME", model).replace("math500", own_problems)
        done = subprocess.run(
            [plain, *shlex.split(f"{command} {small}")[1:]],
            cwd=plain.parent,
            env=variables | {"ELASTIC_API_KEY_DRAWN": KEY},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=1700,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def test_a_newcomers_tour(
    first: subprocess.CompletedProcess[str],
    toured: Path,
    right: Typed,
    wrong: Typed,
    own_problems: str,
    evaluated: str,
) -> None:
    assert "presets" in right("--help") and "--preset" in right("run --help")
    assert 'did you mean "--help"?' in wrong("help")
    assert 'did you mean "--help"?' in wrong("--hepl")

    assert "smollm2-135m" in right("presets")
    assert 'did you mean "presets"?' in wrong("presest")

    assert "failure" not in right("doctor --preset smoke")
    assert 'did you mean "doctor"?' in wrong("docter")
    assert 'did you mean "smoke"?' in wrong("doctor --preset smok")

    assert "(6 problems) × 2 samples" in right("plan sweep --preset smoke")
    assert 'did you mean "sweep"?' in wrong("plan sweeps")
    assert 'did you mean "budgets"?' in wrong("plan sweep --preset smoke --set sweep.budget=48+32")
    assert 'expected thinking + solution, like "48+512"' in wrong("plan sweep --preset smoke --set sweep.budgets=48")

    # The demo, in small.
    assert first.stdout.strip().endswith("report.html")
    assert 'did you mean "pipeline"?' in wrong("run pipelin --preset smoke")
    assert 'did you mean "--preset"?' in wrong("run pipeline --prest smoke")
    assert 'did you mean "smoke"?' in wrong("run pipeline --preset smok")
    assert 'did you mean "--preset smoke"?' in wrong("run pipeline smoke")
    assert 'did you mean "samples"?' in wrong("run pipeline --preset smoke --set sweep.sampels=4")
    assert 'did you mean "separate"?' in wrong("run pipeline --preset smoke --set sweep.strategies=seperate")

    assert "(100%)" in right("status --preset smoke")
    assert 'did you mean "status"?' in wrong("stauts")

    (sweep,) = toured.glob("smoke/sweep/*")
    assert right(f"report --from {sweep}/table").strip().endswith("report.html")
    assert 'did you mean "report"?' in wrong("reprot")
    assert 'did you mean "--from"?' in wrong(f"report --form {sweep}/table")
    misspelt = str(sweep / "table").replace("smoke", "smoek")
    assert f'did you mean "{sweep}/table"?' in wrong(f"report --from {misspelt}")

    cell = "{} · miniature-easy · separate 48+32"
    assert "B − A" in right(f"compare '{cell.format('base')}' '{cell.format('trained')}'")
    assert f'did you mean "{sweep}"?' in wrong(f"compare {str(sweep).replace('smoke', 'smoek')} {sweep}")
    assert f'did you mean "{cell.format("trained")}"?' in wrong(f"compare {sweep} '{cell.format('triand')}'")

    assert evaluated.strip().endswith("report.html")
    assert 'did you mean "evaluate"?' in wrong("evalaute OWNER/NAME")
    assert 'did you mean "runs"?' in wrong(f"evaluate {toured.with_name('rnus')}")
    assert f'did you mean "{own_problems}"?' in wrong(f"evaluate {BASE} --gpus 0 --benchmark onw")
    assert 'thinking + solution, like "1k+512"' in wrong(
        f"evaluate {BASE} --gpus 0 --benchmark {own_problems} --budget 1k"
    )

    assert 'did you mean "playground"?' in wrong("playgroud")
    assert 'did you mean "--model"?' in wrong(f"playground --modle mine={BASE}")
    assert 'did you mean "smoke"?' in wrong("playground --preset smok")


def test_an_evaluation_of_a_server_needs_no_engines_and_leaves_its_key_nowhere(
    plain: Path, toured: Path, evaluated: str
) -> None:
    look = f"import importlib.util as u, sys; sys.exit(bool([n for n in {ENGINES} if u.find_spec(n)]))"
    assert subprocess.run([plain.with_name("python"), "-I", "-c", look]).returncode == 0
    (table,) = map(SweepTable, toured.glob("evaluate/sweep/*/table"))
    assert broken_rules(table.read()) == {}
    server = json.loads((table.directory / "manifest.json").read_text())["servers"]["drawn"]
    assert server["server"] == "vllm 1.2.3" and (server["root"], server["context"]) == ("/models/drawn", 512)
    assert server["weights"].startswith("not hashed")
    files = [file for file in toured.rglob("*") if file.is_file()]
    assert [file for file in files if KEY.encode() in file.read_bytes()] == [] and KEY not in evaluated
    assert not table.read()["solution"].str.contains(KEY, literal=True).any(), "compressed"


@pytest.mark.parametrize(
    ("command", "said"),
    [("plan sweep --preset smoke", "miniature-easy (6 problems)"), ("status --preset smoke", "624 of 624 rows (100%)")],
)
def test_nothing_heavy_is_imported_before_the_first_line(command: str, said: str, toured: Path) -> None:
    line, heavy = heavy_before(command, toured)
    assert line.startswith(said) and heavy == set()


def test_the_page_of_evaluation_goes_on_from_its_report_to_a_budget(
    toured: Path, right: Typed, evaluated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they stand on the page, of the last run; what comes before needs a GPU, and is parsed by the unit tests."""
    monkeypatch.chdir(toured)
    begin = next(place for place, line in enumerate(EVALUATION) if line.startswith("elastic evaluate")) + 1
    status, report, priced, rules, budgets = (line.removeprefix("elastic ") for line in EVALUATION[begin : begin + 5])
    assert "(100%)" in right(status)
    assert right(report).strip().endswith("report.html")
    page_of_prices = Path(right(priced).splitlines()[-1].removeprefix("file://"))
    assert "cost per million responses" in page_of_prices.with_suffix(".md").read_text()
    assert "A probe costs, in rungs" in right(rules)
    assert "high" in right(budgets) and (toured / "budgets.json").is_file()
    assert EVALUATION[begin + 5].startswith("elastic serve --preset evaluate")
