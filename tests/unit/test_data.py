import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from elastic_core.data.build import CLEAN, REMOVED, STORE, DataBuild, build
from elastic_core.data.dataset import Dataset, SourceFile
from elastic_core.data.decontaminate import REMOVED as REMOVED_SCHEMA
from elastic_core.data.fetch import fetch
from elastic_core.data.problems import MANIFEST, VERL_SCHEMA, Manifest, read_manifest, read_problems
from elastic_core.data.registry import REGISTRY, select
from elastic_core.errors import UserError
from elastic_core.miniature.problems import TRAIN, MiniatureParameters
from elastic_core.miniature.warm_start import BASE
from elastic_core.rewards.truth import CodeTruth
from elastic_core.system.files import exclusive
from elastic_core.system.fingerprint import sha256_file
from tests.miniature_data import build_miniature
from tests.upstream import UPSTREAM, needs_upstream

SIZES = MiniatureParameters(num_train=40, seed=3, problems_per_benchmark=12, evaluation_seed=4)
LONG = " ".join(f"word{i}" for i in range(13))


def local(entry: Dataset, directory: Path, rows: list[dict[str, Any]]) -> Dataset:
    """The entry, with these rows in a mirror at `directory`."""
    assert hasattr(entry.source, "repository")
    file = directory / entry.source.repository / entry.files[0].path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(rows))
    return replace(entry, rows=None, files=(replace(entry.files[0], sha256=sha256_file(file), bytes=None),))


def plan(tmp_path: Path, *entries: Dataset, **changes: Any) -> DataBuild:
    fetched = fetch(entries, sources=tmp_path / "sources", mirror=tmp_path)
    return replace(DataBuild(entries, fetched, BASE, max_prompt_tokens=10_000), **changes)


@pytest.fixture
def entries(tmp_path: Path) -> tuple[Dataset, Dataset]:
    train = [
        ("Is it clean?", "1"),
        ("It  IS an evaluation\nquestion.", "2"),
        (f"Please say {LONG} once more", "3"),
        (f"Now {LONG.replace('word6', 'other')}", "4"),
        ("Is it clean?", "1"),
        ("x", "6"),
    ]
    evaluation = [("it is an Evaluation question.", "2", "a"), (f"Which {LONG}", "3", "b")]
    return (
        local(REGISTRY["math-train"], tmp_path, [{"problem": q, "answer": a} for q, a in train]),
        local(REGISTRY["math500"], tmp_path, [{"problem": q, "answer": a, "unique_id": i} for q, a, i in evaluation]),
    )


def test_what_overlaps_with_an_evaluation_set_is_reported_and_removed(
    tmp_path: Path, entries: tuple[Dataset, Dataset]
) -> None:
    manifest = build(plan(tmp_path, *entries), tmp_path / "data")
    record = manifest["datasets"]["math-train"]
    assert (record["rows"], record["kept_rows"]) == (6, 4)
    assert record["overlap"] == {"math500": {"exact": 1, "ngram": 1, "ngram_rare": 1}}
    assert record["removed"] == {"13-gram": 1, "exact": 1}
    assert (record["duplicates"], record["near_empty"]) == (1, 1)
    kept = read_problems(tmp_path / "data" / "math-train.parquet")
    assert [problem.truth for problem in kept] == ["1", "4", "1", "6"]
    removed = pl.read_parquet(tmp_path / "data" / REMOVED)
    assert removed.schema == REMOVED_SCHEMA
    assert removed.select("dataset", "id", "reason", "evaluation", "evaluation_id", "evidence").rows() == [
        ("math-train", "1", "exact", "math500", "a", "it is an evaluation question."),
        ("math-train", "2", "13-gram", "math500", "b", LONG),
    ]
    assert manifest["datasets"]["math500"]["kept_rows"] == 2, "an evaluation set stays whole"
    assert list(manifest["templates"]) == ["boxed-v1"], "the manifest holds every wording"
    assert manifest["templates"]["boxed-v1"]["text"].endswith("final answer within \\boxed{}.")


def test_common_phrases_may_be_left_aside(tmp_path: Path, entries: tuple[Dataset, Dataset]) -> None:
    rows = [{"problem": f"{i}: {LONG}", "answer": "1"} for i in range(12)]
    train = local(REGISTRY["math-train"], tmp_path, rows)
    strict = build(plan(tmp_path, train, entries[1]), tmp_path / "strict")["datasets"]["math-train"]
    lenient = build(plan(tmp_path, train, entries[1], common_ngrams=10), tmp_path / "lenient")["datasets"]["math-train"]
    assert strict["kept_rows"] == 0 and lenient["kept_rows"] == 12
    assert strict["overlap"] == {"math500": {"exact": 0, "ngram": 12, "ngram_rare": 0}}


