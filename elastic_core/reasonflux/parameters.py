"""What ReasonFlux-Zero searches, and in which words it asks."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

REASONFLUX_ZERO = "reasonflux_zero"
"""The strategy's name in the table."""


class TemplateParameters(BaseModel):
    """Settings of the strategy `reasonflux_zero`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    library: str = Field(
        "reasonflux",
        min_length=1,
        description="Thought templates: reasonflux (the published ones) or miniature, either with one's own of "
        "`elastic templates add`; or a JSON or JSONL file.",
    )
    embedder: str = Field(
        "tfidf", min_length=1, description="What they are searched with: tfidf, or a sentence-transformers model."
    )
    trust_remote_code: bool = Field(
        False, description="Run the code that comes with an embedder; jina-embeddings-v3 needs it."
    )
    wording: Literal["reasonflux", "miniature"] = Field(
        "reasonflux", description="In which words navigator and solver are asked; miniature is for the miniature alone."
    )
