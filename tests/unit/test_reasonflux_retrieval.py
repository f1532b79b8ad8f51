"""Retrieval: the published hierarchy and score, ties, embedders and their cache."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_core.errors import UserError
from elastic_core.miniature.grammar import plan_of
from elastic_core.miniature.problems import LEVELS, generate
from elastic_core.reasonflux.guide import load_script
from elastic_core.reasonflux.library import MINIATURE_FILE, Template, read_library, stable_id
from elastic_core.reasonflux.retrieval import (
    TASK,
    Match,
    Query,
    Retriever,
    SentenceTransformerEmbedder,
    TfidfEmbedder,
    Vectors,
    build_retriever,
    embed_cached,
    level_names,
)
from elastic_core.strategies.reasonflux_zero import TemplateParameters, Templates
from elastic_core.system.fingerprint import hash_value
from tests.upstream import UPSTREAM, needs_upstream


class Hashed:
    """Dense vectors that depend on the text in no way one could guess; counts its calls."""

    name = "hashed"

    def __init__(self) -> None:
        self.calls = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        digests = [hashlib.sha256(text.encode()).digest() for text in texts]
        return np.array([list(digest[:8]) for digest in digests], dtype=np.float32) - 128


def library(*names: tuple[str, str, str]) -> dict[str, Template]:
    made = (Template(stable_id(*name), *name, "", (), "does it", "", ("do it",), "") for name in names)
    return {template.id: template for template in made}


def found(matches: list[Match]) -> list[str]:
    return [match.template.name for match in matches]


places = st.tuples(st.sampled_from("AB"), st.sampled_from("abcd"), st.sampled_from("stuvw"))
libraries = st.lists(places, min_size=1, max_size=30).map(lambda names: library(*names))
texts = st.text(max_size=5)
queries = texts | st.tuples(texts, texts, texts)


# The hierarchy.


def test_each_level_may_be_asked_a_question_of_its_own() -> None:
    names = library(
        ("Algebra", "Roots", "Factoring"), ("Algebra", "Sums", "Induction"), ("Geometry", "Sums", "Factoring")
    )
    retriever = Retriever(names, TfidfEmbedder(level_names(names)))
    (match,) = retriever.retrieve(("geometry", "roots", "induction"))
    assert (match.template.chapter, match.template.section, match.template.name) == ("Geometry", "Sums", "Factoring")
    (match,) = retriever.retrieve(("algebra", "roots", "induction"))
    assert match.template.name == "Induction", "a template counts nine times as much as its section"


@given(libraries, queries, st.integers(1, 9))
def test_it_finds_what_a_plain_search_finds(names: dict[str, Template], query: Query, num: int) -> None:
    """The definition, one name at a time: the nearest chapter, its two nearest sections, and of these the templates by
    nine tenths of their own similarity and one of their section's."""
    embedder, templates = Hashed(), list(names.values())

    def near(query: str, name: str) -> float:
        a, b = embedder.embed([query, name]).astype(np.float64)
        return round(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), 6)

    matches = Retriever(names, embedder).retrieve(query, num)
    first, second, third = [query] * 3 if isinstance(query, str) else query
    chapter = max({template.chapter for template in templates}, key=lambda name: near(first, name))
    inside = sorted({t.section for t in templates if t.chapter == chapter}, key=lambda name: -near(second, name))
    candidates = [t for t in templates if t.chapter == chapter and t.section in inside[:2]]
    exact = sorted((0.9 * near(third, t.name) + 0.1 * near(second, t.section) for t in candidates), reverse=True)
    assert [match.score for match in matches] == pytest.approx(exact[:num], abs=1e-6)
    assert {match.template.chapter for match in matches} == {chapter}
    assert {match.template.section for match in matches} <= set(inside[:2])


@given(libraries, queries, st.randoms(use_true_random=False))
def test_the_order_of_a_library_changes_nothing(names: dict[str, Template], query: Query, rng: random.Random) -> None:
    shuffled = list(names.items())
    rng.shuffle(shuffled)
    assert Retriever(dict(shuffled), Hashed()).retrieve(query, 9) == Retriever(names, Hashed()).retrieve(query, 9)


