"""The engine's input and output: `Request`, `RequestOutput` and its `Ledger`; what is refused, and why.

A request is one sample under one policy and one budget. `reason_against`, `reason_against_model` and
`refuse_unsupported` decide before anything is computed. The support matrix in the documentation is `reason_against`
over all presets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import floor
from typing import Any, Literal, get_args

from policies import Policy
from policies.view import Fitted, ModelShape

Regime = Literal["blocked", "one_shot", "token_fed", "simulated"]
Split = Literal["whole", "context"]
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

    ``split="context"`` (kvpress' protocol): the regime reads the context alone, and the question, the end of the
    prompt, is fed after it has been compressed, as text that arrives in decode. `Request.question` holds it.
    """

    regime: Regime = "blocked"
    block_size: int = 128  # tokens; meaningful for ``blocked`` and ``simulated`` only
    split: Split = "whole"

    def __post_init__(self) -> None:
        if self.split not in get_args(Split):
            raise EngineError(f"prompt_split={self.split} is not one of {', '.join(get_args(Split))}.")
        if self.split == "context" and self.regime == SIMULATED:
            raise EngineError(
                "prompt=simulated computes every token as if nothing had been evicted, the question too, so "
                "prompt_split=context means nothing there: use prompt=blocked or prompt=one_shot."
            )
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

    @property
    def label(self) -> str:
        """The column ``prompt`` of rows: ``one_shot``, or ``one_shot/context`` where the question comes later."""
        return self.regime if self.split == "whole" else f"{self.regime}/{self.split}"

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
class RepeatPrompt:
    """What asks a model to repeat its context piece by piece (KVzip), token ids; empty: nothing is said.

    ``first`` stands before the first piece, ``later`` and the last ``overlap`` tokens before a piece before all others;
    ``answer`` begins the answer, which is the piece.
    """

    first: tuple[int, ...] = ()
    later: tuple[int, ...] = ()
    answer: tuple[int, ...] = ()
    overlap: int = 8

    def passes(self, context: Sequence[int], chunk: int) -> Iterator[tuple[range, list[int]]]:
        """For each piece its place in the context and what is fed for it."""
        for start in range(0, len(context), chunk):
            piece = range(start, min(start + chunk, len(context)))
            before = [*self.later, *context[max(0, start - self.overlap) : start]] if start else list(self.first)
            yield piece, [*before, *self.answer, *context[piece.start : piece.stop]]


