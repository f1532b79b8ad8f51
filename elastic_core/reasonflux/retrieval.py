"""Which template fits a problem: ReasonFlux's search from chapter to section to template, by the cosine of names.

The chapter nearest to its question is chosen, then the two of its sections nearest to theirs; a template of these
scores 0.9 times its similarity plus 0.1 times its section's. Further matches are the runners-up. Where a level cannot
decide the level below does, and in the end the order of names; the order of the library's file never does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from elastic_core.errors import UserError, first_line
from elastic_core.reasonflux.library import Template
from elastic_core.system.files import replacing
from elastic_core.system.fingerprint import hash_value, sha256_file

TFIDF = "tfidf"
TASK = "text-matching"  # The adapter of an embedder that has one for each task; as published.

Vectors = NDArray[np.float32]  # of shape (texts, dimension)

STEM_LENGTH = 7
_STOP_WORDS = re.compile(r"a|an|and|as|at|by|for|from|in|is|its|of|on|or|the|their|to|under|when|with")

TEMPLATE_WEIGHT, SECTION_WEIGHT = 0.9, 0.1
NUM_SECTIONS = 2
DECIMALS = 6  # similarities are rounded, or the order in which a machine adds numbers up would decide between equals

Query = str | tuple[str, str, str]
"""The questions for chapter, section and template; one text asks all three levels the same."""


class Embedder(Protocol):
    """Turns texts into vectors; texts of near meanings have a large cosine."""

    name: str
    """Names all that the vectors depend on besides the texts."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text."""


class TfidfEmbedder:
    """Words of a library's names, weighted by how rare they are in it. Raises UserError when the names have no word."""

    def __init__(self, texts: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.name = TFIDF
        if not any(map(_stems, texts)):
            raise UserError("the names of chapters, sections and templates hold no word; expected some to search by")
        self._vectorizer = TfidfVectorizer(analyzer=_stems, dtype=np.float32).fit(texts)

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self._vectorizer.transform(texts).toarray()  # type: ignore[no-any-return]


class SentenceTransformerEmbedder:
    """A sentence-transformers model, by its name on the hub or its directory. Raises UserError when it is not there.

    If its modules.json says that it takes a task, as that of jina-embeddings-v3 does, it has an adapter for each and
    uses none by default. It is given TASK, and the prompt of that name. `embed` raises UserError if it has no TASK.
    """

    def __init__(self, model: str, trust_remote_code: bool = False) -> None:
        try:
            from sentence_transformers import SentenceTransformer

            self.name = versioned(model)
            self._model: Any = SentenceTransformer(model, trust_remote_code=trust_remote_code)
        except ImportError as error:
            needed = f"sentence-transformers, and what its code imports ({first_line(error)})"
            raise UserError(f"embedder {model} needs {needed}: pip install elastic-reasoning[templates]") from None
        except (OSError, ValueError) as error:
            raise UserError(f"embedder {model}: cannot be loaded: {first_line(error)}") from None
        takes_task = any("task" in names for names in (self._model.module_kwargs or {}).values())
        prompt = {"prompt_name": TASK} if takes_task and TASK in self._model.prompts else {}
        self._options = {"task": TASK} | prompt if takes_task else prompt

    def embed(self, texts: Sequence[str]) -> Vectors:
        try:
            vectors = self._model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False, **self._options)
        except ValueError as error:
            raise UserError(f"embedder {self.name}: {first_line(error)}") from None
        return np.asarray(vectors, dtype=np.float32)


def embed_cached(embedder: Embedder, texts: Sequence[str], directory: Path) -> Vectors:
    """What `embedder.embed` returns, kept below `directory` by the hash of the embedder's name and the texts."""
    file = directory / f"{hash_value([embedder.name, list(texts)])}.npy"
    try:
        return np.load(file, allow_pickle=False)  # type: ignore[no-any-return]
    except (OSError, ValueError, EOFError):  # Not there, or damaged: either way it is made anew.
        vectors = embedder.embed(texts)
    with replacing(file) as temporary, temporary.open("wb") as stream:
        np.save(stream, vectors, allow_pickle=False)
    return vectors


def versioned(model: str) -> str:
    """An embedder's name and task, with its content where it is a directory, which changes when it is trained on."""
    if model == TFIDF:
        return TFIDF
    files = {str(file.relative_to(model)): sha256_file(file) for file in Path(model).rglob("*") if file.is_file()}
    return f"{model}@{hash_value(files)[:16]}, {TASK}" if files else f"{model}, {TASK}"


