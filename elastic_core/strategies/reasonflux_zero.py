"""ReasonFlux-Zero (Yang et al. 2025, "ReasonFlux: Hierarchical LLM reasoning via scaling thought templates", section
3.3): a navigator plans, a template is retrieved, and the solver is led through it step by step.

The plan (category, direction, method, knowledge, flow) finds a template; the navigator adjusts its flow to it and
extracts the steps; for each it instructs and the solver works; then the solver states the final answer, which the
original never asks for. Both take part in one conversation, so each sample's state is its tokens.

A budget binds the whole: all replies before the final one share t, the final answer has s. When t is spent the solver
closes with what there is. Replies stay in the conversation, unreadable ones too, and every sampled token counts.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from elastic_core.budget import Budget
from elastic_core.models.special_tokens import Markers, chat_prompt
from elastic_core.reasonflux.guide import MAX_STEPS, Guide, load_script
from elastic_core.reasonflux.interpreter import Interpreter, question_of
from elastic_core.reasonflux.library import Template
from elastic_core.strategies.base import Completion, Draft, Finish, Generate, Sampling, Strategy, StrategyRun, solve
from elastic_core.system.fingerprint import hash_value
from elastic_core.trajectory import NAVIGATOR, TRANSLATED, ThinkFinish

if TYPE_CHECKING:
    from elastic_core.reasonflux.retrieval import Retriever

REASONFLUX_ZERO = "reasonflux_zero"
"""The strategy's name in the table."""
SOLVER = "solver"

REPLY_TOKENS = 3072
"""Most tokens of one reply, as published."""
ATTEMPTS = 2
"""Replies that a plan, or a list of steps, is looked for in."""

Replies = Generator[Generate, Completion, bool]


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
    wording: Literal["reasonflux", "published", "miniature"] = Field(
        "reasonflux",
        description="In which words navigator and solver are asked: ours, those of the published program as far as "
        "they are published, or miniature, for the miniature alone.",
    )


