"""From scores to the slots that stay: the selection rule of every score-based policy, and budgets per head.

The rule (policies.md, section 1.3): protected slots first, then the best scores; on equal scores the older token goes.
It is one comparison of integer keys that are unique within a head, so the result is the same on every device and needs
no stable sort. An `Allocator` says how many slots each layer and head gets out of one nominal budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import floor
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from policies.view import CacheView, ModelShape

_POSITION_BITS = 28  # sequences up to 268 million tokens
_TIER_SHIFT = 60
_ORDINARY, _RECENT, _SINK, _EMPTY = 0, 1, 2, 3  # empty slots rank last because they can never be victims


def sortable(scores: Tensor) -> Tensor:
    """fp32 scores as int64 in [0, 2^32) with the same order; -0.0 and 0.0 become equal."""
    bits = (scores.float() + 0.0).view(torch.int32)
    negative = bits >> 31  # all bits set, or none
    return (bits ^ (negative | -(2**31))).view(torch.uint32).long()


def ranks(positions: Tensor) -> Tensor:
    """(R, H, N) int64: each filled slot's index in the order of the text; empty slots come after all filled ones."""
    order = positions.masked_fill(positions < 0, torch.iinfo(positions.dtype).max).argsort(-1)
    places = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places)


def priorities(scores: Tensor, view: CacheView, sinks: Tensor | None, recent: Tensor | None) -> Tensor:
    """(R, H, N) int64, larger = keep, unique among the filled slots of a head.

    ``sinks`` and ``recent`` are boolean masks of protected slots, None where there are none. Where a budget is smaller
    than what is protected, sinks stay first (smallest position first), then the most recent.
    """
    key = torch.add(view.positions, sortable(scores), alpha=1 << _POSITION_BITS)
    if recent is not None:
        key = torch.where(recent, view.positions.long() + (_RECENT << _TIER_SHIFT), key)
    if sinks is not None:
        key = torch.where(sinks, (_SINK << _TIER_SHIFT) + (1 << _POSITION_BITS) - 1 - view.positions.long(), key)
    return key if view.is_full else torch.where(view.filled, key, _EMPTY << _TIER_SHIFT)


def keep_best(priority: Tensor, view: CacheView) -> Tensor:
    """(R, H, N) bool: the slots each head keeps, ``min(budget, filled)`` of them. Rows within budget keep all."""
    drop = tuple(max(0, count - budget) for count, budget in zip(view.counts, view.budgets, strict=True))
    if not any(drop):
        return view.filled
    if max(drop) == 1:
        losers = priority.amin(-1, keepdim=True)
    else:
        losers = priority.topk(max(drop), dim=-1, largest=False, sorted=True).values
    if min(drop) == max(drop):
        highest_dropped = losers[..., -1:]
    else:
        last = view.per_row(tuple(max(0, d - 1) for d in drop)).expand(*priority.shape[:2], 1)
        highest_dropped = torch.where(view.per_row(drop) > 0, losers.gather(-1, last), -1)
    kept = priority > highest_dropped
    return kept if view.is_full else kept & view.filled


def keep_best_of_each(priority: Tensor, view: CacheView, targets: Tensor) -> Tensor:
    """As `keep_best`, with a target of its own for every head: ``targets`` (R, H, 1) int64 slots."""
    filled_first = torch.where(view.filled, priority, -1)
    rank = filled_first.argsort(dim=-1, descending=True).argsort(dim=-1)
    return (rank < targets) & view.filled


class Allocator(Protocol):
    """A frozen dataclass. Uniform allocation is the absence of one."""

    @property
    def exact(self) -> bool:
        """Whether all layers and heads together never hold more than the nominal budget times their number."""
        ...

    def targets(self, view: CacheView, scores: Tensor, protected: Tensor) -> Tensor:
        """(R, H, 1) int64: slots for each head of this layer, protected ones included.

        ``scores`` (R, H, N) after the value correction, ``protected`` (R, H, N) bool. The engine's budget
        (``view.budgets``) is the average per layer and head.
        """
        ...


@dataclass(frozen=True)
class SkipLayers:
    """Some layers keep everything (the original L2 method skips the first two; policies.md 3.13)."""

    layers: tuple[int, ...] = (0, 1)
    exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))

    def reason_against_model(self, shape: ModelShape) -> str:
        """A layer that does not exist would be skipped in silence."""
        missing = [layer for layer in self.layers if not 0 <= layer < shape.layers]
        if not missing:
            return ""
        return (
            f"skip_layers names layer {missing[0]}, but this model has layers 0 to {shape.layers - 1}: "
            "correct policy.allocator.layers."
        )

    def targets(self, view: CacheView, scores: Tensor, protected: Tensor) -> Tensor:
        """The budget, or all slots in a skipped layer."""
        own = view.lengths if view.layer in self.layers else view.budgets
        return view.per_row(own).expand(*scores.shape[:2], 1)


# From shares of slots to whole slots, exactly and the same on every machine.


@cache
def as_written(number: float) -> Fraction:
    """The decimal that the user wrote: 0.29 is 29/100, so that 0.29 x 100 is 29 and not 28.999999999999996."""
    return Fraction(str(number))


def largest_remainder(shares: Sequence[Fraction], total: int) -> tuple[int, ...]:
    """Whole numbers nearest to the shares whose sum is ``total``; of equal remainders the first goes up."""
    whole = [floor(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (whole[i] - shares[i], i))
    for i in by_remainder[: total - sum(whole)]:
        whole[i] += 1
    return tuple(whole)
