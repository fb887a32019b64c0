"""Ada-SnapKV and Ada-Pyramid: head budgets from comparing scores across heads (Feng et al. 2024; policies.md, 3.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from policies.pyramid import PrefixSchedule, check_pyramid, prefix_slots
from policies.selection import as_written, keep_best_of_each, priorities
from policies.view import CacheView, PolicyError

Rounding = Literal["largest_remainder", "public_code"]
Base = Literal["uniform", "pyramid"]
Mix = Literal["convex", "safeguard"]
_SAFEGUARD_ONLY = ("uniform", False, "largest_remainder")


@dataclass(frozen=True)
class AdaKV:
    """A head gets a mix of the layer's average and of the number of the layer's best scores that lie in it.

    Scores of heads can be compared because every row of attention sums to 1 and all heads see the same rows. Sinks and
    recent tokens are no candidates: each head keeps them besides.

    ``mix="safeguard"`` is what NVIDIA/kvpress does instead of mixing budgets: each head always keeps its best tokens up
    to the share ``alpha`` of its average, window included, and the layer's best scores get the rest. (kvpress masks
    the other keys; we free their slots.)
    """

    window: int = 32  # recent tokens inside the budget; the same number as protect.recent
    alpha: float = 0.2  # 1 = uniform, 0 = fully adaptive
    normalize: bool = False  # weigh a head's scores by the share of its mass that its best ``base`` slots hold
    rounding: Rounding = "largest_remainder"  # public_code rounds each head by itself and misses the total
    base: Base = "uniform"  # pyramid: the layer's average comes from PyramidKV
    beta: float = 20
    schedule: PrefixSchedule = "exact"
    mix: Mix = "convex"
    sinks: int = 0  # first tokens inside the budget; the same number as protect.sinks

    def __post_init__(self) -> None:
        check_pyramid("ada", self.window, self.beta, self.schedule, get_args(PrefixSchedule))
        if not 0 <= self.alpha <= 1:
            raise PolicyError(f"ada alpha={self.alpha:g} must lie between 0 (adaptive) and 1 (uniform).")
        if self.rounding not in get_args(Rounding):
            raise PolicyError(f"ada rounding='{self.rounding}' is not one of {', '.join(get_args(Rounding))}.")
        if self.base not in get_args(Base):
            raise PolicyError(f"ada base='{self.base}' is not one of {', '.join(get_args(Base))}.")
        if self.mix not in get_args(Mix):
            raise PolicyError(f"ada mix='{self.mix}' is not one of {', '.join(get_args(Mix))}.")
        if self.mix == "safeguard" and (self.base, self.normalize, self.rounding) != _SAFEGUARD_ONLY:
            raise PolicyError(
                "ada mix=safeguard hands out whole slots of one average by plain scores: leave base, normalize and "
                "rounding at their defaults."
            )

    @property
    def _apart(self) -> int:
        """Tokens that every head keeps whatever the scores."""
        return self.window + self.sinks

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
        if self.mix == "safeguard":
            scores = scores.masked_fill(self._safe(scores, view, candidates), torch.inf)
        owned = best_owned(scores, view, candidates, base * scores.shape[1])
        shared = owned if self.mix == "safeguard" else self._mixed(owned, base)
        own = shared + view.per_row(tuple(min(self._apart, budget) for budget in view.budgets))
        # The released code also rounds where a layer of the pyramid may keep exactly its prefix, and then loses a slot.
        # A prompt within the budget stays whole there too.
        rounds = self.rounding == "public_code" and self.base == "pyramid"
        losing = tuple(int(rounds and n > budget) for n, budget in zip(view.counts, view.budgets, strict=True))
        fits = (candidates.sum(-1, keepdim=True) <= base - view.per_row(losing)) & (base > 0)
        return torch.where(fits, view.positions.shape[-1], own)

    def _safe(self, scores: Tensor, view: CacheView, candidates: Tensor) -> Tensor:
        """(R, H, N) bool: each head's best candidates that no other head can displace."""
        sure = tuple(max(0, int(as_written(self.alpha) * budget) - self._apart) for budget in view.budgets)
        ranked = torch.where(candidates, priorities(scores, view, None, None), -1)
        return keep_best_of_each(ranked, view, view.per_row(sure)) & candidates

    def _base(self, view: CacheView, row: int) -> int:
        """The layer's average number of slots per head between sinks and window."""
        base = max(0, view.budgets[row] - self._apart)
        if self.base == "uniform":
            return base
        prefix = view.prompt_lengths[row] - self._apart
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
    key = torch.where(candidates, priorities(scores, view, None, None), -1)
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
