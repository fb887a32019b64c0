"""Ada-SnapKV and Ada-Pyramid: head budgets from comparing scores across heads (Feng et al. 2024; policies.md, 3.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from policies.pyramid import LayerSchedule, check_pyramid, prefix_slots
from policies.rounding import as_written
from policies.selection import priorities
from policies.view import CacheView, PolicyError

Rounding = Literal["largest_remainder", "public_code"]
Base = Literal["uniform", "pyramid"]


@dataclass(frozen=True)
class AdaKV:
    """A head gets a mix of the layer's average and of the number of the layer's best scores that lie in it.

    Heads compare because every row of attention sums to 1 and all heads see the same rows. Recent tokens are no
    candidates: each head keeps its whole window besides. NVIDIA/kvpress forces each head's best alpha in instead of
    mixing budgets, and masks keys where we free them.
    """

    window: int = 32  # recent tokens inside the budget; the same number as protect.recent
    alpha: float = 0.2  # 1 = uniform, 0 = fully adaptive
    normalize: bool = False  # weigh a head's scores by the share of its mass that its best ``base`` slots hold
    rounding: Rounding = "largest_remainder"  # public_code rounds each head for itself and misses the total
    base: Base = "uniform"  # pyramid: the layer's average comes from PyramidKV
    beta: float = 20
    schedule: LayerSchedule = "exact"

    def __post_init__(self) -> None:
        check_pyramid("ada", self.window, self.beta, self.schedule)
        if not 0 <= self.alpha <= 1:
            raise PolicyError(f"ada alpha={self.alpha:g} must lie between 0 (adaptive) and 1 (uniform).")
        if self.rounding not in get_args(Rounding):
            raise PolicyError(f"ada rounding='{self.rounding}' is not one of {', '.join(get_args(Rounding))}.")
        if self.base not in get_args(Base):
            raise PolicyError(f"ada base='{self.base}' is not one of {', '.join(get_args(Base))}.")

    @property
    def exact(self) -> bool:
        """Whether heads and layers together hold no more than the average says."""
        return self.rounding == "largest_remainder" and (self.base == "uniform" or self.schedule == "exact")

    def targets(self, view: CacheView, scores: Tensor, protected: Tensor) -> Tensor:
        """(R, H, 1)."""
        if view.phase == "decode":
            raise PolicyError("ada compares scores of the whole prompt: set policy.schedule.decode=never.")
        candidates = view.filled & ~protected
        base = view.per_row(tuple(self._base(view, row) for row in range(len(view.budgets))))
        if self.normalize:
            scores = scores * captured_mass(scores, candidates, base)
        owned = best_owned(scores, view, candidates, base * scores.shape[1])
        own = self._mixed(owned, base) + view.per_row(tuple(min(self.window, budget) for budget in view.budgets))
        fits = (candidates.sum(-1, keepdim=True) <= base) & (base > 0)
        return torch.where(fits, view.positions.shape[-1], own)

    def _base(self, view: CacheView, row: int) -> int:
        """The layer's average number of slots per head before the window."""
        base = max(0, view.budgets[row] - self.window)
        if self.base == "uniform":
            return base
        prefix = view.prompt_lengths[row] - self.window
        return prefix_slots(base, prefix, view.layers, self.beta, self.schedule)[view.layer]

    def _mixed(self, owned: Tensor, base: Tensor) -> Tensor:
        """(1 - alpha) x owned + alpha x base in whole slots, (R, H, 1); fractions are kept as integers."""
        alpha = as_written(self.alpha).limit_denominator(10**6)
        part, whole = alpha.numerator, alpha.denominator
        if self.rounding == "public_code":
            floor = part * base // whole
            numerator = (whole - part) * owned + whole * floor
            down, rest = numerator // whole, 2 * (numerator % whole)
            return down + ((rest > whole) | ((rest == whole) & (down % 2 == 1)))  # half to even, as in the code
        numerator = (whole - part) * owned + part * base
        down, rest = numerator // whole, numerator % whole
        missing = base * owned.shape[1] - down.sum(1, keepdim=True)
        place = rest.sort(dim=1, descending=True, stable=True).indices.argsort(dim=1)
        return down + (place < missing)


def best_owned(scores: Tensor, view: CacheView, candidates: Tensor, winners: Tensor) -> Tensor:
    """(R, H, 1) int64: how many of a layer's best ``winners`` (R, 1, 1) candidates each head holds.

    Of equal scores the newer token counts first, then the lower head: identical heads own equal numbers.
    """
    nobody = torch.zeros_like(candidates)
    key = torch.where(candidates, priorities(scores, view, nobody, nobody), -1)
    place = key.flatten(1).sort(dim=-1, descending=True, stable=True).indices.argsort(dim=-1)
    won = (place.view_as(key) < winners) & candidates
    return won.sum(-1, keepdim=True)


def captured_mass(scores: Tensor, candidates: Tensor, base: Tensor) -> Tensor:
    """(R, H, 1): share of a head's mass that its best ``base`` (R, 1, 1) candidates hold; 1 where there is none."""
    best = scores.masked_fill(~candidates, 0.0).sort(dim=-1, descending=True).values
    counted = torch.arange(best.shape[-1], device=best.device) < base
    whole = best.sum(-1, keepdim=True)
    share = (best * counted).sum(-1, keepdim=True) / whole.clamp(min=torch.finfo(torch.float32).tiny)
    return torch.where(whole > 0, share, 1.0)
