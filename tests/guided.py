"""ReasonFlux-Zero on the miniature's tokenizer and library, against engines that say what a test wants them to say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from elastic_core.budget import Budget
from elastic_core.engines.base import Engine, drive
from elastic_core.miniature.grammar import EOS, build_tokenizer
from elastic_core.models.special_tokens import Markers, chat_prompt, resolve_markers
from elastic_core.models.twins import build_tokenizer as build_family_tokenizer
from elastic_core.models.twins import family_of
from elastic_core.reasonflux.library import MINIATURE_FILE, read_library
from elastic_core.strategies import Completion, Finish, Generate, Sampling, Strategy
from elastic_core.strategies.reasonflux_zero import TemplateParameters, Templates
from elastic_core.trajectory import Trajectory

QUESTION = "36+2-4+7-1+1=?"
PLAN = "category: Easy chain\ndirection: more plus\nmethod: five steps\nknowledge: +-\nflow: 4,1"
CONVERSATION = (
    PLAN,
    "flow: 4,1",
    "1. 4 steps\n2. 1 steps",
    "+2-4+7-1",
    "36+2=38-4=34+7=41-1=40.",
    "+1",
    "40+1=41.",
    "\nFinal Answer:\\boxed{41}",
)


@cache
def tokenizer() -> Any:
    return build_tokenizer()


@cache
def plain_tokenizer() -> Any:
    """One without think markers, which splits text otherwise."""
    family = family_of("Qwen/Qwen2.5-32B-Instruct")
    return build_family_tokenizer(
        replace(family, tokens={i: token for i, token in family.tokens.items() if "think" not in token[0]})
    )


@cache
def markers() -> Markers:
    return resolve_markers(tokenizer())


@cache
def strategy() -> Strategy:
    parameters = TemplateParameters(library="miniature", query="joined", wording="miniature")
    return Templates(read_library(MINIATURE_FILE), parameters, Path("unused")).strategy(tokenizer(), markers())


@cache
def encode(text: str) -> tuple[int, ...]:
    return tuple(tokenizer().encode(text, add_special_tokens=False))


def text(ids: Iterable[int]) -> str:
    return str(tokenizer().decode(list(ids)))


def prompt(question: str = QUESTION) -> tuple[int, ...]:
    return chat_prompt(tokenizer(), strategy().prompt(question, Budget(0, 1)))


@dataclass
class Speaker:
    """Gives each reply in turn and stops after it; after the last one it has nothing to say."""

    replies: Iterator[str]
    requests: list[Generate] = field(default_factory=list)

    async def generate(self, request: Generate, seed: int) -> Completion:
        self.requests.append(request)
        tokens = encode(next(self.replies, "") + EOS)[: request.max_tokens]
        return Completion(tokens, Finish.STOP if tokens[-1:] == encode(EOS) else Finish.LENGTH)


def run(engine: Engine, budget: Budget) -> Trajectory:
    rollout = strategy().decode(prompt(), budget, markers(), Sampling())
    return asyncio.run(drive(rollout, {"policy": engine}, seed=0))


def say(budget: Budget, *replies: str) -> tuple[Trajectory, list[Generate]]:
    """The run in which navigator and solver say this, and what they were asked."""
    speaker = Speaker(iter(replies))
    return run(speaker, budget), speaker.requests