@dataclass(frozen=True)
class Request:
    """One sample under one policy.

    ``budget``: slots per layer and KV head that may persist; ignored by a dense policy. ``so_far``: after the prompt it
    grows to this share of all tokens that were fed; 0 where it stays. ``max_new_tokens = 0`` asks for no generation.
    ``stops`` end a generation beside the engine's own stop tokens, but none of them is chosen among the first
    ``min_new_tokens``; ``until`` is called after every token with all generated tokens and ends the generation where it
    returns true. ``continuation``: tokens whose likelihood after the prompt `Engine.follow` gives. ``question``: tokens
    that follow ``tokens`` and are fed after these have been compressed, in the phase "decode". ``temperature`` above 0
    draws tokens instead of choosing the likeliest, among the fewest whose probabilities reach ``top_p``; ``seed``
    decides the draws, the same for every policy. ``repeat``: how a policy that lets the model repeat its prompt asks
    for that.
    """

    tokens: Sequence[int]
    policy: Policy
    budget: int = 0
    max_new_tokens: int = 0
    min_new_tokens: int = 0
    stops: frozenset[int] = frozenset()
    until: Callable[[Sequence[int]], bool] | None = None
    continuation: Sequence[int] = ()
    question: Sequence[int] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    repeat: RepeatPrompt = RepeatPrompt()
    so_far: float = 0.0

    def __post_init__(self) -> None:
        if not self.tokens:
            raise EngineError("A prompt has no tokens: every sample needs at least one.")
        if not self.policy.is_dense:
            self.policy.check_budget(self.budget)

    @property
    def total_tokens(self) -> int:
        """Prompt, question and generation together, tokens."""
        return self.prompt_tokens + self.max_new_tokens

    @property
    def positions(self) -> int:
        """Positions that the model needs for it: of the text, or of the prompt while it is repeated."""
        longest = max((len(fed) for _, fed in self.pieces_repeated()), default=0)
        return max(self.total_tokens, len(self.tokens) + longest)

    def pieces_repeated(self) -> list[tuple[range, list[int]]]:
        """Of a prompt that the model repeats for the policy: each piece's place in it, and what is fed for that."""
        return [] if self.policy.repeats is None else list(self.repeat.passes(self.tokens, self.policy.repeats[0]))

    @property
    def tokens_reread(self) -> int:
        """Tokens that the model is fed for the policy alone, see `Ledger`; GemFilter's are counted where it filters."""
        if self.policy.repeats is not None:
            return len(self.tokens) + sum(len(fed) for _, fed in self.pieces_repeated())
        return self.prompt_tokens if self.policy.hindsight else 0

    @property
    def prompt_tokens(self) -> int:
        """What is fed before the first token is generated: prompt and question, tokens."""
        return len(self.tokens) + len(self.question)

    def budget_at(self, fed: int) -> int:
        """Slots that may persist once so many tokens have been fed. Shares are rounded to the nearest slot."""
        return max(self.budget, floor(self.so_far * fed + 0.5))

    def chunks(self, prompting: Prompting) -> list[tuple[int, int]]:
        """(start, stop) of every forward pass over the prompt.

        A policy whose evictions can be foreseen reads a token-fed prompt in one pass, under a mask that hides each
        token from the step on at which it is evicted (policies.md 3.14): the same outputs as token by token.
        """
        if prompting.regime == "token_fed" and self.policy.attention_free:
            return [(0, len(self.tokens))]
        return prompting.chunks(len(self.tokens), self.total_tokens if self.policy.is_dense else self.budget)

    def feeds_by_token(self, prompting: Prompting) -> bool:
        """Whether single tokens follow the prompt: what frees a slot before attention is defined for no others."""
        return self.policy.schedule.evict_first or prompting.regime == "token_fed"

    def question_pieces(self, prompting: Prompting) -> list[Sequence[int]]:
        """The question as it is fed: whole, in blocks where the prompt is, or token by token."""
        width = prompting.block_size if prompting.has_blocks else max(1, len(self.question))
        width = 1 if self.feeds_by_token(prompting) else width
        return [self.question[start : start + width] for start in range(0, len(self.question), width)]

    @property
    def capacity(self) -> int:
        """Slots per layer and KV head this row can ever persist."""
        if self.policy.is_dense or self.policy.schedule.prompt == "never":
            return self.total_tokens
        if self.policy.schedule.decode == "never":
            return min(self.total_tokens, self.budget + len(self.question) + self.max_new_tokens)
        return min(self.total_tokens, self.budget_at(self.total_tokens) + self.policy.slack)


@dataclass(frozen=True)
class RequestOutput:
    """A row's result. ``nll`` are nats per predicted token, of the prompt or of the continuation, in order."""

    ledger: Ledger
    tokens: list[int] = field(default_factory=list)
    nll: list[float] = field(default_factory=list)
    greedy: bool = False  # whether every token of the continuation was the model's first choice


def neighbours_by_policy(rows: Sequence[Request]) -> list[int]:
    """An order of these rows in which equal policies are neighbours, in the order of the first of each."""
    seen = {policy: number for number, policy in enumerate(dict.fromkeys(row.policy for row in rows))}
    return sorted(range(len(rows)), key=lambda index: seen[rows[index].policy])


# The ledger: what a row really held, counted on the cache's tensors, and the limits that it must keep.


@dataclass(frozen=True)
class Ledger:
    """What a row really held. Slots are per layer and KV head, bytes over all layers and heads of the row."""

    slots_requested: int  # -1 for a dense row
    slots_kept_max: int  # maximum over layers, heads and time
    slots_kept_mean: float  # mean over layers and heads at the end
    slots_peak: int  # visible during attention, the chunk included: maximum over layers, heads and time
    kv_bytes: int  # K and V at the largest persisted size
    state_bytes: int  # policy state beside them, at the same size
    tokens_evicted: float  # mean over layers and heads
    coverage: float  # share of prompt tokens that some layer and head holds after the prompt
    policy_calls: int  # selections by the policy, over all layers
    tokens_reread: int  # fed to the model for the policy alone, beside prompt and answer: see docs/design/rows.md
    invalid: str = ""  # the first violated limit, as a sentence


