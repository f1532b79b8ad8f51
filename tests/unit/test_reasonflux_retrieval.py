"""Retrieval: the published hierarchy and score, batches, ties, embedders and their cache."""

from __future__ import annotations

import hashlib
import json
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
    Match,
    Query,
    Retriever,
    SentenceTransformerEmbedder,
    TfidfEmbedder,
    Vectors,
    build_retriever,
    embed_cached,
    level_names,
    score,
)
from elastic_core.strategies.reasonflux_zero import TemplateParameters, Templates
from elastic_core.system.fingerprint import hash_value
from tests.upstream import UPSTREAM, needs_upstream


class Given:
    """Vectors as the test gives them, by text."""

    name = "given"

    def __init__(self, vectors: dict[str, tuple[float, ...]]) -> None:
        self.vectors = vectors

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.array([self.vectors[text] for text in texts], dtype=np.float32)


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
queries = st.lists(texts | st.tuples(texts, texts, texts), max_size=6)


# The hierarchy.


def test_the_chapter_decides_before_its_sections_and_these_before_templates() -> None:
    exact, close, half, none = (1, 0), (0.8, 0.6), (0.6, 0.8), (0, 1)
    embedder = Given(
        {"query": exact, "near": exact, "far": none, "first": close, "second": half, "third": none}
        | {"elsewhere": exact, "fits": exact, "half": half, "not": none}
    )
    places = {"first": "not", "second": "half", "third": "fits"}
    names = library(*(("near", *place) for place in places.items()), ("far", "elsewhere", "fits"))
    matches = Retriever(names, embedder).retrieve(["query"], num=9)[0]
    assert [(match.template.section, match.template.name) for match in matches] == [
        ("second", "half"),
        ("first", "not"),
    ]
    assert [match.score for match in matches] == [pytest.approx(0.9 * 0.6 + 0.1 * 0.6), pytest.approx(0.1 * 0.8)]


def test_each_level_may_be_asked_a_question_of_its_own() -> None:
    names = library(
        ("Algebra", "Roots", "Factoring"), ("Algebra", "Sums", "Induction"), ("Geometry", "Sums", "Factoring")
    )
    retriever = Retriever(names, TfidfEmbedder(level_names(names)))
    (match,) = retriever.retrieve([("geometry", "roots", "induction")])[0]
    assert (match.template.chapter, match.template.section, match.template.name) == ("Geometry", "Sums", "Factoring")
    (match,) = retriever.retrieve([("algebra", "roots", "induction")])[0]
    assert match.template.name == "Induction", "a template counts nine times as much as its section"


@given(libraries, queries, st.integers(1, 9))
def test_matches_are_of_one_chapter_and_two_sections_in_order_of_the_published_score(
    names: dict[str, Template], asked: list[Query], num: int
) -> None:
    for matches in Retriever(names, Hashed()).retrieve(asked, num):
        assert 1 <= len(matches) <= num
        assert len({match.template.chapter for match in matches}) == 1
        assert len({match.template.section for match in matches}) <= 2
        assert [match.score for match in matches] == sorted((match.score for match in matches), reverse=True)
        for match in matches:
            exact = 0.9 * match.template_similarity + 0.1 * match.section_similarity
            assert match.score == score(match.template_similarity, match.section_similarity)
            assert match.score == pytest.approx(exact, abs=1e-6)


@given(libraries, queries)
def test_it_finds_what_a_plain_search_finds(names: dict[str, Template], asked: list[Query]) -> None:
    """The definition, one query and one name at a time."""
    embedder = Hashed()

    def near(query: str, name: str) -> float:
        a, b = embedder.embed([query, name]).astype(np.float64)
        return round(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), 6)

    for query, (match,) in zip(asked, Retriever(names, embedder).retrieve(asked), strict=True):
        first, second, third = [query] * 3 if isinstance(query, str) else query
        templates = list(names.values())
        chapter = max({template.chapter for template in templates}, key=lambda name: near(first, name))
        inside = sorted({t.section for t in templates if t.chapter == chapter}, key=lambda name: -near(second, name))
        candidates = [t for t in templates if t.chapter == chapter and t.section in inside[:2]]
        best = max(score(near(third, t.name), near(second, t.section)) for t in candidates)
        assert match.template.chapter == chapter
        assert match.score == best