def reasonflux_zero(guide: Guide, navigator: Guide | None = None) -> Strategy:
    """The strategy over one library and model.

    Args:
        navigator: the guide of its tokenizer, where that is not the solver's.
    """

    def decode(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
        interpreter = Interpreter(navigator, guide, prompt_ids) if navigator else None
        talk = _Conversation(guide, interpreter, Draft(prompt_ids, sampling.logprobs), budget.think, markers, sampling)
        complete = yield from _plan_and_solve(talk, guide)
        talk.ask(guide.request("final"))
        start = len(talk.draft.tokens)
        talk.draft.turn(SOLVER)
        solution = yield from solve(talk.draft, budget.solution, markers, sampling)
        thinking = ThinkFinish.CLOSED if complete else ThinkFinish.FORCED
        return talk.draft.finish(start, thinking, solution).check(budget)

    return Strategy(
        decode,
        instruction=lambda budget: guide.plan_request,
        roles=(NAVIGATOR, SOLVER),
        thinks=False,
        max_translated_tokens=(2 * ATTEMPTS + 1 + MAX_STEPS) * REPLY_TOKENS if navigator else 0,
        max_forced_tokens=lambda markers: guide.max_forced_tokens,
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
        from elastic_core.reasonflux.retrieval import versioned

        library = [asdict(template) for template in self.library.values()]
        script: dict[str, Any] = asdict(load_script(self.parameters.wording))
        return hash_value([library, script, versioned(self.parameters.embedder)])

    def strategy(self, tokenizer: Any, markers: Markers, navigator: tuple[Any, Markers] | None = None) -> Strategy:
        """ReasonFlux-Zero for the models of a tokenizer.

        Args:
            navigator: its tokenizer and markers, where those are not the solver's.

        Raises:
            UserError: when the embedder cannot be had.
            ValueError: when a navigator cannot be told the question, see `question_of`.
        """
        guide = self._guide(tokenizer, markers)
        if navigator is None:
            return reasonflux_zero(guide)
        question_of(guide, chat_prompt(tokenizer, "1+1=?"))  # Tried here, before anything is drawn.
        return reasonflux_zero(guide, self._guide(*navigator))

    def _guide(self, tokenizer: Any, markers: Markers) -> Guide:
        return Guide(tokenizer, markers, self.library, self._retriever, load_script(self.parameters.wording))

    @cached_property
    def _retriever(self) -> "Retriever":
        from elastic_core.reasonflux.retrieval import build_retriever

        p = self.parameters
        return build_retriever(self.library, p.embedder, cache=self.cache, trust_remote_code=p.trust_remote_code)


def _no_library(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    raise TypeError("reasonflux_zero needs a library of templates: make it with reasonflux_zero(guide)")


WITHOUT_LIBRARY = Strategy(_no_library, roles=(NAVIGATOR, SOLVER), shares=False, thinks=False)
"""Stands for the strategy where only its name and roles count. What its rows drew followed a prompt unknown here."""


class _Conversation:
    """Requests and replies in one draft, with what is left of the budget for the latter."""

    def __init__(
        self,
        guide: Guide,
        interpreter: Interpreter | None,
        draft: Draft,
        left: int | None,
        markers: Markers,
        sampling: Sampling,
    ) -> None:
        self.draft = draft
        self._guide = guide
        self._interpreter = interpreter
        self._left = left
        self._markers = markers
        self._sampling = sampling
        self._ended = False
        """Whether the model ended the last reply itself."""
        draft.force(guide.opening)

    def ask(self, request: str) -> None:
        self.draft.force(self._guide.turn(request, self._ended))
        if self._interpreter:
            self._interpreter.ask(request)

    def reply(self, role: str, request: str = "") -> Generator[Generate, Completion, tuple[int, ...] | None]:
        """A reply's tokens; None when the budget is spent, before it or in the middle of it. Nothing is asked that
        nobody could answer."""
        if self._left == 0:
            return None
        if request:
            self.ask(request)
        limit = REPLY_TOKENS if self._left is None else min(REPLY_TOKENS, self._left)
        if self._interpreter and role == NAVIGATOR:
            self.draft.turn(TRANSLATED)
            reply = yield from self._translated(self._interpreter, limit)
        else:
            self.draft.turn(role)
            reply = yield Generate(self.draft.prefix, limit, self._markers.end_of_text, self._sampling, role)
        self.draft.sampled(reply)
        if self._interpreter:
            self._interpreter.hear(reply.tokens)
        self._ended = bool(reply.tokens) and reply.tokens[-1] in self._markers.end_of_text
        if self._left is not None:
            self._left -= len(reply.tokens)
        return reply.tokens if self._ended or self._left != 0 else None

    def _translated(self, interpreter: Interpreter, limit: int) -> Generator[Generate, Completion, Completion]:
        """A reply drawn in the navigator's tokens, in the solver's. It is drawn whole: which tokens a text has depends
        on how it goes on, and under every budget the first ones must be the same."""
        drawn = yield Generate(interpreter.prefix, REPLY_TOKENS, interpreter.end_of_text, self._sampling, NAVIGATOR)
        tokens = interpreter.say(drawn.tokens)
        return Completion(tokens[:limit], drawn.finish if len(tokens) <= limit else Finish.LENGTH)

    def until(
        self, readable: Callable[[tuple[int, ...]], object], again: str, request: str = ""
    ) -> Generator[Generate, Completion, tuple[int, ...] | None]:
        """The navigator's reply, asked for once more while it cannot be read."""
        reply = yield from self.reply(NAVIGATOR, request)
        for _ in range(ATTEMPTS - 1):
            if reply is None or readable(reply):
                break
            reply = yield from self.reply(NAVIGATOR, self._guide.request(again))
        return reply


def _plan_and_solve(talk: _Conversation, guide: Guide) -> Replies:
    """Everything before the final answer; False as soon as the budget is spent."""
    plan = yield from talk.until(guide.has_plan, "plan_again")
    if plan is None:
        return False
    template = guide.template(talk.draft.prompt_ids, plan)
    if (yield from talk.reply(NAVIGATOR, guide.adjust(template))) is None:
        return False
    steps = yield from talk.until(guide.num_steps, "extract_again", guide.request("extract"))
    if steps is None:
        return False
    # Without a readable list the template's own steps are gone through.
    num_steps = guide.num_steps(steps) or min(MAX_STEPS, len(template.reason_flow))
    for step in range(1, num_steps + 1):
        for request, role in (("instruct", NAVIGATOR), ("solve", SOLVER)):
            if (yield from talk.reply(role, guide.request(request, step, num_steps))) is None:
                return False
    return True
