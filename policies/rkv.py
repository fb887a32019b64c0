"""R-KV: attention minus redundancy, for long generations (Cai et al. 2025, arXiv 2505.24133; policies.md, 3.20)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from policies.scorer import Stateless, tiles
from policies.snapkv import SnapKV, pool_neighbours
from policies.view import CacheView, PolicyError

_SMALLEST_NORM = 1e-8
_KEYS_PER_TILE = 128  # rows of the matrix of cosines that exist at one time


@dataclass(frozen=True)
class RKV(Stateless):
    """Score = ``lam`` x importance - (1 - ``lam``) x redundancy, the paper's Z = λ I - (1 - λ) R.

    Importance: what the last ``window`` queries of the text, carried over chunks, give to the slots before them, as
    shares of their sum for each query head; the largest share of the query group, max-pooled over ``kernel``
    neighbours. Redundancy: the softmax over slots of a key's mean cosine to the other keys, where each key leaves out
    its ``beta`` most recent keys with a cosine above ``threshold``: of keys that are alike the newest stay. The window
    itself stays through ``protect.recent``.

    Deviations: public code takes the largest logit of the group before the softmax; a policy is shown probabilities.
    Public code also zeroes the cosine to the oldest key where no key is alike, a side effect that we leave out, and
    compresses every 128 generated tokens, where our budget holds at every step.
    """

    window: int = 8  # query rows
    kernel: int = 7  # slots
    lam: float = 0.1
    threshold: float = 0.5  # cosine
    beta: int = 1  # keys
    layers_as_rows: ClassVar[bool] = True
    same_state_for_all_budgets: ClassVar[bool] = True
    carried: ClassVar[tuple[str, ...]] = ("queries", "asked")

    def __post_init__(self) -> None:
        if self.window < 1:
            raise PolicyError(f"rkv needs an observation window of at least 1 row, not {self.window}.")
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise PolicyError(f"rkv needs an odd pooling kernel (1, 3, 5, 7, …), not {self.kernel}.")
        if not 0 <= self.lam <= 1:
            raise PolicyError(f"rkv lam={self.lam:g} must lie between 0 (redundancy only) and 1 (attention only).")
        if not 0 <= self.threshold <= 1:
            raise PolicyError(f"rkv threshold={self.threshold:g} is a cosine: use a number from 0 to 1.")
        if self.beta < 0:
            raise PolicyError(f"rkv beta={self.beta} must be 0 or more keys.")

    def update(self, view: CacheView) -> Mapping[str, Tensor]:
        """The window's queries (R, H·G, w, D) and the positions of their tokens (R, w), as SnapKV carries them."""
        return SnapKV(self.window, window_source="carry").update(view)

    def score(self, view: CacheView) -> Tensor:
        """(R, H, N), from lam - 1 to lam."""
        return self.lam * self._importance(view) - (1 - self.lam) * self._redundancy(view)

    def _importance(self, view: CacheView) -> Tensor:
        """(R, H, N): 0 in the window."""
        by_head = view.attention.received_from(view.state["queries"], view.state["asked"])
        before = view.positions.masked_fill(view.positions >= view.seen - self.window, -1)
        given = by_head.masked_fill((before < 0).unsqueeze(2), 0.0)
        shares = given / given.sum(-1, keepdim=True).clamp(min=torch.finfo(given.dtype).tiny)
        return pool_neighbours(shares.amax(2), before, self.kernel, "max")

    def _redundancy(self, view: CacheView) -> Tensor:
        """(R, H, N): sums to 1 over the filled slots of a head."""
        means = [self._means(view.keys[rows].float(), view.positions[rows]) for rows in tiles(view.keys)]
        return torch.cat(means).masked_fill(~view.filled, -torch.inf).softmax(-1)

    def _means(self, keys: Tensor, positions: Tensor) -> Tensor:
        """(r, H, N): mean over keys (r, H, N, D) of their cosine to each one, after what they leave out."""
        filled = positions >= 0
        norms: Tensor = torch.linalg.vector_norm(keys, dim=-1, keepdim=True).clamp(min=_SMALLEST_NORM)
        units = (keys / norms).masked_fill(~filled.unsqueeze(-1), 0.0)
        sums = torch.zeros_like(norms[..., 0])
        for start in range(0, keys.shape[2], _KEYS_PER_TILE):
            cosines = units[:, :, start : start + _KEYS_PER_TILE] @ units.transpose(-1, -2)
            cosines.diagonal(start, -2, -1).zero_()
            sums += self._without_recent(cosines, positions).sum(-2)
        return sums / filled.sum(-1, keepdim=True).clamp(min=1)

    def _without_recent(self, cosines: Tensor, positions: Tensor) -> Tensor:
        """(r, H, m, N), 0 at each row's ``beta`` most recent keys above the threshold."""
        alike = torch.where(cosines > self.threshold, positions.unsqueeze(2), -1)
        places, at = alike.topk(min(self.beta, alike.shape[-1]), dim=-1)
        return cosines.scatter(-1, at, cosines.gather(-1, at).masked_fill(places >= 0, 0.0))