@given(libraries, queries)
def test_a_batch_finds_what_its_queries_find_one_by_one(names: dict[str, Template], asked: list[Query]) -> None:
    retriever = Retriever(names, Hashed())
    assert retriever.retrieve(asked, 3) == [retriever.retrieve([query], 3)[0] for query in asked]


@given(libraries, queries, st.randoms(use_true_random=False))
def test_the_order_of_a_library_changes_nothing(
    names: dict[str, Template], asked: list[Query], rng: random.Random
) -> None:
    shuffled = list(names.items())
    rng.shuffle(shuffled)
    assert Retriever(dict(shuffled), Hashed()).retrieve(asked, 9) == Retriever(names, Hashed()).retrieve(asked, 9)


def test_where_a_level_cannot_decide_the_one_below_does() -> None:
    names = library(("Algebra", "Roots", "Vieta"), ("Geometry", "Circles", "Tangents"), ("Geometry", "Lines", "Slopes"))
    retriever = Retriever(names, TfidfEmbedder(level_names(names)))
    assert found(retriever.retrieve(["slope"])[0]) == ["Slopes"]
    assert found(retriever.retrieve(["circle"])[0]) == ["Tangents"]
    assert found(retriever.retrieve(["nothing known"])[0]) == ["Vieta"]


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
    ((match,),) = build_retriever(published, "tfidf", cache=tmp_path).retrieve([query])
    assert match.template.chapter.startswith(chapter)
    assert match.template.name.startswith(name)
    assert not list(tmp_path.iterdir())


@needs_upstream
def test_the_published_templates_are_found_by_their_own_names_if_each_level_has_its_own(tmp_path: Path) -> None:
    """What docs/reasonflux.md says: 418 of 420 by three questions, 364 by one that joins them."""
    templates = list(read_library(UPSTREAM / "Gen-Verse/ReasonFlux/ReasonFlux_v1/data/template_library.json").values())
    retriever = build_retriever({template.id: template for template in templates}, "tfidf", cache=tmp_path)

    def found_again(asked: list[Query]) -> int:
        matches = retriever.retrieve(asked)
        return sum(match.template.name == own.name for (match,), own in zip(matches, templates, strict=True))

    apart = [(template.chapter, template.section, template.name) for template in templates]
    assert len(templates) == 420
    assert found_again(list(apart)) == 418
    assert found_again([", ".join(names) for names in apart]) == 364


def test_a_miniature_problem_finds_the_template_of_its_level_length_and_sign(tmp_path: Path) -> None:
    retriever = build_retriever(read_library(MINIATURE_FILE), "tfidf", cache=tmp_path)
    numbers = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
    for level in LEVELS:
        problems = generate(level, 50, seed=0)
        matches = retriever.retrieve([plan_of(problem.question).query for problem in problems])
        for problem, (match,) in zip(problems, matches, strict=True):
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


def test_names_without_a_word_are_refused() -> None:
    with pytest.raises(UserError):
        TfidfEmbedder(["1", "+"])


def test_embeddings_are_kept_by_the_embedder_and_the_texts(tmp_path: Path) -> None:
    embedder = Hashed()
    first = embed_cached(embedder, ["a", "b"], tmp_path)
    assert np.array_equal(embed_cached(embedder, ["a", "b"], tmp_path), first)
    assert embedder.calls == 1
    embed_cached(embedder, ["ab"], tmp_path)
    embedder.name = "another"
    embed_cached(embedder, ["a", "b"], tmp_path)
    assert embedder.calls == 3
    assert len(list(tmp_path.iterdir())) == 3


def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    embedder = Hashed()
    first = embed_cached(embedder, ["a", "b"], tmp_path)
    (file,) = tmp_path.iterdir()
    for damage in (b"", file.read_bytes()[:-9], b"\x80\x04N."):
        file.write_bytes(damage)
        assert np.array_equal(embed_cached(embedder, ["a", "b"], tmp_path), first)
        assert np.array_equal(np.load(file), first)


def test_a_library_is_embedded_once_queries_each_time(tmp_path: Path) -> None:
    names = library(("A", "a", "s"), ("A", "a", "t"))
    embedder = Hashed()
    for _ in range(2):
        Retriever(names, embedder, tmp_path).retrieve(["one", "two"])
    assert embedder.calls == 3
    assert len(list(tmp_path.iterdir())) == 1


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(UserError, match=r"sentence-transformers.*: pip install elastic-reasoning\[templates\]"):
        SentenceTransformerEmbedder("jinaai/jina-embeddings-v3")


