"""Libraries of thought templates: what is read, what is refused and how it is said, ids, one's own templates."""

from __future__ import annotations

import json
import random
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.errors import UserError
from elastic_core.miniature.grammar import pieces_pattern
from elastic_core.miniature.problems import split_of
from elastic_core.reasonflux.library import (
    MINIATURE_FILE,
    Template,
    add_own,
    entry,
    load_library,
    load_own,
    read_library,
)
from flows.commands.cli import cli
from tests.upstream import UPSTREAM, needs_upstream

PUBLISHED = UPSTREAM / "Gen-Verse/ReasonFlux/ReasonFlux_v1/data/template_library.json"


def fields(**changes: Any) -> dict[str, Any]:
    """A template as a flat file has it."""
    return {
        "chapter": "Numbers",
        "section": "Sums",
        "template_name": "Pairing",
        "description": "Add in pairs.",
        "reason_flow": ["Pair the ends", "Multiply"],
    } | changes


def write(file: Path, document: Any) -> Path:
    file.write_text(json.dumps(document))
    return file


def read_one(tmp_path: Path, **changes: Any) -> Template:
    return next(iter(read_library(write(tmp_path / "one.json", [fields(**changes)])).values()))


# What is read.


@needs_upstream
def test_the_published_library_is_read_whole() -> None:
    library = read_library(PUBLISHED)
    table = pl.DataFrame([asdict(template) for template in library.values()])
    assert table.height == len(library) == table["id"].n_unique() == 420
    assert table["chapter"].n_unique() == 18
    assert table.select("chapter", "section").n_unique() == 76
    assert sum(re.search(r"-[0-9a-f]{8}-2$", name) is not None for name in library) == 7
    for column in ("type", "description", "application_scenario", "example"):
        assert not table[column].str.strip_chars().eq("").any()
    assert table["reason_flow"].list.len().min() == 2
    texts = pl.concat([table["example"], table["reason_flow"].explode()])
    assert not texts.str.contains(r"[\x00-\x08\x0b-\x1f]|\\n[A-Z\\]").any()


def test_the_three_forms_hold_the_same(tmp_path: Path) -> None:
    flat = [fields(), fields(template_name="Telescoping"), fields(section="Products")]
    nested: dict[str, dict[str, list[Any]]] = {"Numbers": {"Sums": [], "Products": []}}
    for one in flat:
        inside = {key: value for key, value in one.items() if key not in ("chapter", "section")}
        nested["Numbers"][one["section"]].append(inside)
    lines = tmp_path / "lines.jsonl"
    lines.write_text("\n\n".join(map(json.dumps, flat)))
    as_list = read_library(write(tmp_path / "list.json", flat))
    assert as_list == read_library(write(tmp_path / "nested.json", nested)) == read_library(lines)


def test_a_text_may_be_a_list_or_an_object_and_a_list_a_text(tmp_path: Path) -> None:
    template = read_one(
        tmp_path,
        application_scenario=["long sums", "\neven sums"],
        knowledge_tag="Sums\nPairs",
        reason_flow="Pair the ends\n\n  - also the middle \nMultiply",
        example_application={"Example 1": {"problem": "1+2", "Solution_Steps": ["pair", "3"]}},
    )
    assert template.example == "Example 1:\n  Problem: 1+2\n  Solution Steps:\n    pair\n    3"
    assert template.application_scenario == "long sums\neven sums"
    assert template.knowledge_tags == ("Sums", "Pairs")
    assert template.reason_flow == ("Pair the ends", "  - also the middle", "Multiply")


@pytest.mark.parametrize(
    ("found", "meant"),
    [
        ("Example:\\n1. x\\n\\nAnswer", "Example:\n1. x\n\nAnswer"),
        ("\\neq \\nu \\times \\text{cm}", "\\neq \\nu \\times \\text{cm}"),
        ("\frac{1}{2}", "\\frac{1}{2}"),
        ("4\times 5", "4\\times 5"),
        ("if\n\tthen", "if\n\tthen"),
    ],
)
def test_escapes_that_went_wrong_are_put_right(tmp_path: Path, found: str, meant: str) -> None:
    assert read_one(tmp_path, example_application=found).example == meant


texts = st.text(st.characters(), max_size=30)  # Halves of surrogate pairs included.
words = texts.filter(lambda text: text.strip() != "")


@given(
    st.builds(
        fields,
        template_name=words,
        description=words,
        reason_flow=st.lists(words, min_size=1, max_size=4),
        knowledge_tag=st.lists(texts, max_size=3),
        application_scenario=st.one_of(texts, st.lists(texts, max_size=3)),
        example_application=st.one_of(texts, st.dictionaries(texts, st.one_of(texts, st.lists(texts)), max_size=3)),
    )
)
def test_what_was_read_reads_the_same_once_written(tmp_path_factory: pytest.TempPathFactory, one: Any) -> None:
    directory = tmp_path_factory.mktemp("library")
    first = read_library(write(directory / "first.json", [one]))
    assert read_library(write(directory / "second.json", [entry(template) for template in first.values()])) == first
    assert len(first) == 1


# Ids.


@given(st.randoms(use_true_random=False))
def test_the_order_of_a_file_changes_no_id(tmp_path_factory: pytest.TempPathFactory, rng: random.Random) -> None:
    directory = tmp_path_factory.mktemp("library")
    entries = [fields(template_name=name, description=text) for name in ("A", "B") for text in ("one", "two", "three")]
    expected = read_library(write(directory / "library.json", entries))
    rng.shuffle(entries)
    assert read_library(write(directory / "library.json", entries)) == expected
    assert len(expected) == 6