def test_decontamination_that_is_off_counts_and_leaves_out_nothing(
    tmp_path: Path, entries: tuple[Dataset, Dataset]
) -> None:
    strict, whole = (
        build(plan(tmp_path, *entries, decontaminate=on), tmp_path / f"data-{on}", store=tmp_path / "store")
        for on in (True, False)
    )
    assert (strict["decontaminated"], whole["decontaminated"]) == (True, False)
    before, after = strict["datasets"]["math-train"], whole["datasets"]["math-train"]
    assert (before["kept_rows"], after["kept_rows"], after["removed"]) == (4, 6, {})
    assert after["overlap"] == before["overlap"]
    assert pl.read_parquet(tmp_path / "data-False" / REMOVED).is_empty()


def test_the_longest_tests_are_kept_of_what_is_trained_on_where_its_trainers_cut_them(tmp_path: Path) -> None:
    inputs = ["1", "333", "22", "4444", "55"]
    rows = [{"problem": "Say it.", "tests": json.dumps({"inputs": inputs, "outputs": [text[0] for text in inputs]})}]
    taco = replace(REGISTRY["deepcoder-taco"], files=(SourceFile("taco.json"),))
    taco = local(taco, tmp_path, rows)

    def tests(**changes: Any) -> list[str]:
        target = tmp_path / f"data-{len(list(tmp_path.iterdir()))}"
        manifest = build(plan(tmp_path, taco, **changes), target, store=tmp_path / "store")
        assert manifest["max_tests"] == changes.get("max_tests")
        (problem,) = read_problems(target / "deepcoder-taco.parquet")
        return [test.input for test in CodeTruth.decode(problem.truth).tests]

    trained = frozenset({"deepcoder-taco"})
    assert tests(trained=trained) == tests(max_tests=3) == tests(trained=trained, max_tests=5) == inputs
    assert tests(trained=trained, max_tests=3) == ["4444", "333", "22"], "of equal ones the first"
    assert [name for name, entry in REGISTRY.items() if entry.cuts_tests] == [
        "deepcoder-primeintellect",
        "deepcoder-taco",
    ]


def test_too_long_prompts_are_dropped_from_what_is_trained_on_and_from_nothing_else(
    tmp_path: Path, entries: tuple[Dataset, Dataset]
) -> None:
    def kept(trained: set[str]) -> list[int]:
        manifest = build(plan(tmp_path, *entries, trained=trained, max_prompt_tokens=90), tmp_path / str(len(trained)))
        return [entry["kept_rows"] for entry in manifest["datasets"].values()]

    assert kept(set()) == [4, 2]
    assert kept({"math-train"}) == [3, 2]
    record = read_manifest(tmp_path / "1")["datasets"]["math-train"]
    assert record["removed"] == {"13-gram": 1, "exact": 1, "too long": 1}
    assert record["prompt_tokens"] is not None
    assert record["rows"] == 6 and record["prompt_tokens"]["max"] > 90


def test_building_again_uses_what_is_there_and_gives_the_same(tmp_path: Path, entries: tuple[Dataset, Dataset]) -> None:
    whole = build(plan(tmp_path, *entries), tmp_path / "data")
    (clean,) = (tmp_path / "data" / STORE / "math-train").glob("clean-*.parquet")
    before, contents = clean.stat().st_mtime_ns, (tmp_path / "data" / "math-train.parquet").read_bytes()
    # As if killed before the end, in the middle of writing tables.
    for file in (MANIFEST, "math500.parquet", f"{CLEAN}/math500.parquet"):
        (tmp_path / "data" / file).unlink()
    for record in (tmp_path / "data" / STORE).glob("math500/*/record.json"):
        record.unlink()
    for directory in (CLEAN, f"{STORE}/math500"):
        (tmp_path / "data" / directory / ".math500.parquet.1.tmp").write_bytes(b"PAR1")
    assert build(plan(tmp_path, *entries), tmp_path / "data") == whole == read_manifest(tmp_path / "data")
    assert clean.stat().st_mtime_ns == before
    assert (tmp_path / "data" / "math-train.parquet").read_bytes() == contents
    assert not list((tmp_path / "data").rglob(".*.tmp"))


