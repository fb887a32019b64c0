"""LagKV: tokens that stand out against those after them (Liang et al. 2025, arXiv 2504.04704; policies.md, 3.19)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from policies.scorer import Stateless, tiles
from policies.view import CacheView, PolicyError

Compare = Literal["within", "across"]

_ALWAYS = 1.0  # more than any rank or mean of two softmaxes


@dataclass(frozen=True)
class LagKV(Stateless):
    """Score = softmax over a partition of each token's spread over channels, of keys plus of values (section 2).

    Slots after the sinks, in the order of the text, form partitions of ``lag``. Each channel of a partition is scaled
    by its smallest and largest number in the next one; a token's spread is the standard deviation (of a sample) over
    the scaled channels. The last whole partition has no next one: it, the rest after it and the sinks score 1, more
    than all others. With fewer than ``2 lag`` slots after the sinks that is every slot, and the newest stay.

    ``compare="within"`` scores a token by its rank in its partition, so that all partitions lose alike, as with the
    paper's top-k of each; ``"across"`` compares the softmaxes of all partitions, as kvpress' ``cross_scoring`` does.

    Deviations: partitions are made anew from the survivors at every eviction (the paper compresses a partition once);
    a channel that is constant in the next partition counts 0 (public code divides by zero there).
    """

    lag: int = 128  # slots of a partition
    sinks: int = 4  # first tokens of the text, in no partition; the same number as protect.sinks
    compare: Compare = "within"
    layers_as_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.lag < 1:
            raise PolicyError(f"lagkv needs partitions of at least 1 slot, not lag={self.lag}.")
        if self.sinks < 0:
            raise PolicyError(f"lagkv sinks={self.sinks} must be 0 or more tokens.")
        if self.compare not in get_args(Compare):
            raise PolicyError(f"lagkv compare='{self.compare}' is not one of {', '.join(get_args(Compare))}.")

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N), from 0 to 1."""
        parted = view.filled & (view.positions >= self.sinks)
        last = torch.iinfo(view.positions.dtype).max  # sinks and empty slots come after all partitions
        order = view.positions.masked_fill(~parted, last).argsort(-1)
        line = torch.full(order.shape, _ALWAYS, dtype=torch.float32, device=order.device)
        scored = max(0, order.shape[-1] // self.lag - 1) * self.lag
        if scored:
            needed = torch.arange(scored, device=order.device) // self.lag * self.lag + 2 * self.lag
            has_next = needed <= parted.sum(-1, keepdim=True)
            line[..., :scored] = torch.where(has_next, self._information(view, order), _ALWAYS)
        return torch.empty_like(line).scatter_(-1, order, line)

    def _information(self, view: CacheView, order: Tensor) -> Tensor:
        """(R, H, (n - 1)·lag): of all slots but the last of n partitions, ``order`` (R, H, N) being their places."""
        whole = order[..., : order.shape[-1] // self.lag * self.lag, None]
        parts = []
        for rows in tiles(view.keys):
            places = whole[rows].expand(-1, -1, -1, view.keys.shape[-1])
            lines = (vectors[rows].gather(2, places).float() for vectors in (view.keys, view.values))
            of_keys, of_values = (_spread(line, self.lag).softmax(-1) for line in lines)
            parts.append((of_keys + of_values) / 2)
        information = torch.cat(parts)
        if self.compare == "within":
            information = torch.where(information.isnan(), torch.nan, _ranks(information) / self.lag)
        return information.flatten(2)


def _spread(line: Tensor, lag: int) -> Tensor:
    """(R, H, n·lag, D) fp32 to (R, H, n - 1, lag): deviation over channels, scaled by the next partition's range."""
    partitions = line.view(*line.shape[:2], -1, lag, line.shape[-1])
    following = partitions[:, :, 1:]
    low, high = following.amin(-2, keepdim=True), following.amax(-2, keepdim=True)
    width = torch.where(high > low, high - low, torch.inf)  # a constant channel has no scale: 0, and NaN stays NaN
    return ((partitions[:, :, :-1] - low) / width).std(-1)


def _ranks(numbers: Tensor) -> Tensor:
    """How many of the last axis are smaller, or equal and older."""
    return numbers.argsort(stable=True, dim=-1).argsort(-1)
