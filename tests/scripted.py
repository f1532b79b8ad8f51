"""An engine without a model: it follows a function from prefix to next token. For tests and for reading strategies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from elastic_core.seeds import request_seed
from elastic_core.strategies.base import Completion, Finish, Generate


@dataclass
class ScriptedEngine:
    """`next_token(prefix, seed)` decides every token, at most `context` tokens of prefix and completion together.

    `requests` remembers what was asked.
    """

    next_token: Callable[[tuple[int, ...], int], int]
    context: int = 4096
    requests: list[Generate] = field(default_factory=list)

    async def generate(self, request: Generate, seed: int) -> Completion:
        self.requests.append(request)
        room = self.context - len(request.prefix)
        limit = room if request.max_tokens is None else min(room, request.max_tokens)
        tokens: list[int] = []
        while len(tokens) < limit:
            tokens.append(self.next_token(request.prefix + tuple(tokens), request_seed(seed, request)))
            if tokens[-1] in request.stop:
                return self._completion(request, tokens, Finish.STOP)
        return self._completion(request, tokens, Finish.LENGTH)

    @staticmethod
    def _completion(request: Generate, tokens: list[int], finish: Finish) -> Completion:
        return Completion(tuple(tokens), finish, (-1.0,) * len(tokens) if request.sampling.logprobs else None)
