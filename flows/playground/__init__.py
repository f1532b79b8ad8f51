"""`elastic playground`: a page to try a model under token budgets, strategies side by side.

The strategies, the engine and the grader are those of training and sweeps. What is drawn of a sample is remembered, so
that another budget cuts the same thought.

Promised: loopback only unless there is a password; without one a token in the address, as Jupyter has it; logins no
faster than a person's; no file of this machine leaves it; bounded input, concurrency and time; model text is shown as
text; nothing is asked of any other host. Not promised: encryption (put a proxy in front that adds TLS), and protection
of the engine against those who know the password.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class PlaygroundParameters(BaseModel):
    """Where the page is, and how much it takes on."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(7860, ge=1, le=65535)
    """Port to listen on."""
    concurrent: int = Field(2, ge=1, le=64)
    """Runs at the same time."""
    waiting: int = Field(8, ge=1, le=1000)
    """Runs that may queue for these; further ones are refused."""
    max_question: int = Field(20_000, ge=1)
    """Longest problem, in characters."""
    max_reference: int = Field(1_000, ge=1)
    """Longest reference answer, in characters."""
    run_seconds: float = Field(600, gt=0)
    """A run that takes longer is stopped, in seconds; waiting for the engine counts."""

    @property
    def max_body(self) -> int:
        """Bytes of the largest request the server reads: every character may take four, and JSON escapes them."""
        return 100_000 + 12 * (self.max_question + self.max_reference)
