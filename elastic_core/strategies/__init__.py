"""Decoding strategies by name, or by the import path of a user's `Strategy`. Adding one takes a file here and a line in
STRATEGIES."""

from contextlib import suppress
from dataclasses import replace

from elastic_core.errors import UserError
from elastic_core.stop_rule import ADAPTIVE, StopRule
from elastic_core.strategies import budget_forcing, chat, reasonflux_zero, separate, single_pass
from elastic_core.strategies.adaptive import adaptive
from elastic_core.strategies.base import Completion, Decode, Finish, Generate, Purpose, Sampling, Strategy, StrategyRun
from elastic_core.strategies.variants import split_variant, variant
from elastic_core.system.imported import imported, is_declared


class _Strategies(dict[str, Strategy]):
    """Those that have a name, that of each stop rule by the rule's, and a user's by import path. UserError as
    `imported`, but where a table alone names it: its rows are read, and only running it is an error."""

    def __missing__(self, name: str) -> Strategy:
        base, closing, effort = split_variant(name)
        if base != name and base in self:
            try:
                return variant(self[base], name, closing, effort)
            except ValueError as error:
                raise UserError(str(error)) from None
        if ":" in name and not is_declared(name):
            return Strategy(lambda *_: imported(name), roles=("thinker", "solver"))
        if ":" in name:
            found: Strategy = imported(name, Strategy)
            if found.purpose is not None:
                raise UserError(f'"{name}" has the purpose "{found.purpose}" of another strategy; leave it out')
            return found
        try:
            return adaptive(StopRule.parse(name))
        except ValueError as error:
            raise KeyError(name) from error

    def __contains__(self, name: object) -> bool:
        with suppress(KeyError):
            return isinstance(name, str) and bool(self[name])
        return False


STRATEGIES = _Strategies(
    {
        "vanilla": replace(single_pass.VANILLA, purpose=Purpose.BASELINE),
        "separate": replace(separate.SEPARATE, purpose=Purpose.SERVED),
        "separate_native": separate.SEPARATE_NATIVE,
        "budget_forcing": budget_forcing.with_waits(0),
        **{f"budget_forcing_wait{n}": budget_forcing.with_waits(n) for n in (1, 2, 4, 6)},
        "l1_exact": single_pass.L1_EXACT,
        "l1_max": single_pass.L1_MAX,
        "unconstrained": replace(single_pass.UNCONSTRAINED, purpose=Purpose.FREE),
        reasonflux_zero.REASONFLUX_ZERO: reasonflux_zero.WITHOUT_LIBRARY,
        ADAPTIVE: adaptive(),
        **chat.EFFORTS,
    }
)

SERVED, BASELINE, FREE = (
    next(name for name, strategy in STRATEGIES.items() if strategy.purpose is purpose) for purpose in Purpose
)
"""Names of the strategies with each `Purpose`."""

__all__ = [
    "BASELINE", "FREE", "SERVED", "STRATEGIES", "Completion", "Decode", "Finish", "Generate", "Purpose", "Sampling",
    "Strategy", "StrategyRun",
]  # fmt: skip