def test_a_row_that_cannot_be_used_leaves_no_manifest_and_what_was_finished(
    tmp_path: Path, entries: tuple[Dataset, Dataset]
) -> None:
    bad = local(REGISTRY["amc"], tmp_path, [{"problem": "p", "answer": None}])
    with pytest.raises(UserError, match=r"^amc: .*amc\.json: row 1: the answer is missing or null"):
        build(plan(tmp_path, *entries, bad), tmp_path / "data")
    assert sorted(file.parent.name for file in (tmp_path / "data").rglob("*.parquet")) == ["math-train", "math500"]


def test_another_schema_is_refused_by_name(tmp_path: Path) -> None:
    pl.DataFrame({"question": ["1+1"]}).write_parquet(tmp_path / "odd.parquet")
    with pytest.raises(ValueError, match=r"odd\.parquet.*expected"):
        read_problems(tmp_path / "odd.parquet")


def test_the_miniature_is_built_like_everything_else_and_trains_on_nothing_that_it_reports(tmp_path: Path) -> None:
    manifest, questions = build_miniature(SIZES, tmp_path), {}
    for name, entry in manifest["datasets"].items():
        frame = pl.read_parquet(tmp_path / entry["file"])
        assert frame.schema == VERL_SCHEMA
        assert frame.height == entry["kept_rows"] == entry["rows"]
        assert set(frame["data_source"]) == {name}
        questions[name] = {problem.question for problem in read_problems(tmp_path / entry["file"])}
    train = questions.pop(TRAIN)
    assert all(not train & others for others in questions.values())
    assert manifest == build_miniature(SIZES, tmp_path / "again")


@needs_upstream
def test_real_rows_reach_verls_schema_unchanged(tmp_path: Path) -> None:
    chosen = select(
        ["aime-1983-2023", "aime-2024", "minerva", "codeforces", "leetcode", "reasonflux-templates"], REGISTRY
    )
    fetched = fetch(chosen, sources=tmp_path / "sources", mirror=UPSTREAM)
    manifest = build(DataBuild(chosen, fetched, BASE, max_prompt_tokens=1024, common_ngrams=10), tmp_path / "data")
    assert {name: entry["rows"] for name, entry in manifest["datasets"].items()} == {e.name: e.rows for e in chosen}
    for entry in chosen:
        frame = pl.read_parquet(tmp_path / "data" / f"{entry.name}.parquet")
        if entry.form != "problems":
            continue
        assert frame.schema == VERL_SCHEMA
        row = frame.row(0, named=True)
        assert (
            row["data_source"] == entry.name
            and row["ability"] == entry.domain
            and row["extra_info"]["grader"] == entry.grader
        )
        assert row["extra_info"]["split"] == entry.split and row["extra_info"]["index"] == 0
    raw = json.loads((UPSTREAM / "agentica-project/rllm/rllm/data/test/math/aime.json").read_text())
    prompts = pl.read_parquet(tmp_path / "data" / "aime-2024.parquet")["prompt"].to_list()
    instruction = " Let's think step by step and output the final answer within \\boxed{}."
    assert prompts == [[{"role": "user", "content": row["problem"] + instruction}] for row in raw]
    raw = json.loads((UPSTREAM / "agentica-project/rllm/rllm/data/test/code/leetcode.json").read_text())
    prompts = pl.read_parquet(tmp_path / "data" / "leetcode.parquet")["prompt"].to_list()
    assert [prompt[0]["content"] for prompt in prompts] == [row["problem"] for row in raw]


# Data sets are built one by one: a change builds what depends on it, and nothing else.


SHARED = "Is this question measured?"


