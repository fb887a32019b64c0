"""What goes into the engine and what comes out: one row is one sample under one policy and one budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.engine.requests.ledger import Ledger
from policies import Policy

Regime = Literal["blocked", "one_shot", "token_fed", "simulated"]
REGIMES: tuple[Regime, ...] = ("blocked", "one_shot", "token_fed")
SIMULATED: Regime = "simulated"  # not a way to save memory, hence not among them


class EngineError(ValueError):
    """A run that the engine must refuse. The message is a sentence: what is wrong, where, what to do."""


@dataclass(frozen=True)
class Prompting:
    """How the prompt is fed (architecture, axis 1).

    ``blocked``: blocks of ``block_size`` tokens, each attends only to what survived the earlier ones (KeyDiff, CAOTE).
    ``one_shot``: the whole prompt at once, one compression per layer afterwards (SnapKV, K-VEC).
    ``token_fed``: the first N tokens at once, then one token at a time (HashEvict's text).
    ``simulated``: survivors are chosen as in ``blocked``, but every token is computed as if nothing had been evicted
    (`harness.engine.batch.simulated_blocks`): what evaluations within one dense pass measure, kept for comparison.
    """

    regime: Regime = "blocked"
    block_size: int = 128  # tokens; meaningful for ``blocked`` and ``simulated`` only

    def __post_init__(self) -> None:
        if self.regime not in (*REGIMES, SIMULATED):
            known = ", ".join((*REGIMES, SIMULATED))
            raise EngineError(f"There is no prompt regime '{self.regime}'. Known: {known}.")
        if self.block_size < 1:
            raise EngineError(
                f"block_size={self.block_size} would never process the prompt: give at least 1 token per block."
            )

    @property
    def has_blocks(self) -> bool:
        """Whether ``block_size`` means anything."""
        return self.regime in ("blocked", SIMULATED)

    def chunks(self, tokens: int, budget: int) -> list[tuple[int, int]]:
        """(start, stop) of every forward pass over ``tokens`` prompt tokens; a short last block stays short (A-20)."""
        if self.regime == "one_shot":
            return [(0, tokens)]
        if self.regime == "token_fed":
            first = min(tokens, budget)
            return [(0, first), *((i, i + 1) for i in range(first, tokens))]
        return [(i, min(i + self.block_size, tokens)) for i in range(0, tokens, self.block_size)]

    def widest(self, tokens: int, budget: int) -> int:
        """Tokens of the widest chunk: how far a hard budget may be overshot during attention."""
        return max(stop - start for start, stop in self.chunks(tokens, budget))


@dataclass(frozen=True)
class Request:
    """One sample under one policy.

    ``budget``: slots per layer and KV head that may persist; ignored by a dense policy. ``max_new_tokens = 0`` asks
    for no generation. ``stops`` end a generation beside the engine's own stop tokens, but none of them is chosen among
    the first ``min_new_tokens``; ``until`` is asked after every token whether what was said so far is enough.
    ``continuation``: tokens whose likelihood after the prompt is asked, for `Engine.follow`.
    """

    tokens: Sequence[int]
    policy: Policy
    budget: int = 0
    max_new_tokens: int = 0
    min_new_tokens: int = 0
    stops: frozenset[int] = frozenset()
    until: Callable[[Sequence[int]], bool] | None = None
    continuation: Sequence[int] = ()

    def __post_init__(self) -> None:
        if not self.tokens:
            raise EngineError("A prompt has no tokens: every sample needs at least one.")
        if not self.policy.is_dense:
            self.policy.check_budget(self.budget)

    @property
    def total_tokens(self) -> int:
        """Prompt and generation together, tokens."""
        return len(self.tokens) + self.max_new_tokens

    def chunks(self, prompting: Prompting) -> list[tuple[int, int]]:
        """(start, stop) of every forward pass over the prompt.

        A policy whose evictions can be foreseen reads a token-fed prompt in one pass, under a mask that hides each
        token from its death on (policies.md 3.14): the same outputs as token by token.
        """
        if prompting.regime == "token_fed" and self.policy.foresees:
            return [(0, len(self.tokens))]
        return prompting.chunks(len(self.tokens), self.total_tokens if self.policy.is_dense else self.budget)

    @property
    def capacity(self) -> int:
        """Slots per layer and KV head this row can ever persist."""
        if self.policy.is_dense or self.policy.schedule.prompt == "never":
            return self.total_tokens
        if self.policy.schedule.decode == "never":
            return min(self.total_tokens, self.budget + self.max_new_tokens)
        return min(self.total_tokens, self.budget)


@dataclass(frozen=True)
class RequestOutput:
    """What a row produced. ``nll`` are nats per predicted token, of the prompt or of the continuation, in order."""

    ledger: Ledger
    tokens: list[int] = field(default_factory=list)
    nll: list[float] = field(default_factory=list)
    greedy: bool = False  # whether every token of the continuation was the model's first choice


def neighbours_by_policy(rows: Sequence[Request]) -> list[int]:
    """An order of these rows in which equal policies are neighbours, in the order of the first of each."""
    seen = {policy: number for number, policy in enumerate(dict.fromkeys(row.policy for row in rows))}
    return sorted(range(len(rows)), key=lambda index: seen[rows[index].policy])
