"""Tokens of responses, counted where vLLM's engine hands them out: the same for every API that is in front of it.

A response that has more than its budget ends here: a solution under a grammar, which would reject a forced end-of-text,
and whatever an engine draws though a token was forced.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any

from elastic_core.engines.budgets.parameters import CLOSED, DROP_ONE, ROOM, SOLUTION, THINK, closing_arguments
from elastic_core.models.marks import Marks
from elastic_core.models.special_tokens import Markers
from elastic_core.serving.requests import UNLIMITED_BUDGET, Plan
from elastic_core.serving.ruled import Response, refused
from elastic_core.serving.tally import Tally

if TYPE_CHECKING:
    from elastic_core.serving.admission import Admission

Generate = Callable[..., AsyncGenerator[Any, None]]  # `generate` of vLLM's engine.
CURRENT: ContextVar[Count] = ContextVar("elastic_count")  # Of the HTTP request that is being answered.
_INTERVAL = 64  # Tokens after which a response that is not streamed is held against its budget.
_FAILED = (None, "abort", "error")  # How a choice ends that is not answered.


def watch(engine: Any) -> None:
    """Have what `engine.generate` of a vLLM server yields counted, once for each engine."""
    generate = engine.generate
    if getattr(generate, "is_counted", False):
        return

    @wraps(generate)
    def counted(prompt: Any, sampling_params: Any, request_id: str, **options: Any) -> AsyncGenerator[Any, None]:
        count, options = CURRENT.get(None), {**options, "request_id": request_id}
        if count is None or count.plan is None:
            return generate(prompt, sampling_params, **options)
        if not count.plan.counted:
            count.arrive_with_beams()
            return generate(prompt, sampling_params, **options)
        return count.follow(engine, generate, prompt, sampling_params, options)

    counted.is_counted = True  # type: ignore[attr-defined]
    engine.generate = counted


class Count:
    """The tokens of one HTTP request, with its budget set on the requests to the engine: `tallies` by the index of a
    choice, as OpenAI's APIs number them. On a server with a goal a request is load for one choice from its arrival, and
    for its further ones from when vLLM has accepted them; one that vLLM refuses is none.

    Args:
        plan: None until the request has been read.
        admission: of a server with a goal, which lowers thoughts.
    """

    def __init__(
        self, markers: Markers, tokenizer: Any, plan: Plan | None = None, admission: Admission | None = None
    ) -> None:
        self.tallies: dict[int, Tally] = {}
        self.plan = plan
        self._markers, self._marks, self._tokenizer = markers, Marks.of(markers), tokenizer
        self._admission = admission
        self.over: Callable[..., None] | None = None  # Ends what counts since the request came.
        self._further_over: Callable[..., None] | None = None  # The same of a request for beams.
        self._accepted = False
        self._num_choices = 0

    def follow(
        self, engine: Any, generate: Generate, prompt: Any, sampling: Any, options: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """The engine's outputs for one prompt, counted. It is called for a request's prompts in their order. Raises
        vLLM's refusal, here or with the first output."""
        part = _Part(self._plan, engine, generate, prompt, sampling, options, self._num_choices, self._marks)
        self._num_choices += sampling.n
        is_hidden = self._plan.body.get("include_reasoning") is False  # vLLM's grammar would hold from the first token.
        if "reasoning_ended" in options and (part.ends_here or (is_hidden and sampling.structured_outputs is not None)):
            part.options["reasoning_ended"] = part.closed
        self._check(part)
        return self._outputs(part) if self._admission is None else self._admitted(part, self._admission)

    def arrive_with_beams(self) -> None:
        """Count beams as load of `n` choices, until `leave`; their tokens cannot be counted."""
        further = 0 if self._accepted else (self._plan.body.get("n") or 1) - 1
        self._accepted = True
        if self._admission is not None and further:
            self._further_over = self._admission.arrive(further)[1]

    def leave(self, answered: bool) -> None:
        """End the request; its further choices have left by themselves."""
        if self._further_over is not None:
            self._further_over(self._plan, (), False)
        if self.over is not None:
            answered = answered and all(tally.finish not in _FAILED for tally in self.tallies.values())
            first = [self.tallies[0]] if 0 in self.tallies else []
            self.over(self._plan if self._accepted else None, first, answered)

    def told(self, index: int = 0) -> dict[str, Any]:
        """Fields of a response about one choice."""
        tally = self.tallies.get(index) or Tally(self._plan.budget, self._kept_marks, None)
        return {
            "budget": str(tally.budget),
            "level": self._plan.level,
            "thought": tally.thought,
            "thinking_tokens": tally.thinking,
            "solution_tokens": tally.solution,
            "forced_tokens": tally.forced,
            **({"excess_tokens": tally.excess} if tally.excess else {}),
            **tally.load,
            **tally.rule,
        }

    @property
    def _kept_marks(self) -> Marks:
        """Those that close the thought of this request."""
        return self._marks if self._plan.marks is None else Marks.of(self._plan.marks)

    @property
    def _plan(self) -> Plan:
        if self.plan is None:
            raise RuntimeError("the request has not been read")
        return self.plan

    def _check(self, part: _Part) -> None:
        """Raise vLLM's refusal of settings that exclude the budget."""
        plan, sampling, engine = part.plan, part.sampling, part.engine
        if part.ruled:
            if name := refused(sampling):
                raise _refusal(f"{name} together with the level {plan.level}, whose stop rule probes; leave it out")
            left = engine.model_config.max_model_len - len(part.ids or ())
            if plan.room > left:
                raise _refusal(
                    f"the budget {plan.budget} does not fit the context: it takes {plan.room} tokens after the prompt, "
                    f"which leaves {left}; ask for a smaller one"
                )
        elif part.ends_here:
            # A grammar that began with the thought would reject the forced end of it.
            config = engine.vllm_config.structured_outputs_config
            if not config.reasoning_parser or config.enable_in_reasoning:
                raise _refusal(
                    "structured output together with a budget needs a grammar that begins after the thought; start the "
                    f"server with --reasoning-parser and without enable_in_reasoning, or {DROP_ONE}"
                )
            if sampling.n > 1:
                raise _refusal(f"n is {sampling.n} with structured output and a budget; ask {sampling.n} times")

    async def _admitted(self, part: _Part, admission: Admission) -> AsyncGenerator[Any, None]:
        """Outputs of a request that has had its place since before vLLM read it. vLLM checks its further choices before
        they are load."""
        part.load = admission.told(part.plan)
        further = range(part.first + (part.first == 0), part.first + part.sampling.n)
        over: Callable[..., None] | None = None
        is_seen = False
        try:
            if further:
                engine, checked = part.engine, part.sampling if part.ruled else self._limited(part)
                name, tasks = part.options["request_id"], await engine.get_supported_tasks()
                engine.input_processor.process_inputs(name, part.prompt, checked.clone(), supported_tasks=tasks)
                over = admission.arrive(len(further))[1]  # Requests that hold a place and wait for more would stop all.
            self._accepted = True
            async with aclosing(self._outputs(part)) as outputs:
                async for output in outputs:
                    is_seen = True
                    yield output
        except ValueError:
            self._accepted = is_seen or part.first > 0
            raise
        finally:
            if over is not None:
                over(part.plan, [self.tallies[index] for index in further if index in self.tallies], False)

    def _outputs(self, part: _Part) -> AsyncGenerator[Any, None]:
        if part.ruled:
            return self._ruled(part)
        return self._counted(part) if part.plan.budget == UNLIMITED_BUDGET else self._kept(part)

    def _limited(self, part: _Part) -> Any:
        """Copy vLLM's sampling parameters, with the budget for the processor, and limits that hold even if the engine
        ignores a forced token."""
        budget, limited = part.plan.budget, copy(part.sampling)
        if budget == UNLIMITED_BUDGET:
            return limited
        solution = None if part.ends_here else budget.solution
        limits = {key: limit for key, limit in ((THINK, budget.think), (SOLUTION, solution)) if limit is not None}
        limited.extra_args = {**(limited.extra_args or {}), **limits, ROOM: part.plan.room, CLOSED: part.closed}
        limited.extra_args |= closing_arguments(self._kept_marks)
        # Every id that ends a response; a checkpoint's may not be among those that vLLM knows.
        limited.update_from_generation_config({"eos_token_id": list(self._marks.end_of_text)})
        if budget.total is not None:
            most = budget.total + self._kept_marks.max_forced + 1  # With the end-of-text of a cut.
            limited.max_tokens = min(most, limited.max_tokens or most)
        interval = getattr(limited, "stream_interval", None) or 1
        if limited.output_kind.name == "FINAL_ONLY" and (part.ends_here or budget.total is None):
            limited.output_kind, interval = type(limited.output_kind).DELTA, _INTERVAL
        limited.stream_interval = 1 if part.ends_here else min(interval, _INTERVAL)
        return limited

    async def _ruled(self, part: _Part) -> AsyncGenerator[Any, None]:
        """Outputs of a response under a stop rule."""
        rule, budget, context = part.plan.rule, part.plan.budget, part.engine.model_config.max_model_len
        assert rule is not None and part.ids is not None
        response = Response(rule, budget, self._markers, self._tokenizer, context)
        outputs = response.outputs(part.generate, list(part.ids), part.sampling, part.options)
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    if output.finished:  # Counted before it is sent.
                        self.tallies[part.first] = self._tally(part, response, output.outputs[0].finish_reason)
                    yield output
        finally:
            self.tallies.setdefault(part.first, self._tally(part, response, None))

    def _tally(self, part: _Part, response: Response, finish: str | None) -> Tally:
        """Count a response under a rule, also one that its client left."""
        done = response.trajectory
        told: dict[str, Any] = {"rule": response.rule.name, "probe_tokens": response.probe_tokens}
        told["wasted_tokens"] = response.wasted_tokens
        tally = Tally(part.plan.budget, self._marks, None, finish=finish, load=part.load, rule=told)
        if done is None:
            tally.thinking = tally.length = len(response.tokens)
            return tally
        told |= {"thought": str(done.think_finish), "probes": len(done.probes), "stopped": done.stopped}
        told["stopped_at"] = done.think_tokens if done.stopped else None
        tally.thinking, tally.solution, tally.forced = done.think_tokens, done.solution_tokens, done.forced_tokens
        tally.solution_start, tally.length = done.solution_start, len(done.response_ids)
        return tally

    async def _counted(self, part: _Part) -> AsyncGenerator[Any, None]:
        """Outputs without a limit."""
        outputs = part.generate(part.prompt, part.sampling, **part.options)
        async with aclosing(outputs):  # The engine stops when the client has left.
            async for output in outputs:
                for completion in output.outputs:
                    self._add(part, output, completion)
                yield output

    async def _kept(self, part: _Part) -> AsyncGenerator[Any, None]:
        """Outputs under a budget. A choice that has more ends here, and so does one that is full under a grammar."""
        limited = self._limited(part)
        is_merged = limited.output_kind is not part.sampling.output_kind
        choices: dict[int, _Choice] = {}
        prompt_logprobs = None
        outputs = part.generate(part.prompt, limited, **part.options)
        async with aclosing(outputs):
            async for output in outputs:
                prompt_logprobs = prompt_logprobs or output.prompt_logprobs  # Only in the first one.
                output.outputs = [each for each in output.outputs if not choices.setdefault(each.index, _Choice()).over]
                for completion in output.outputs:
                    tally, trimmed = self._add(part, output, completion)
                    full = tally.solution_start is not None and tally.solution == part.plan.budget.solution
                    if completion.finish_reason is None and (tally.excess or (part.ends_here and full)):
                        tally.finish = completion.finish_reason = "length"
                    # Trimmed text is of tokens that are not the response's as well; a cut's end-of-text has none.
                    retold = self._tokenizer if trimmed and (tally.excess or part.ends_here) else None
                    choices[completion.index].add(completion, retold)
                output.finished = len(choices) == limited.n and all(choice.over for choice in choices.values())
                if is_merged and output.finished:
                    output.prompt_logprobs = prompt_logprobs
                    output.outputs = [choices[index].merged() for index in sorted(choices)]
                if output.outputs and (output.finished or not is_merged):
                    yield output
                if output.finished:
                    return

    def _add(self, part: _Part, output: Any, completion: Any) -> tuple[Tally, bool]:
        """Count the new tokens of a completion, and leave in it those of the response. Returns the choice's tally,
        and whether something was taken out."""
        index = part.first + completion.index
        if completion.finish_reason == "error" and part.sampling.structured_outputs is not None:
            raise _refusal("no text can follow the grammar, or it cannot be compiled; give another one")
        if (tally := self.tallies.get(index)) is None:
            start = 0 if self._marks.is_closed(output.prompt_token_ids or (), part.plan.continues) else None
            tally = Tally(part.plan.budget, self._kept_marks, start, grammar=part.ends_here, load=part.load)
            self.tallies[index] = tally
        tokens = completion.token_ids  # Each output has the tokens since the one before.
        kept = tally.add(tokens)
        trimmed = kept < len(tokens)
        if trimmed:
            completion.token_ids = tokens[:kept]
            if completion.logprobs is not None:
                completion.logprobs = completion.logprobs[:kept]
        if completion.finish_reason is not None:
            if tally.cut or tally.excess:
                completion.finish_reason, completion.stop_reason = "length", None
            tally.finish = completion.finish_reason
        return tally, trimmed


