"""What a policy sees (LayerView, HeadView) and the methods it may replace (Policy)."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.reference.attention import reduce_group
from tests.reference.selection import gap, keep


@dataclass
class HeadView:
    """One KV head, slots ascending by position. k, v (n, D); q (G, m, D); probs (G, m, n), None before
    attention.
    """

    g: int
    pos: list[int]
    k: np.ndarray
    v: np.ndarray
    q: np.ndarray
    probs: np.ndarray | None
    layer: LayerView = field(repr=False)

    @property
    def attention(self) -> np.ndarray:
        """probs (G, m, n), which exist only after attention: a score that needs them cannot serve order EAA."""
        if self.probs is None:
            raise ValueError("this score needs attention, but the victim is chosen before attention (order EAA)")
        return self.probs


@dataclass
class LayerView:
    """One layer at one moment: after attention for AAE, before the new token is appended for EAA.

    next_pos: position of the next token (AAE) or of the incoming one (EAA), so that the `r` most recent
    positions are next_pos - r ... next_pos - 1 either way. k_new (H, m, D): keys of the current chunk. total:
    T, the number of prompt tokens.
    """

    index: int
    n_layers: int
    prompt: bool
    prompt_done: bool
    total: int
    next_pos: int
    q_pos: list[int]
    k_new: np.ndarray
    scale: float
    heads: list[HeadView] = field(default_factory=list)


class Policy:
    """Base: keeps everything it may, scores nothing. Budgets, ties and protection follow policies.md section
    1.3.

    order: 'AAE' (append, attend, evict) or 'EAA' (evict, append, attend; applies to single-token steps);
    prefill_evict: 'after_each_block', 'once_after_prompt' or 'none'; decode_evict: 'every_step' or 'never';
    gqa: 'mean', 'sum', 'max' or 'all_heads' (the older 'per_query_head' is this reference run on K and V that
    the caller repeated to Hq heads).
    """

    sequential_prompt = False  # EAA policies may read the prompt one token at a time

    def __init__(
        self,
        *,
        gqa: str = "mean",
        prefill_evict: str = "after_each_block",
        decode_evict: str = "every_step",
        order: str = "AAE",
    ) -> None:
        if prefill_evict not in {"after_each_block", "once_after_prompt", "none"}:
            raise ValueError(f"unknown prefill_evict {prefill_evict!r}")
        if decode_evict not in {"every_step", "threshold", "never"}:
            raise ValueError(f"unknown decode_evict {decode_evict!r}")
        if order not in {"AAE", "EAA"}:
            raise ValueError(f"unknown order {order!r}")
        self.gqa, self.prefill_evict, self.decode_evict, self.order = gqa, prefill_evict, decode_evict, order
        self.budget: int | None = None
        self.tables: list[dict[str, dict[int, Any]]] = []
        self.scores: list[dict[int, float] | None] = []
        self.margins: list[float] = []

    # Life cycle, called by the engine.

    def begin_sequence(self, n_layers: int) -> None:
        """A new prompt: nothing may survive from the previous one."""

    def begin_layer(self, index: int, n_kv_heads: int, group: int, budget: int | None) -> None:
        """tables[g][name][position] holds every per-slot state; the engine drops evicted positions from it."""
        self.budget = budget
        self.tables = [defaultdict(dict) for _ in range(n_kv_heads)]
        self.begin_step(n_kv_heads)

    def begin_step(self, n_kv_heads: int) -> None:
        self.scores = [None] * n_kv_heads
        self.margins = [math.inf] * n_kv_heads

    def update(self, view: LayerView) -> None:
        """State update with the attention of the current chunk."""

    def after_eviction(self, view: LayerView, kept: list[list[int]]) -> None:
        """State update that must know what survived this chunk."""

    def forget(self, g: int, gone: set[int]) -> None:
        for table in self.tables[g].values():
            for p in gone:
                table.pop(p, None)

    def state(self, g: int) -> dict[str, dict[int, Any]]:
        return copy.deepcopy({name: dict(table) for name, table in self.tables[g].items()})

    # What a policy decides.

    def due(self, view: LayerView) -> bool:
        """Does the schedule evict after this chunk?"""
        if not view.prompt:
            return self.decode_evict != "never"
        return self.prefill_evict == "after_each_block" or (
            self.prefill_evict == "once_after_prompt" and view.prompt_done
        )

    def score(self, head: HeadView) -> np.ndarray:
        """(n,) retention scores, larger = keep."""
        raise NotImplementedError

    def sinks(self, head: HeadView) -> set[int]:
        """Protected positions at the start of the text."""
        return set()

    def others(self, head: HeadView) -> set[int]:
        """All other protected positions."""
        return set()

    def target(self, head: HeadView, budget: int) -> int:
        """Slots this head keeps; differs from the budget for ragged policies."""
        return budget

    def select(self, view: LayerView, budget: int | None) -> list[list[int]]:
        """Positions each KV head keeps."""
        return [self.select_head(head, budget) for head in view.heads]

    def select_head(self, head: HeadView, budget: int | None) -> list[int]:
        if budget is None:
            return list(head.pos)
        target = self.target(head, budget)
        if len(head.pos) <= target:
            return list(head.pos)
        return self.choose(head, self.score(head), target)

    def choose(self, head: HeadView, score: np.ndarray, target: int) -> list[int]:
        """Apply the selection rule and record the scores and the margin of the decision."""
        sinks, others = self.sinks(head), self.others(head)
        kept = keep(head.pos, [float(s) for s in score], target, sinks, others)
        self.scores[head.g] = dict(zip(head.pos, map(float, score), strict=True))
        self.margins[head.g] = min(self.margins[head.g], gap(head.pos, score, kept, sinks, others))
        return kept

    def make_room(self, view: LayerView, budget: int | None) -> list[list[int]]:
        """EAA: what is kept before the new token is appended, so that the budget holds after it."""
        return self.select(view, None if budget is None else budget - 1)

    def admits(self, view: LayerView, g: int) -> str:
        """Is the incoming token kept ('keep'), only attended to ('see') or neither ('skip')?"""
        return "keep"

    def logit_factor(self, n: int) -> float:
        """Extra factor on the attention logits when n slots are attended; only BUZZ + log n uses it."""
        return 1.0

    # Helpers.

    def reduced(self, head: HeadView, statistic: Callable[[HeadView], np.ndarray]) -> np.ndarray:
        """statistic gives (G, n) per query head; the result is (n,), reduced as `gqa` says."""
        if self.gqa != "all_heads":
            return reduce_group(statistic(head), self.gqa)
        if any(other.pos != head.pos for other in head.layer.heads):
            raise ValueError("one score for the whole layer needs the same slots in every head")
        return reduce_group(np.concatenate([statistic(other) for other in head.layer.heads]), "mean")


def first_positions(head: HeadView, count: int) -> set[int]:
    """The text's first `count` positions that are still cached."""
    return {p for p in head.pos if p < count}


def last_positions(head: HeadView, count: int) -> set[int]:
    """Positions within the last `count` tokens read: next_pos - count ... next_pos - 1."""
    return {p for p in head.pos if p >= head.layer.next_pos - count}


def last_slots(head: HeadView, count: int) -> set[int]:
    """The `count` most recent slots present."""
    return set(head.pos[len(head.pos) - min(count, len(head.pos)) :])
