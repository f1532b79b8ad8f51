r"""How the miniature writes: thoughts in three styles, and solutions that can pick up an unfinished thought.

    verbose     Okay, let me compute this step by step. we have 36, first 36+6=42. we have 42, then 42-4=38. So the
                answer is 38.
    medium      Let me compute. first 36+6=42. then 42-4=38.
    concise     36+6=42-4=38.

    direct      \nFinal Answer:\boxed{38}                           needs a finished thought
    continued   from 36+6=42-4=38\nFinal Answer:\boxed{38}         restates the thought's last operation, then goes on
    derived     36+6=42-4=38\nFinal Answer:\boxed{38}

Under ReasonFlux-Zero it is navigator and solver. Their ideal replies about `36+2-4+7-1+1=?` are

    plan        category: Easy chain / direction: more plus / method: five steps / knowledge: +- / flow: 4,1
    adjusted    flow: 4,1
    steps       1. 4 steps / 2. 1 steps
    instructed  +2-4+7-1                    then    +1
    solved      36+2=38-4=34+7=41-1=40.     then    40+1=41.

Its tokenizer has one token per word, digit, signed operand and marker, and every printable ASCII character. A text is
read greedily, longest piece first, so a corpus that is decoded and encoded has the same ids. `<think>` and `</think>`
are not "special" in Hugging Face's sense, so they survive `skip_special_tokens`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elastic_core.budget import Budget
from elastic_core.miniature.problems import Problem
from elastic_core.models.special_tokens import Markers, chat_prompt, resolve_markers
from elastic_core.reasonflux.guide import Plan
from elastic_core.reasonflux.library import MINIATURE_FILE, read_library
from elastic_core.strategies.base import Completion, Finish, Sampling, Strategy
from elastic_core.strategies.reasonflux_zero import SOLVER, TemplateParameters, Templates
from elastic_core.trajectory import Trajectory

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, BOS, EOS, UNK = "<pad>", "<bos>", "<eos>", "<unk>"
USER, ASSISTANT = "<|user|>", "<|assistant|>"
THINK, END_THINK = "<think>", "</think>"
BOXED, END_BOXED = "\\boxed{", "}"
NEWLINE, FINAL_ANSWER = "\n", "Final Answer:"

SPECIAL = (PAD, BOS, EOS, UNK, USER, ASSISTANT)
MARKERS = (THINK, END_THINK)
OPERATIONS = tuple(f"{sign}{digit}" for sign in "+-" for digit in range(1, 10))
WORDS = (
    # Thoughts and solutions, in the order in which a verbose thought uses them.
    *("Okay", "Let", " let", " me", " compute", " this", " step", " by", " we", " have ", " first ", " then "),
    *("Wait", " check", " again", " So", " the", " answer", " is ", "from "),
    # Prompts: L1's length requests, and the request for a boxed answer.
    *(" Think", " for", " maximum", " tokens", " and", " output", " final", " within"),
    # Thought templates: a navigator's plan, and requests to navigator and solver.
    *("category: ", "direction: ", "method: ", "knowledge: ", "flow: ", "template: "),
    *("plan", "solve", "steps", " steps"),
    *("Easy chain", "Hard chain", "more plus", "more minus", "output", " at once"),
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
)
VOCABULARY_MULTIPLE = 16

CHAT_TEMPLATE = (
    "{{ '<bos>' }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ '<|assistant|>' + message['content'] + '<eos>' }}"
    "{% else %}{{ '<|user|>' }}{{ message['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|><think>' }}{% endif %}"
)


@cache
def vocabulary() -> Mapping[str, int]:
    """Token to id, in a fixed order, padded to a multiple of 16 with unused entries."""
    pieces = [*SPECIAL, *MARKERS, BOXED, END_BOXED, NEWLINE, FINAL_ANSWER, *string.digits, *OPERATIONS, *WORDS]
    pieces += [c for c in map(chr, range(32, 127)) if c not in pieces]
    pieces += [f"<unused{i}>" for i in range(-len(pieces) % VOCABULARY_MULTIPLE)]
    return {piece: i for i, piece in enumerate(pieces)}


def pieces_pattern() -> str:
    """The regular expression that cuts a text into tokens, longest alternative first."""
    pieces = [p for p in vocabulary() if not p.startswith("<unused")]
    # re.escape writes "\ " and "\<newline>", which Oniguruma, the engine inside `tokenizers`, reads literally too.
    return "|".join(re.escape(p).replace("\\\n", "\\n") for p in sorted(pieces, key=len, reverse=True))


_PIECES = re.compile(pieces_pattern())


def encode(text: str) -> list[int]:
    """Token ids of a text, as the tokenizer gives them, some fifty times faster."""
    ids = vocabulary()
    return [ids[piece] for piece in _PIECES.findall(text)]


EFFORT_TEMPLATE = CHAT_TEMPLATE.replace(
    "{{ '<|user|>' }}", "{{ '<|user|>' }}{% if reasoning_effort %}{{ reasoning_effort + ' ' }}{% endif %}"
)
"""Of a miniature that was trained with an effort word (`corpus.effort_recipe`): the word stands before the question."""


def prompt_ids(question: str, effort: str | None = None) -> list[int]:
    """The chat template applied to a question, generation prompt included: ends in `<think>`."""
    ids = vocabulary()
    return [ids[BOS], ids[USER], *encode(f"{effort} {question}" if effort else question), ids[ASSISTANT], ids[THINK]]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer with its chat template; a generation prompt ends in `<think>`."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel(dict(vocabulary()), unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pieces_pattern()), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_tokens([AddedToken(marker, special=False, normalized=False) for marker in MARKERS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNK,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )


Style = Literal["verbose", "medium", "concise"]
SolutionKind = Literal["direct", "continued", "derived"]

_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven")
_MOST_EASY = 5  # operations of the longest easy problem
OPERATIONS_PER_STEP = 4


def thought(problem: Problem, style: Style, num_rechecks: int) -> str:
    """A complete thought. Only verbose and medium thoughts re-check; a re-check repeats the chain in medium style."""
    if style == "concise":
        return f"{_chain(problem)}."
    medium = _spelled_chain(problem, verbose=False)
    rechecks = f"{NEWLINE}Wait, let me check this again.{medium}" * num_rechecks
    if style == "medium":
        return f"Let me compute.{medium}{rechecks}"
    verbose = _spelled_chain(problem, verbose=True)
    return f"Okay, let me compute this step by step.{verbose}{rechecks} So the answer is {problem.answer}."


def _spelled_chain(problem: Problem, verbose: bool) -> str:
    """` first 36+6=42. then 42-4=38.`: every operation in words, if verbose after the total before it."""
    steps = zip(problem.operations, problem.totals[:-1], problem.totals[1:], strict=True)
    return "".join(
        f"{f' we have {before},' if verbose else ''}{' then ' if i else ' first '}{before}{operation}={after}."
        for i, (operation, before, after) in enumerate(steps)
    )


def _chain(problem: Problem, start: int = 0, end: int | None = None) -> str:
    """`36+6=42-4=38`: the operations from `start` to `end`."""
    steps = zip(problem.operations[start:end], problem.totals[start + 1 :], strict=False)
    return f"{problem.totals[start]}{''.join(f'{operation}={total}' for operation, total in steps)}"


def solution(problem: Problem, kind: SolutionKind, operations_mentioned: int) -> str:
    """The text after `</think>`, without the end-of-text token.

    A continued solution restates the last of the `operations_mentioned` in the thought's current pass, which may lack
    its result; where none was mentioned it derives everything.
    """
    if kind == "direct":
        body = ""
    elif kind == "continued" and operations_mentioned:
        body = f"from {_chain(problem, operations_mentioned - 1)}"
    else:
        body = _chain(problem)
    return f"{body}{NEWLINE}{FINAL_ANSWER}{BOXED}{problem.answer}{END_BOXED}"


@cache
def _guided() -> tuple[Any, Markers, Strategy, set[int]]:
    """Tokenizer, its markers, ReasonFlux-Zero with the miniature's library, and the tokens of operations."""
    tokenizer = build_tokenizer()
    markers = resolve_markers(tokenizer)
    parameters = TemplateParameters(library="miniature", query="joined", wording="miniature")
    # TF-IDF keeps nothing in a cache.
    strategy = Templates(read_library(MINIATURE_FILE), parameters, cache=Path()).strategy(tokenizer, markers)
    return tokenizer, markers, strategy, {token for operation in OPERATIONS for token in encode(operation)}