@dataclass(frozen=True)
class LedgerLimits:
    """What a row's ledger must satisfy; the numbers come from its prompt, budget and regime alone."""

    persists: int  # N: slots that may stay after a chunk
    widest_chunk: int  # B: tokens of the widest chunk
    total_tokens: int  # tokens the row is fed
    must_evict: bool  # whether the budget binds at all
    uniform: bool = True  # whether every layer and head holds the same number
    slots: int | None = None  # all layers and heads together; None where a policy does not keep to a budget

    def first_violation(
        self, peak: int, kept: int, surplus: int, calls: int, evicted: float, is_nan: bool, slots: int
    ) -> str:
        """The first limit that the counted numbers violate, as a sentence, or an empty string.

        ``surplus``: largest difference between slots a selection kept and slots it was allowed, negative if fewer.
        ``slots``: the most that all layers and heads held together.
        """
        if is_nan:
            return "The policy scored a slot as not-a-number, so its choice is meaningless."
        if self.slots is not None and slots > self.slots:
            return f"All layers and heads together persisted {slots} slots, more than the {self.slots} of the budget."
        if not self.uniform:
            return ""
        if surplus > 0:
            return f"The policy kept {surplus} slots more than its budget of {self.persists} in some layer and head."
        if surplus < 0:
            return f"The policy kept {-surplus} slots fewer than the budget allows in some layer and head."
        if kept > self.persists:
            return f"The cache persisted {kept} slots, more than the {self.persists} of the budget."
        if peak > self.persists + self.widest_chunk:
            return f"Attention saw {peak} slots, more than budget {self.persists} + block {self.widest_chunk}."
        if self.must_evict and calls == 0:
            return "The budget binds, but the policy was never called."
        if not self.must_evict and evicted > 0:
            return "The budget holds the whole sequence, but slots were evicted."
        return ""


# What is supported: policies by prompt regime and model shape, models by their configuration alone.


def reason_against(policy: Policy, prompting: Prompting) -> str:
    """Why this combination is refused, as a sentence with the remedy; empty where it is supported."""
    regime, schedule = prompting.regime, policy.schedule
    if schedule.prompt == "after_prompt" and regime != "one_shot":
        return (
            f"Policy '{policy.name}' compresses once, after the prompt, so prompt={regime} would hold the whole prompt "
            "under the name of a budget: use prompt=one_shot."
        )
    by_token = regime == "token_fed" or (regime == "blocked" and prompting.block_size == 1)
    if schedule.evict_first and schedule.prompt == "each_block" and not by_token:
        return (
            f"Policy '{policy.name}' frees a slot before each token is attended, which is not defined for blocks "
            f"(prompt={regime}): use prompt=token_fed."
        )
    return ""


def reason_against_model(policy: Policy, shape: ModelShape) -> str:
    """Why this policy cannot work on a model of this shape, as a sentence with the remedy; empty where it can."""
    stage = getattr(policy, "prompt_stage", None)
    parts = [getattr(policy, name, None) for name in ("scorer", "allocator", "token_filter", "structure")]
    reasons = (
        part.reason_against_model(shape) for part in [*parts, stage and stage.scorer] if isinstance(part, Fitted)
    )
    return next(filter(None, reasons), "")


def natural_regime(policy: Policy, block_size: int, split: Split = "whole") -> Prompting:
    """The first of blocked, one_shot, token_fed that the policy supports: what ``prompt=auto`` means."""
    for regime in REGIMES:
        prompting = Prompting(regime, block_size, split)
        if not reason_against(policy, prompting):
            return prompting
    raise EngineError(f"Policy '{policy.name}' works in no prompt regime: check its schedule.")


def sliding_window_of(config: Any) -> int | None:
    """The smallest sliding window of any layer, tokens, or None where all layers see everything."""
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if window is None or getattr(config, "use_sliding_window", True) is False:
        return None
    return window if kinds is None or any("sliding" in kind or "chunked" in kind for kind in kinds) else None


def refuse_unsupported(config: Any, longest: int) -> None:
    """Raise `EngineError` for models or lengths that the engine cannot run honestly. ``longest``: tokens."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    foreign = kinds - {"full_attention", "sliding_attention"}
    if foreign:
        raise EngineError(
            f"Model type '{config.model_type}' has layers of kind {', '.join(sorted(foreign))}, which keep no plain "
            "K/V cache: choose a model whose layers all use full attention."
        )
    window = sliding_window_of(config)
    if window is not None and longest > window:
        raise EngineError(
            f"Model type '{config.model_type}' has sliding-window layers of {window} tokens and this run needs "
            f"{longest}: such layers evict by themselves, so a budget would mean nothing. "
            f"Keep prompt + generation within {window} tokens, or choose a model without sliding windows."
        )
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and longest > positions:
        raise EngineError(
            f"A prompt with its generation needs {longest} positions, but the model was made for {positions}: "
            "shorten the task (task.lengths, task.length) or choose a model with a longer context."
        )
