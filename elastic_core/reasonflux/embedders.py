"""What turns names and queries into vectors: TF-IDF, which needs nothing, or a sentence-transformers model by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elastic_core.atomic import replacing
from elastic_core.errors import UserError
from elastic_core.fingerprint import hash_value, model_fingerprint

TFIDF = "tfidf"
EXTRA = "pip install elastic-reasoning[templates]"

Vectors = NDArray[np.float32]
"""Of shape (texts, dimension)."""

STEM_LENGTH = 7
_STOP_WORDS = re.compile(r"a|an|and|as|at|by|for|from|in|is|its|of|on|or|the|their|to|under|when|with")


class Embedder(Protocol):
    """Turns texts into vectors whose cosine says how near two texts are in meaning."""

    @property
    def name(self) -> str:
        """Names all that the vectors depend on besides the texts."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text."""


class TfidfEmbedder:
    """Words of a library's names, weighted by how rare they are in it. Knows nothing of words that are not in it.

    Raises:
        UserError: when there is no word in the texts.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.name = TFIDF
        if not any(map(_stems, texts)):
            raise UserError("the names of chapters, sections and templates hold no word; expected some to search by")
        self._vectorizer = TfidfVectorizer(analyzer=_stems, dtype=np.float32).fit(texts)

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors: Vectors = self._vectorizer.transform(texts).toarray()
        return vectors


class SentenceTransformerEmbedder:
    """A sentence-transformers model, by its name on the hub or its directory.

    Args:
        trust_remote_code: run the code that comes with the model, which some (jina-embeddings-v3) need.

    Raises:
        UserError: when sentence-transformers is not installed or the model cannot be loaded.
    """

    def __init__(self, model: str, trust_remote_code: bool = False) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise UserError(f"embedder {model} needs sentence-transformers; install it: {EXTRA}") from None
        try:
            self.name = versioned(model)
            self._model: Any = SentenceTransformer(model, trust_remote_code=trust_remote_code)
        except (OSError, ValueError) as error:
            raise UserError(f"embedder {model}: cannot be loaded: {str(error).splitlines()[0]}") from None

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors: Vectors = self._model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False)
        return vectors.astype(np.float32, copy=False)


def embed_cached(embedder: Embedder, texts: Sequence[str], directory: Path) -> Vectors:
    """As `embedder.embed`, but kept below `directory` by the hash of the embedder's name and the texts."""
    file = directory / f"{hash_value([embedder.name, list(texts)])}.npy"
    try:
        return np.load(file, allow_pickle=False)  # type: ignore[no-any-return]
    except (OSError, ValueError, EOFError):  # Not there, or damaged: either way it is made anew.
        vectors = embedder.embed(texts)
    with replacing(file) as temporary, temporary.open("wb") as stream:
        np.save(stream, vectors, allow_pickle=False)
    return vectors


def versioned(model: str) -> str:
    """An embedder's name, with its content where it is a directory: it changes under its name when it is trained on."""
    directory = Path(model)
    return f"{model}@{model_fingerprint(directory)}" if directory.is_dir() else model


def _stems(text: str) -> list[str]:
    """Words without their endings, roughly: "equations" and "equation" are one, so are "probable" and "probability"."""
    words = (word for word in re.findall(r"[^\W\d_]{2,}", text.lower()) if not _STOP_WORDS.fullmatch(word))
    return [(word[:-1] if word.endswith("s") and not word.endswith("ss") else word)[:STEM_LENGTH] for word in words]