class Match(NamedTuple):
    """A template found; its score is made of the similarities (cosines)."""

    template: Template
    score: float
    template_similarity: float
    section_similarity: float


class Retriever:
    """Searches one library. Embeddings of its names are kept in `cache`; None embeds them each time."""

    def __init__(self, library: Mapping[str, Template], embedder: Embedder, cache: Path | None = None) -> None:
        self._embedder, self._chapters, names = embedder, _by_place(library), level_names(library)
        vectors = _normalized(embed_cached(embedder, names, cache) if cache else embedder.embed(names))
        num_sections = sum(map(len, self._chapters.values()))
        self._levels = np.split(vectors, [len(self._chapters), len(self._chapters) + num_sections])

    def retrieve(self, query: Query, num: int = 1) -> list[Match]:
        """The best `num` templates for a query, best first; fewer where the two sections hold fewer."""
        questions = (query,) * 3 if isinstance(query, str) else query
        texts = list(dict.fromkeys(questions))
        vectors = dict(zip(texts, _normalized(self._embedder.embed(texts)), strict=True))
        of_chapters, of_sections, of_templates = (
            iter(np.round(names @ vectors[question], DECIMALS).tolist())
            for names, question in zip(self._levels, questions, strict=True)
        )
        # By chapter its similarity, then for each of its sections: similarity, the largest of a template, templates.
        chapters = []
        for inside in self._chapters.values():
            sections = []
            for templates in inside.values():
                similar = [(next(of_templates), template) for template in templates]
                sections.append((next(of_sections), max(own for own, _ in similar), similar))
            best = (max(above for above, *_ in sections), max(own for _, own, _ in sections))
            chapters.append((next(of_chapters), *best, sections))
        # `max` and `sorted` take the first of equals, and names are sorted.
        *_, sections = max(chapters, key=lambda chapter: chapter[:3])
        nearest = sorted(sections, key=lambda section: section[:2], reverse=True)[:NUM_SECTIONS]
        found = (Match(template, score(own, above), own, above) for above, _, near in nearest for own, template in near)
        return sorted(found, key=lambda match: (-match.score, match.template.section, match.template.id))[:num]


def score(template_similarity: float, section_similarity: float) -> float:
    return round(TEMPLATE_WEIGHT * template_similarity + SECTION_WEIGHT * section_similarity, DECIMALS)


def level_names(library: Mapping[str, Template]) -> list[str]:
    """All names that are embedded: of chapters, then sections, then templates."""
    chapters = _by_place(library)
    sections = [section for inside in chapters.values() for section in inside.items()]
    return [*chapters, *(name for name, _ in sections), *(each.name for _, inside in sections for each in inside)]


def build_retriever(
    library: Mapping[str, Template], embedder: str, *, cache: Path, trust_remote_code: bool = False
) -> Retriever:
    """A retriever by its embedder's name, "tfidf" or a sentence-transformers model's. Raises UserError without it."""
    if embedder == TFIDF:
        # Made of the library's names within milliseconds; nothing to keep.
        return Retriever(library, TfidfEmbedder(level_names(library)))
    return Retriever(library, SentenceTransformerEmbedder(embedder, trust_remote_code), cache)


def _by_place(library: Mapping[str, Template]) -> dict[str, dict[str, list[Template]]]:
    """Templates by chapter and section, sorted by name."""
    found: dict[str, dict[str, list[Template]]] = {}
    for template in sorted(library.values(), key=lambda template: (template.chapter, template.section, template.id)):
        found.setdefault(template.chapter, {}).setdefault(template.section, []).append(template)
    return found


def _normalized(vectors: Vectors) -> NDArray[np.float64]:
    """Rows of length 1; a row of zeros, a text without a known word, stays zero."""
    # In 64 bits: sums are then right in more decimals than are kept.
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(lengths == 0, 1, lengths)


def _stems(text: str) -> list[str]:
    """Words without their endings, roughly: "equations" and "equation" are one, so are "probable" and "probability"."""
    words = (word for word in re.findall(r"[^\W\d_]{2,}", text.lower()) if not _STOP_WORDS.fullmatch(word))
    return [(word[:-1] if word.endswith("s") and not word.endswith("ss") else word)[:STEM_LENGTH] for word in words]
