"""K-VEC: SnapKV with a wider coverage of the prompt, across heads and across layers (policies.md, 3.18; Eq. 8-16)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from policies.scorer import Stateless
from policies.selection import as_written, keep_best_of_each, priorities
from policies.snapkv import Pooling, pool_neighbours
from policies.view import CacheView, ModelShape, PolicyError

Criterion = Literal["std", "entropy"]
Override = Literal["inf", "one"]


@dataclass(frozen=True)
class KVec(Stateless):
    """Three changes to SnapKV's scores, each of which can be switched off.

    The ``delta`` KV heads with the flattest scores look through a longer window ``O_prime``; every token gains
    ``lam`` times its strongest attention in any query head, the more the fewer earlier layers kept it; the share
    ``beta`` of the budget with the best unchanged scores is exempt. ``delta=0`` and ``lam=0`` together are SnapKV
    with window ``O``. Names are the paper's. The newest ``O`` tokens always stay: set protect.recent to the same.
    """

    O: int = 16  # noqa: E741 - query rows; also the recent tokens that are no candidates
    O_prime: int = 32
    delta: int = 3  # KV heads
    lam: float = 1.0
    beta: float = 0.25
    kernel: int = 7  # slots
    pool: Pooling = "max"
    focus_criterion: Criterion = "std"
    override: Override = "inf"  # the paper writes 1, which other scores can exceed
    counts_layers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.O < 1 or self.O_prime < 1:
            raise PolicyError(f"kvec windows O={self.O} and O_prime={self.O_prime} must be 1 or more query rows.")
        if self.delta < 0 or self.lam < 0:
            raise PolicyError(f"kvec delta={self.delta} and lam={self.lam:g} must be 0 or more.")
        if not 0 <= self.beta <= 1:
            raise PolicyError(f"kvec beta={self.beta:g} is a share of the budget: use a number from 0 to 1.")
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise PolicyError(f"kvec needs an odd pooling kernel (1, 3, 5, 7, …), not {self.kernel}.")
        for setting, known in (("pool", Pooling), ("focus_criterion", Criterion), ("override", Override)):
            if (value := getattr(self, setting)) not in get_args(known):
                raise PolicyError(f"kvec {setting}='{value}' is not one of {', '.join(get_args(known))}.")

    def reason_against_model(self, shape: ModelShape) -> str:
        """More heads cannot be widened than there are."""
        return self._too_wide(shape.kv_heads)

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N): P' at candidates, infinity in the window that always stays."""
        self._refuse(view)
        candidates = view.filled & (view.positions < view.seen - self.O)
        before_window = view.positions.masked_fill(~candidates, -1)
        seen = replace(view, positions=before_window, is_full=False)
        narrow, wide = self._windowed(seen, self.O), self._windowed(seen, self.O_prime)
        flattest = focus(narrow, candidates, self.focus_criterion).argsort(dim=1, stable=True)[:, : self.delta]
        widened = torch.zeros_like(candidates[..., :1]).scatter_(1, flattest, True)
        base = torch.where(widened, wide, narrow)
        gain = view.attention.strongest(self.O).unsqueeze(1) * (1 - coverage(view))
        top = 1.0 if self.override == "one" else torch.inf
        final = torch.where(self._exempt(base, seen), top, base + self.lam * gain)
        final = torch.where(torch.isnan(narrow + wide), torch.nan, final)  # never hidden behind an override
        return torch.where(candidates, final, torch.inf)

    def _windowed(self, seen: CacheView, rows: int) -> Tensor:
        """P, (R, H, N): pooled mean attention of the last rows, over candidates only."""
        mean = seen.attention.received(rows) / seen.attention.rows(rows)
        return pool_neighbours(mean, seen.positions, self.kernel, self.pool)

    def _exempt(self, base: Tensor, seen: CacheView) -> Tensor:
        """(R, H, N) bool: the candidates with the largest P, ``beta`` of the budget of them."""
        spared = tuple(min(floor(as_written(self.beta) * budget), max(0, budget - self.O)) for budget in seen.budgets)
        return keep_best_of_each(priorities(base, seen, None, None), seen, seen.per_row(spared))

    def _refuse(self, view: CacheView) -> None:
        if reason := self._too_wide(view.keys.shape[1]):
            raise PolicyError(reason)
        if view.phase == "decode":
            raise PolicyError("kvec compresses a prompt once: set policy.schedule.decode=never.")

    def _too_wide(self, heads: int) -> str:
        if self.delta <= heads:
            return ""
        return (
            f"kvec delta={self.delta} widens more heads than the {heads} KV heads of this model: "
            f"set policy.scorer.delta to {heads} or less."
        )


def focus(scores: Tensor, candidates: Tensor, criterion: Criterion) -> Tensor:
    """(R, H, 1): how uneven a head's scores are over its candidates; small = attends everywhere alike."""
    count = candidates.sum(-1, keepdim=True).clamp(min=1)
    total = scores.masked_fill(~candidates, 0.0).sum(-1, keepdim=True)
    if criterion == "std":
        deviation = (scores - total / count).masked_fill(~candidates, 0.0)
        return (deviation.square().sum(-1, keepdim=True) / count).sqrt()
    shares = torch.where(total > 0, scores / total.clamp(min=torch.finfo(torch.float32).tiny), 1 / count)
    return torch.xlogy(shares, shares).masked_fill(~candidates, 0.0).sum(-1, keepdim=True)


def coverage(view: CacheView) -> Tensor:
    """(R, H, N): share of the layers so far, this one included, that kept a slot's token; 0 in the first layer."""
    kept = view.kept_before.unsqueeze(1).expand(-1, view.positions.shape[1], -1)
    return kept.gather(-1, view.positions.clamp(min=0).long()).float() / (view.layer + 1)