@dataclass
class _Part:
    """One prompt of a request, and the engine that it is for. `first` is the number of its first choice."""

    plan: Plan
    engine: Any
    generate: Generate
    prompt: Any
    sampling: Any
    options: dict[str, Any]
    first: int
    marks: Marks
    load: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ids(self) -> Sequence[int] | None:
        """The prompt's tokens, None where they are not known."""
        return self.prompt.get("prompt_token_ids") if isinstance(self.prompt, dict) else None

    @cached_property
    def closed(self) -> bool | None:
        """Whether the prompt has closed the thought."""
        return None if self.ids is None else self.marks.is_closed(self.ids, self.plan.continues)

    @property
    def ends_here(self) -> bool:
        """Whether a grammar would reject the end-of-text after s tokens."""
        return self.sampling.structured_outputs is not None and self.plan.budget.solution is not None

    @property
    def ruled(self) -> bool:
        """Whether a stop rule ends the thought."""
        return self.plan.rule is not None and self.ids is not None and not self.closed


@dataclass
class _Choice:
    """A choice as sent so far: its `last` completion, and `over` once that one ended it."""

    ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    over: bool = False
    last: Any = None

    def add(self, completion: Any, tokenizer: Any = None) -> None:
        """Append a completion; a tokenizer decodes its text anew."""
        self.ids += completion.token_ids
        self.logprobs += completion.logprobs or ()
        if tokenizer is not None:
            completion.text = tokenizer.decode(self.ids, skip_special_tokens=True)[sum(map(len, self.texts)) :]
        self.texts.append(completion.text)
        self.last, self.over = completion, completion.finish_reason is not None

    def merged(self) -> Any:
        """The last completion, with all before it."""
        self.last.token_ids, self.last.text = self.ids, "".join(self.texts)
        self.last.logprobs = None if self.last.logprobs is None else self.logprobs
        return self.last


def _refusal(sentence: str) -> ValueError:
    """What vLLM answers with status 400."""
    from vllm.exceptions import VLLMValidationError

    refusal: ValueError = VLLMValidationError(sentence)
    return refusal