@pytest.fixture
def sentence_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The little of the package that we call."""

    class SentenceTransformer:
        module_kwargs = None

        def __init__(self, model: str, trust_remote_code: bool) -> None:
            if "jina" in model and not trust_remote_code:
                raise ValueError("contains custom code; set trust_remote_code=True\nmore")

        def encode(self, sentences: list[str], convert_to_numpy: bool, show_progress_bar: bool) -> Any:
            return np.array([[len(sentence), 1] for sentence in sentences], dtype=np.float16)

    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


@pytest.mark.usefixtures("sentence_transformers")
def test_a_sentence_transformer_is_taken_by_name(tmp_path: Path) -> None:
    names = library(("A", "a", "s"), ("A", "a", "longer"))
    retriever = build_retriever(names, "jinaai/jina-embeddings-v3", cache=tmp_path, trust_remote_code=True)
    assert found(retriever.retrieve(["longer than s"])[0]) == ["longer"]
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


ADAPTED = """
import json
from pathlib import Path

import torch


class Transformer(torch.nn.Module):
    \"\"\"Embeds a text by its letters, with one adapter for each task that config.json lists.\"\"\"

    def __init__(self, tasks):
        super().__init__()
        self.tasks = tasks

    @classmethod
    def load(cls, path, **_):
        return cls(json.loads((Path(path) / "config.json").read_text())["lora_adaptations"])

    def tokenize(self, texts, **_):
        return {"counts": torch.tensor([[1.0 + text.count(letter) for letter in "aeqxz"] for text in texts])}

    def forward(self, features, task=None, **_):
        if task and task not in self.tasks:
            raise ValueError(f"Unsupported task '{task}'. Supported tasks are: {', '.join(self.tasks)}.")
        shift = self.tasks.index(task) + 1 if task else 0
        return {**features, "sentence_embedding": features["counts"].roll(shift, dims=1) * (1 + shift)}
"""
"""As jina-embeddings-v3 does: `encode` takes a task, which chooses the adapter; without one none is used."""


def embedder_with_adapters(directory: Path, tasks: list[str], prompts: dict[str, str], takes_task: bool = True) -> Path:
    """A sentence-transformers model that comes with code, laid out as jina-embeddings-v3 is."""
    directory.mkdir()
    module = {"idx": 0, "name": "transformer", "path": "", "type": "custom_st.Transformer"}
    files = {
        "modules.json": [module | {"kwargs": ["task"]} if takes_task else module],
        "config.json": {"lora_adaptations": tasks},
        "config_sentence_transformers.json": {"prompts": prompts, "default_prompt_name": None},
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))
    (directory / "custom_st.py").write_text(ADAPTED)
    return directory


TASKS = ["retrieval.query", "text-matching"]
JINA_PROMPTS = {"retrieval.query": "Represent the query: ", "text-matching": ""}


@pytest.mark.parametrize(
    ("takes_task", "prompts", "vectors"),
    [
        (True, JINA_PROMPTS, [[3, 3, 6, 3, 3], [3, 3, 3, 9, 3]]),  # The second adapter: two places on, three times.
        (True, {}, [[3, 3, 6, 3, 3], [3, 3, 3, 9, 3]]),
        (True, {"text-matching": "q"}, [[3, 3, 6, 3, 6], [3, 3, 3, 9, 6]]),
        (False, JINA_PROMPTS, [[2, 1, 1, 1, 1], [1, 3, 1, 1, 1]]),
    ],
)
def test_an_embedder_with_adapters_runs_with_the_published_one(
    tmp_path: Path, takes_task: bool, prompts: dict[str, str], vectors: list[list[float]]
) -> None:
    pytest.importorskip("sentence_transformers")
    model = embedder_with_adapters(tmp_path / "model", TASKS, prompts, takes_task)
    embedder = SentenceTransformerEmbedder(str(model), trust_remote_code=True)
    assert embedder.embed(["a", "ee"]).tolist() == vectors


def test_an_embedder_without_the_published_adapter_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    model = embedder_with_adapters(tmp_path / "model", ["retrieval.query"], {})
    with pytest.raises(UserError, match=r"model@.*: .*'text-matching'.* Supported tasks are: retrieval.query"):
        SentenceTransformerEmbedder(str(model), trust_remote_code=True).embed(["a"])