def test_where_a_level_cannot_decide_the_one_below_does() -> None:
    names = library(("Algebra", "Roots", "Vieta"), ("Geometry", "Circles", "Tangents"), ("Geometry", "Lines", "Slopes"))
    retriever = Retriever(names, TfidfEmbedder(level_names(names)))
    assert found(retriever.retrieve("slope")) == ["Slopes"]
    assert found(retriever.retrieve("circle")) == ["Tangents"]
    assert found(retriever.retrieve("nothing known")) == ["Vieta"]


@needs_upstream
@pytest.mark.parametrize(
    ("query", "chapter", "name"),
    [
        ("Solve a quadratic inequality in four steps", "Quadratic", "Quadratic Inequality Solving Method in Four"),
        ("sum of the first terms of a geometric sequence", "Sequences", "Application of the Sum Formula for the First"),
        ("modulus of a complex number", "Complex Numbers", "Properties and Applications of Complex Modulus"),
    ],
)
def test_the_published_library_answers_sensibly(tmp_path: Path, query: str, chapter: str, name: str) -> None:
    published = read_library(UPSTREAM / "Gen-Verse/ReasonFlux/ReasonFlux_v1/data/template_library.json")
    (match,) = build_retriever(published, "tfidf", cache=tmp_path).retrieve(query)
    assert match.template.chapter.startswith(chapter)
    assert match.template.name.startswith(name)
    assert not list(tmp_path.iterdir())


@needs_upstream
def test_the_published_templates_are_found_by_their_own_names_if_each_level_has_its_own(tmp_path: Path) -> None:
    """What docs/reasonflux.md says: 418 of 420 by three questions, 364 by one that joins them."""
    templates = list(read_library(UPSTREAM / "Gen-Verse/ReasonFlux/ReasonFlux_v1/data/template_library.json").values())
    retriever = build_retriever({template.id: template for template in templates}, "tfidf", cache=tmp_path)

    def found_again(asked: list[Query]) -> int:
        matches = [retriever.retrieve(query)[0] for query in asked]
        return sum(match.template.name == own.name for match, own in zip(matches, templates, strict=True))

    apart = [(template.chapter, template.section, template.name) for template in templates]
    assert len(templates) == 420
    assert found_again(list(apart)) == 418
    assert found_again([", ".join(names) for names in apart]) == 364


def test_a_miniature_problem_finds_the_template_of_its_level_length_and_sign(tmp_path: Path) -> None:
    retriever = build_retriever(read_library(MINIATURE_FILE), "tfidf", cache=tmp_path)
    numbers = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
    for level in LEVELS:
        problems = generate(level, 50, seed=0)
        for problem in problems:
            (match,) = retriever.retrieve(plan_of(problem.question).query)
            balance = sum(1 if operation[0] == "+" else -1 for operation in problem.operations)
            assert match.template.chapter == f"{level.capitalize()} chain"
            assert numbers[len(problem.operations)] in match.template.name.lower()
            assert match.template.name.endswith("plus" if balance >= 0 else "minus")


# Embedders.


def test_tfidf_sees_words_not_their_endings() -> None:
    vectors = TfidfEmbedder(["Equations of Lines", "Probability"]).embed(["equation", "equations", "line", "zebra"])
    assert vectors.dtype == np.float32
    assert np.array_equal(vectors[0], vectors[1])
    assert vectors[0] @ vectors[2] == 0
    assert not vectors[3].any()
    with pytest.raises(UserError):  # Names without a word.
        TfidfEmbedder(["1", "+"])


def test_embeddings_are_kept_by_the_embedder_and_the_texts(tmp_path: Path) -> None:
    embedder = Hashed()
    first = embed_cached(embedder, ["a", "b"], tmp_path)
    assert np.array_equal(embed_cached(embedder, ["a", "b"], tmp_path), first)
    assert embedder.calls == 1
    embed_cached(embedder, ["ab"], tmp_path)
    embedder.name = "another"
    embed_cached(embedder, ["a", "b"], tmp_path)
    assert embedder.calls == len(list(tmp_path.iterdir())) == 3
    for _ in range(2):  # A library is embedded once, queries each time.
        Retriever(library(("A", "a", "s"), ("A", "a", "t")), embedder, tmp_path).retrieve("one")
    assert embedder.calls == 6 and len(list(tmp_path.iterdir())) == 4


