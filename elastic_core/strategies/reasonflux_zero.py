"""ReasonFlux-Zero (Yang et al. 2025, "ReasonFlux: Hierarchical LLM reasoning via scaling thought templates", section
3.3): a navigator plans, a template is retrieved, and the solver is led through it step by step.

The plan (category, direction, method, knowledge, flow) finds a template, each level of the library by another field;
the navigator adjusts its flow to the template and extracts the steps; for each step the navigator instructs and
the solver works. Then the solver states the final answer, which the published program never requests. Both take part in
one conversation: a sample's state is its tokens.

All replies before the final one share t, the final answer has s. When t is spent the solver answers from the
conversation so far. Replies stay in the conversation, unreadable ones too, and every sampled token counts.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from elastic_core.budget import Budget
from elastic_core.models.special_tokens import Markers, chat_prompt
from elastic_core.reasonflux.guide import MAX_STEPS, Guide, Interpreter, load_script, question_of
from elastic_core.reasonflux.library import Template
from elastic_core.strategies.base import (
    FORCED_AT_T,
    Completion,
    Draft,
    Finish,
    Generate,
    Sampling,
    Strategy,
    StrategyRun,
    solve,
)
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
"""Replies in which a plan, or a list of steps, is looked for."""
MAX_TRANSLATED_TOKENS = (2 * ATTEMPTS + 1 + MAX_STEPS) * REPLY_TOKENS
"""Most tokens, beside the budget, that a navigator samples in a tokenizer of its own."""


class TemplateParameters(BaseModel):
    """Settings of the strategy `reasonflux_zero`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    library: str = Field("reasonflux", min_length=1)
    """Thought templates: reasonflux (the published ones) or miniature, either with those of `elastic data templates
    add`; or a JSON or JSONL file."""
    embedder: str = Field("tfidf", min_length=1)
    """What they are searched with: tfidf, or a sentence-transformers model."""
    query: Literal["fields", "joined"] = Field("fields", exclude_if="fields".__eq__)  # Then in no key.
    """What of a plan they are searched by: fields, as published (category for the chapter, direction for the section,
    method for the template), or joined, the three as one text for every level."""
    trust_remote_code: bool = False
    """Run the code that comes with an embedder; jina-embeddings-v3 needs it."""
    wording: Literal["reasonflux", "published", "miniature"] = "reasonflux"
    """In which words navigator and solver are asked: ours, those of the published program for the steps, or miniature,
    for the miniature alone."""


