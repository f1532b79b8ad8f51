"""What ReasonFlux-Zero searches, and in which words it asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from elastic_core.fingerprint import hash_value

if TYPE_CHECKING:
    from elastic_core.markers import Markers
    from elastic_core.reasonflux.template import Template
    from elastic_core.strategies import Strategy

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


@dataclass(frozen=True)
class Templates:
    """A library with how it is used.

    Attributes:
        cache: directory of embeddings.
    """

    library: Mapping[str, Template]
    parameters: TemplateParameters
    cache: Path

    @property
    def fingerprint(self) -> str:
        """Of everything that can change a response."""
        from elastic_core.reasonflux.embedders import versioned
        from elastic_core.reasonflux.guide import load_script

        library = [asdict(template) for template in self.library.values()]
        script: dict[str, Any] = asdict(load_script(self.parameters.wording))
        return hash_value([library, script, versioned(self.parameters.embedder)])

    def strategy(self, tokenizer: Any, markers: Markers) -> Strategy:
        """ReasonFlux-Zero for the models of a tokenizer.

        Raises:
            UserError: when the embedder cannot be had.
        """
        from elastic_core.reasonflux.guide import Guide, load_script
        from elastic_core.reasonflux.retrieval import build_retriever
        from elastic_core.strategies.reasonflux_zero import reasonflux_zero

        p = self.parameters
        retriever = build_retriever(self.library, p.embedder, cache=self.cache, trust_remote_code=p.trust_remote_code)
        return reasonflux_zero(Guide(tokenizer, markers, self.library, retriever, load_script(p.wording)))