class Workplace:
    """A store, and what was written into it by each build."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.store, self.num_builds = directory, directory / "store", 0
        self._seen: dict[Path, int] = {}

    def build(self, *entries: Dataset, **changes: Any) -> tuple[Manifest, set[str]]:
        """The manifest, and which tables were written: NAME, or clean/NAME."""
        self.num_builds += 1
        # Every build has a lock of its own: what a file holds may change from one to the next.
        fetched = fetch(entries, sources=self.directory / f"sources-{self.num_builds}", mirror=self.directory)
        plan = replace(DataBuild(entries, fetched, BASE, max_prompt_tokens=10_000), **changes)
        manifest = build(plan, self.built, store=self.store)
        found = {file: file.stat().st_mtime_ns for file in self.store.rglob("*.parquet") if file.stem != "removed"}
        written = {
            f"clean/{file.parent.name}" if file.stem.startswith("clean-") else file.stem
            for file, at in found.items()
            if self._seen.get(file) != at
        }
        self._seen = found
        return manifest, written

    @property
    def built(self) -> Path:
        return self.directory / f"data-{self.num_builds}"


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def train(directory: Path, *questions: str) -> Dataset:
    return local(REGISTRY["math-train"], directory, [{"problem": question, "answer": "1"} for question in questions])


def measured(name: str, directory: Path, *questions: str) -> Dataset:
    answer: Any = 1 if name == "amc" else "1"
    rows = [{"problem": question, "answer": answer, "unique_id": question} for question in questions]
    return local(REGISTRY[name], directory, rows)


def test_a_data_set_that_joins_is_built_and_the_training_sets_are_held_against_it(
    workplace: Workplace, tmp_path: Path
) -> None:
    trained, math500 = train(tmp_path, SHARED, "Another one?"), measured("math500", tmp_path, "What else?")
    first, written = workplace.build(trained, math500)
    assert written == {"math-train", "clean/math-train", "math500", "clean/math500"}
    amc = measured("amc", tmp_path, SHARED)
    second, written = workplace.build(trained, math500, amc)
    assert written == {"amc", "clean/amc", "math-train"}
    assert [problem.question[:12] for problem in read_problems(workplace.built / "math-train.parquet")] == [
        "Another one?"
    ]
    assert second["datasets"]["math500"] == first["datasets"]["math500"]
    assert pl.read_parquet(workplace.built / "removed.parquet")["evaluation"].to_list() == ["amc"]
    again, written = workplace.build(trained, math500)
    assert again == first and not written, "what was built before is still there"


def test_a_data_set_that_changes_is_built_alone(workplace: Workplace, tmp_path: Path) -> None:
    trained, math500 = train(tmp_path, "One?"), measured("math500", tmp_path, "Two?")
    workplace.build(trained, math500)
    _, written = workplace.build(train(tmp_path, "Three?"), math500)
    assert written == {"math-train", "clean/math-train"}
    _, written = workplace.build(train(tmp_path, "Three?"), replace(math500, prompt="plain-v1"))
    assert written == {"math500"}
    assert read_problems(workplace.built / "math500.parquet")[0].question == "Two?"
    _, written = workplace.build(replace(math500, chosen={"answer": "other"}))
    assert written == {"math500", "clean/math500"}, "what a user chose for a file is part of what it is"


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"common_ngrams": 3}, {"math-train"}),
        ({"decontaminate": False}, {"math-train"}),
        ({"trained": frozenset({"math-train"}), "max_tests": 3}, {"math-train"}),
        ({"trained": frozenset({"math-train"})}, {"math-train"}),
        ({"max_prompt_tokens": 5}, set()),  # Of what is not trained on.
    ],
)
def test_a_setting_builds_what_reads_it(
    workplace: Workplace, tmp_path: Path, changes: dict[str, Any], written: set[str]
) -> None:
    entries = train(tmp_path, "One?"), measured("math500", tmp_path, "Two?")
    workplace.build(*entries)
    assert workplace.build(*entries, **changes)[1] == written


def test_a_file_that_was_changed_where_it_is_read_is_built_again(workplace: Workplace, tmp_path: Path) -> None:
    """Its names are links to one file."""
    math500 = measured("math500", tmp_path, "Two?")
    first, _ = workplace.build(math500)
    pl.read_parquet(workplace.built / "math500.parquet").head(0).write_parquet(workplace.built / "math500.parquet")
    second, written = workplace.build(math500)
    assert second == first and written == {"math500"}
    assert len(read_problems(workplace.built / "math500.parquet")) == 1


def test_a_file_system_without_links_has_copies_and_another_process_that_builds_is_named(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.link", refused)
    math500 = measured("math500", tmp_path, "Two?")
    workplace.build(math500)
    assert len(read_problems(workplace.built / "math500.parquet")) == 1
    monkeypatch.setattr("elastic_core.data.build.WAIT_SECONDS", 0.0)
    with exclusive(workplace.store / "math500"), pytest.raises(UserError, match=r"store/math500: process \d+ "):
        workplace.build(replace(math500, prompt="plain-v1"))