def guided_chain(problem: Problem, think: int | None, solution: Callable[[int], str]) -> Trajectory:
    """An ideal conversation of ReasonFlux-Zero about a problem; navigator and solver are cut after `think` tokens
    (None: never), and `solution` gives the last text, from the number of operations that the solver has written."""
    tokenizer, markers, strategy, operations = _guided()
    budget = Budget(think, None)
    prompt = chat_prompt(tokenizer, strategy.prompt(problem.question, budget))
    rollout = strategy.decode(prompt, budget, markers, Sampling())
    replies = _replies(problem)
    request = next(rollout)
    solved = 0
    while True:
        # Only the final answer is without a limit.
        text = solution(solved) if request.max_tokens is None else next(replies)
        tokens = tuple(encode(text + EOS)[: request.max_tokens])
        if request.role == SOLVER:
            solved += sum(token in operations for token in tokens)
        try:
            request = rollout.send(Completion(tokens, Finish.STOP))
        except StopIteration as stop:
            trajectory: Trajectory = stop.value
            return trajectory


def _replies(problem: Problem) -> Iterator[str]:
    """What navigator and solver say before the final answer."""
    plan, counts = plan_of(problem.question), divided(len(problem.operations))
    yield NEWLINE.join(f"{name}: {text}" for name, text in asdict(plan).items())
    yield f"flow: {plan.flow}"
    yield NEWLINE.join(f"{number}. {count} steps" for number, count in enumerate(counts, 1))
    done = 0
    for count in counts:
        yield "".join(problem.operations[done : done + count])
        yield f"{_chain(problem, done, done + count)}."
        done += count


def plan_of(question: str) -> Plan:
    """The plan of a chain such as `36+6-4+8=?`, from its level, length and more frequent operation."""
    signs = re.findall(r"[+-](?=\d)", question)
    more_plus = signs.count("+") >= signs.count("-")
    return Plan(
        category="Easy chain" if len(signs) <= _MOST_EASY else "Hard chain",
        direction="more plus" if more_plus else "more minus",
        method=f"{_NUMBERS[min(max(len(signs) - 2, 0), len(_NUMBERS) - 1)]} steps",
        knowledge="+-" if more_plus else "-+",
        flow=",".join(map(str, divided(len(signs)))),
    )


def divided(num_operations: int) -> list[int]:
    """How many operations each step takes."""
    whole, rest = divmod(num_operations, OPERATIONS_PER_STEP)
    return [OPERATIONS_PER_STEP] * whole + [rest] * bool(rest)
