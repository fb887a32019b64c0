"""TOVA: the slots that the last token attends to least are evicted (Oren et al. 2024; policies.md, 3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from torch import Tensor

from policies.scorer import Stateless
from policies.view import CacheView, PolicyError

Heads = Literal["kv", "layer"]


@dataclass(frozen=True)
class TOVA(Stateless):
    """Score = attention row of the chunk's last query.

    ``heads="kv"`` averages over the query group, so that each KV head selects for itself (KeyDiff, CAOTE);
    ``"layer"`` averages over all query heads, one index set per layer (the original). The current token competes
    like any other and may be evicted (A-04).
    """

    heads: Heads = "kv"
    nonnegative: ClassVar[bool] = True
    layers_as_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.heads not in get_args(Heads):
            raise PolicyError(f"tova heads='{self.heads}' is not one of kv, layer.")

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N): probabilities that sum to 1 over a head's slots."""
        row = view.attention.received(1)
        if self.heads == "kv":
            return row
        # Slots of different heads lie in different order; only where every head holds the same tokens is this a mean.
        return mean_over_heads(row, view.positions)


def mean_over_heads(numbers: Tensor, positions: Tensor) -> Tensor:
    """(R, H, N) averaged over heads token by token: each head's slots get the mean for the token they hold."""
    order = positions.argsort(dim=-1)
    mean = numbers.gather(-1, order).mean(1, keepdim=True).expand_as(numbers)
    return mean.new_empty(mean.shape).scatter_(-1, order, mean)