def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    embedder = Hashed()
    first = embed_cached(embedder, ["a", "b"], tmp_path)
    (file,) = tmp_path.iterdir()
    for damage in (b"", file.read_bytes()[:-9], b"\x80\x04N."):
        file.write_bytes(damage)
        assert np.array_equal(embed_cached(embedder, ["a", "b"], tmp_path), first)
        assert np.array_equal(np.load(file), first)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UserError, match=r"sentence-transformers.*: pip install elastic-reasoning\[templates\]"):
        SentenceTransformerEmbedder("jinaai/jina-embeddings-v3")


@pytest.fixture
def sentence_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The little of the package that we call. One of jina's has code of its own, and an adapter for each task."""

    class SentenceTransformer:
        def __init__(self, model: str, trust_remote_code: bool) -> None:
            if "jina" in model and not trust_remote_code:
                raise ValueError("contains custom code; set trust_remote_code=True\nmore")
            self.module_kwargs = {"0": ["task"]} if "jina" in model else None
            self.tasks = ["retrieval.query"] if "retrieval" in model else ["retrieval.query", TASK]
            self.prompts = {} if "promptless" in model else dict.fromkeys(self.tasks, "q")

        def encode(
            self,
            sentences: list[str],
            convert_to_numpy: bool,
            show_progress_bar: bool,
            task: str | None = None,
            prompt_name: str | None = None,
        ) -> Any:
            if task and task not in self.tasks:
                raise ValueError(f"Unsupported task '{task}'. Supported tasks are: {', '.join(self.tasks)}.\nmore")
            asked = [task == TASK, prompt_name == TASK]
            return np.array([[len(sentence), 1, *asked] for sentence in sentences], dtype=np.float16)

    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


@pytest.mark.usefixtures("sentence_transformers")
def test_a_sentence_transformer_is_taken_by_name(tmp_path: Path) -> None:
    names = library(("A", "a", "s"), ("A", "a", "longer"))
    retriever = build_retriever(names, "jinaai/jina-embeddings-v3", cache=tmp_path, trust_remote_code=True)
    assert found(retriever.retrieve("longer than s")) == ["longer"]
    assert len(list(tmp_path.glob("*.npy"))) == 1
    with pytest.raises(UserError, match=r"jina-embeddings-v3: .*trust_remote_code=True$"):
        build_retriever(names, "jinaai/jina-embeddings-v3", cache=tmp_path)


@pytest.mark.usefixtures("sentence_transformers")
def test_a_model_in_a_directory_is_known_by_its_content(tmp_path: Path) -> None:
    """All of it: weights in either form, pooling, its code."""
    names = [SentenceTransformerEmbedder(str(tmp_path)).name]
    for file in ("model.safetensors", "pytorch_model.bin", "modules.json", "1_Pooling/config.json", "custom_st.py"):
        for content in (b"one", b"two"):
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_bytes(content)
            names.append(SentenceTransformerEmbedder(str(tmp_path)).name)
    assert len(set(names)) == len(names)


def test_results_are_kept_apart_by_the_adapter(tmp_path: Path) -> None:
    """Results drawn before adapters were used have a key of the model's name alone."""
    names = library(("A", "a", "s"))
    keys = {}
    for embedder in ("tfidf", "jinaai/jina-embeddings-v3"):
        templates = Templates(names, TemplateParameters(embedder=embedder), tmp_path)
        before = [[asdict(each) for each in names.values()], load_script("reasonflux"), embedder, "fields"]
        keys[embedder] = (templates.fingerprint, hash_value(before))
    assert keys["tfidf"][0] == keys["tfidf"][1]
    assert keys["jinaai/jina-embeddings-v3"][0] != keys["jinaai/jina-embeddings-v3"][1]


@pytest.mark.usefixtures("sentence_transformers")
def test_an_embedder_with_adapters_runs_with_the_published_one_and_is_refused_without_it() -> None:
    for model, task, prompt in (("jina", 1, 1), ("jina-promptless", 1, 0), ("plain", 0, 0)):
        vectors = SentenceTransformerEmbedder(model, trust_remote_code=True).embed(["a", "ee"])
        assert vectors.tolist() == [[1, 1, task, prompt], [2, 1, task, prompt]], model
    with pytest.raises(UserError, match=r"'text-matching'.* Supported tasks are: retrieval.query\.$"):
        SentenceTransformerEmbedder("jina-retrieval", trust_remote_code=True).embed(["a"])