def reasonflux_zero(guide: Guide, navigator: Guide | None = None) -> Strategy:
    """The strategy over one library and model; `navigator` is the guide of a navigator with another tokenizer."""

    def decode(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
        interpreter = Interpreter(navigator, guide, prompt_ids) if navigator else None
        talk = _Conversation(guide, interpreter, Draft(prompt_ids, sampling.logprobs), budget.think, markers, sampling)
        talk.draft.force(guide.opening)
        complete = yield from _plan_and_solve(talk, guide)
        talk.ask(guide.request("final"))
        start = len(talk.draft.tokens)
        talk.draft.turn(SOLVER)
        solution = yield from solve(talk.draft, budget.solution, markers, sampling)
        thinking = ThinkFinish.CLOSED if complete else ThinkFinish.FORCED
        return talk.draft.finish(start, thinking, solution).check(budget)

    return replace(
        WITHOUT_LIBRARY,
        decode=decode,
        instruction=lambda budget: guide.request("plan"),
        shares=True,
        translates=navigator is not None,
        max_forced_tokens=lambda markers: guide.max_forced_tokens,
    )


@dataclass(frozen=True)
class Templates:
    """A library, its settings, and the directory that caches embeddings."""

    library: Mapping[str, Template]
    parameters: TemplateParameters
    cache: Path

    @property
    def fingerprint(self) -> str:
        """A hash of everything that can change a response."""
        from elastic_core.reasonflux.retrieval import versioned

        library = [asdict(template) for template in self.library.values()]
        p = self.parameters
        return hash_value([library, load_script(p.wording), versioned(p.embedder), p.query])

    def strategy(self, tokenizer: Any, markers: Markers, navigator: tuple[Any, Markers] | None = None) -> Strategy:
        """ReasonFlux-Zero for the models of a tokenizer. `navigator` has its tokenizer and markers where those are not
        the solver's. Raises UserError when the embedder cannot be had, ValueError as `question_of`."""
        guide = self._guide(tokenizer, markers)
        if navigator is None:
            return reasonflux_zero(guide)
        question_of(guide, chat_prompt(tokenizer, "1+1=?"))  # Tried here, before anything is drawn.
        return reasonflux_zero(guide, self._guide(*navigator))

    def _guide(self, tokenizer: Any, markers: Markers) -> Guide:
        script, joined = load_script(self.parameters.wording), self.parameters.query == "joined"
        return Guide(tokenizer, markers, self.library, self._retriever, script, joined)

    @cached_property
    def _retriever(self) -> "Retriever":
        from elastic_core.reasonflux.retrieval import build_retriever

        p = self.parameters
        return build_retriever(self.library, p.embedder, cache=self.cache, trust_remote_code=p.trust_remote_code)


def _no_library(prompt_ids: tuple[int, ...], budget: Budget, markers: Markers, sampling: Sampling) -> StrategyRun:
    raise TypeError("reasonflux_zero needs a library of templates: make it with reasonflux_zero(guide)")


WITHOUT_LIBRARY = Strategy(_no_library, roles=(NAVIGATOR, SOLVER), shares=False, thinks=False, rules=FORCED_AT_T)
"""Stands for the strategy where only its name and roles count. It does not share: its prompts are unknown here."""


@dataclass
class _Conversation:
    """Requests and replies in one draft."""

    guide: Guide
    interpreter: Interpreter | None
    draft: Draft
    left: int | None  # thinking tokens that the replies may still take
    markers: Markers
    sampling: Sampling
    ended: bool = False  # whether the model ended the last reply itself

    def ask(self, request: str) -> None:
        self.draft.force(self.guide.turn(request, self.ended))
        if self.interpreter:
            self.interpreter.ask(request)

    def reply(self, role: str, request: str = "") -> Generator[Generate, Completion, tuple[int, ...] | None]:
        """A reply's tokens; None when the budget is spent, before it or in the middle of it. A request that would get
        no reply is not written."""
        if self.left == 0:
            return None
        if request:
            self.ask(request)
        limit = REPLY_TOKENS if self.left is None else min(REPLY_TOKENS, self.left)
        if self.interpreter and role == NAVIGATOR:
            # The reply is sampled to its end and cut afterwards: the tokens of a text depend on how it goes on, and the
            # first ones must be the same under every budget.
            self.draft.turn(TRANSLATED)
            prefix, end = self.interpreter.prefix, self.interpreter.end_of_text
            drawn = yield Generate(prefix, REPLY_TOKENS, end, self.sampling, NAVIGATOR)
            tokens = self.interpreter.say(drawn.tokens)
            reply = Completion(tokens[:limit], drawn.finish if len(tokens) <= limit else Finish.LENGTH)
        else:
            self.draft.turn(role)
            reply = yield Generate(self.draft.prefix, limit, self.markers.end_of_text, self.sampling, role)
        self.draft.sampled(reply)
        if self.interpreter:
            self.interpreter.hear(reply.tokens)
        self.ended = bool(reply.tokens) and reply.tokens[-1] in self.markers.end_of_text
        if self.left is not None:
            self.left -= len(reply.tokens)
        return reply.tokens if self.ended or self.left != 0 else None

    def until(
        self, readable: Callable[[tuple[int, ...]], object], again: str, request: str = ""
    ) -> Generator[Generate, Completion, tuple[int, ...] | None]:
        """The navigator's reply; an unreadable one is requested again, `ATTEMPTS` times in all."""
        reply = yield from self.reply(NAVIGATOR, request)
        for _ in range(ATTEMPTS - 1):
            if reply is None or readable(reply):
                break
            reply = yield from self.reply(NAVIGATOR, self.guide.request(again))
        return reply


def _plan_and_solve(talk: _Conversation, guide: Guide) -> Generator[Generate, Completion, bool]:
    """Everything before the final answer; False as soon as the budget is spent."""
    plan = yield from talk.until(guide.has_plan, "plan_again")
    if plan is None:
        return False
    template = guide.template(talk.draft.prompt_ids, plan)
    if (yield from talk.reply(NAVIGATOR, guide.request("adjust", template=template))) is None:
        return False
    steps = yield from talk.until(guide.num_steps, "extract_again", guide.request("extract"))
    if steps is None:
        return False
    # Without a readable list the template's steps are used.
    num_steps = guide.num_steps(steps) or min(MAX_STEPS, len(template.reason_flow))
    for step in range(1, num_steps + 1):
        for request, role in (("instruct", NAVIGATOR), ("solve", SOLVER)):
            if (yield from talk.reply(role, guide.request(request, step=step, num_steps=num_steps))) is None:
                return False
    return True