def test_an_id_says_the_name_and_does_not_change_with_the_texts(tmp_path: Path) -> None:
    template = read_one(tmp_path)
    assert re.fullmatch(r"pairing-[0-9a-f]{8}", template.id)
    assert read_one(tmp_path, description="Something else.").id == template.id
    assert read_one(tmp_path, section="Products").id != template.id
    copies = read_library(write(tmp_path / "library.json", [fields(), fields()]))
    assert list(copies) == [template.id], "an exact copy is no second template"


# What is refused.


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"template_name": None}, "template_name .*null"),
        ({"template_name": " "}, "template_name .*empty"),
        ({"description": 3}, "description .*number"),
        ({"reason_flow": []}, "reason_flow .*empty"),
        ({"reason_flow": ["a", {}]}, "reason_flow .*place 2"),
        ({"knowledge_tag": {}}, "knowledge_tag .*object"),
        ({"example_application": {"a": 1}}, "example_application .*number"),
        ({"descripton": "x"}, 'descripton .*"description"'),
    ],
)
def test_a_broken_entry_is_named(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    flat = write(tmp_path / "flat.json", [fields(), fields(**changes)])
    with pytest.raises(UserError, match=f"^{flat}: template 2: {reason}"):
        read_library(flat)
    lines = tmp_path / "lines.jsonl"
    lines.write_text(f"{json.dumps(fields())}\n\n{json.dumps(fields(**changes))}\n")
    with pytest.raises(UserError, match=f"^{lines}: line 3: {reason}"):
        read_library(lines)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, ""), ("", "line 1, column 1"), ('{"\udcff', "byte 2"), ('{"A": {\n"B": [}}', "line 2, column 7"),
        ("3", "number"), ('{"A": []}', 'chapter "A": .*list'),
        ('{"A": {"B": {}}}', 'chapter "A", section "B": .*object'),
        ('{"A": {"B": ["x"]}}', 'chapter "A", section "B", template 1: .*text'), ('{"A": {"B": [], "B": []}}', '"B"'),
        ('{"A": {"B": []}}', "no template"), ("[" * 100_000, "recursion"),
    ],
)  # fmt: skip
def test_a_broken_file_is_named(tmp_path: Path, text: str | None, reason: str) -> None:
    file = tmp_path / "library.json"
    if text is not None:
        file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=f"{file}: .*{reason}"):
        read_library(file)


# The miniature's library.


def test_the_miniatures_texts_are_words_of_its_tokenizer_and_its_examples_are_right_and_for_training() -> None:
    pieces = re.compile(pieces_pattern())
    for template in read_library(MINIATURE_FILE).values():
        read = (template.type, template.description, template.application_scenario, template.example)
        for text in (*read, *template.knowledge_tags, *template.reason_flow):
            assert not [piece for piece in pieces.findall(text) if len(piece) == 1 and piece.isalpha()], text
        question, *_, answer = template.example.split("\n")
        assert split_of(question) == "train"
        assert answer == f"Final Answer:\\boxed{{{sum(map(int, re.findall(r'[+-]?[0-9]+', question)))}}}"


# One's own templates.


def test_own_templates_join_a_library_by_id(tmp_path: Path) -> None:
    own = tmp_path / "templates" / "own.jsonl"
    new = fields(chapter="Check", section="Check one step", template_name="Check one step by the other sign")
    assert add_own(write(tmp_path / "new.json", [new, fields()]), own) == (2, 0)
    assert add_own(write(tmp_path / "new.json", [fields(description="Better.")]), own) == (0, 1)
    library = load_library("miniature", own=own, published=lambda: PUBLISHED)
    assert len(library) == len(read_library(MINIATURE_FILE)) + 1
    assert {"Better.", "Add in pairs."} <= {template.description for template in library.values()}
    own.write_text("\n")
    assert load_own(own) == {}


def test_own_templates_of_one_name_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "new.json", [fields(), fields(description="Other.")])
    with pytest.raises(UserError, match=r'chapter "Numbers", section "Sums": .*"Pairing"'):
        add_own(file, tmp_path / "own.jsonl")
    assert not (tmp_path / "own.jsonl").exists()
    with pytest.raises(UserError, match=r'"minature".*"miniature"'):
        load_library("minature", own=tmp_path / "own.jsonl", published=lambda: PUBLISHED)


# The command.


@pytest.fixture
def elastic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ELASTIC_RUNS", str(tmp_path / "runs"))

    def run(*arguments: str) -> str:
        return CliRunner().invoke(cli, ["data", "templates", *arguments], catch_exceptions=False).output

    return run


def test_templates_are_added_listed_found_and_shown(tmp_path: Path, elastic: Any) -> None:
    file = write(tmp_path / "new.json", [fields()])
    assert elastic("add", str(file)).startswith("1 added, 0 replaced")
    listed = elastic("list", "--library", "miniature")
    identifier = next(line for line in listed.splitlines() if line.endswith("Pairing")).split()[0]
    assert listed.endswith("11 templates in 7 sections of 4 chapters\n")
    assert identifier in elastic("search", "pairing numbers in sums", "--library", "miniature", "-k", "1")
    assert " 1. Pair the ends\n 2. Multiply" in elastic("show", identifier, "--library", "miniature")
    assert "nothing" in elastic("search", "zebra", "--library", "miniature")
    with pytest.raises(UserError, match=r'miniature .*"check-on"'):
        elastic("show", "check-on", "--library", "miniature")
    other = write(tmp_path / "other.json", [fields(template_name="Telescoping")])
    listed = elastic("list", "--library", str(other))
    assert listed.endswith("1 templates in 1 sections of 1 chapters\n"), "a file, without one's own"


@needs_upstream
def test_the_published_library_is_the_default(elastic: Any) -> None:
    found = elastic("search", "solve a quadratic inequality", "--mirror", str(UPSTREAM))
    assert found.count("Quadratic Functions, Equations and Inequalities") == 5
