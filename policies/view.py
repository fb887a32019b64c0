"""What a policy is shown: one layer's cache at the moment after attention, for the rows under that policy."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


class PolicyError(ValueError):
    """A policy that cannot be built or cannot work as asked. The message is a sentence with the remedy."""


@dataclass(frozen=True)
class CacheView:
    """One layer's slots, old ones first and the new chunk last, in no particular order of position.

    Shapes (``R`` rows, ``H`` KV heads, ``N`` slots of this view, ``D`` head dim): an empty slot has position -1
    and column sum 0, and whatever keys, values and state were left in it.
    """

    keys: Tensor  # (R, H, N, D), rotated with the absolute position
    values: Tensor  # (R, H, N, D)
    positions: Tensor  # (R, H, N) int32, the token's place in its sequence; -1 = empty
    column_sums: Tensor | None  # (R, H, N) fp32, attention received from the rows the scorer asked for
    state: Tensor | None  # (R, H, N) fp32, the scorer's own number per slot
    counts: tuple[int, ...]  # filled slots of each row, the same for all heads
    lengths: tuple[int, ...]  # tokens each row has seen so far, evicted ones included
    budgets: tuple[int, ...]  # slots that each row may persist per layer and KV head

    @property
    def filled(self) -> Tensor:
        """(R, H, N) bool: slots that hold a token."""
        return self.positions >= 0

    def per_row(self, numbers: tuple[int, ...]) -> Tensor:
        """One host number per row as a (R, 1, 1) int64 tensor on the cache's device."""
        return self.positions.new_tensor(numbers).long().view(-1, 1, 1)


def attention_of(view: CacheView) -> Tensor:
    """The attention statistic that the scorer declared; its absence is an error of the engine, not of the user."""
    if view.column_sums is None:
        raise PolicyError("This scorer reads attention, but the engine delivered none: declare it in 'rows'.")
    return view.column_sums
